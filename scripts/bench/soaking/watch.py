"""What a running `benchsuite jobs` holds: memory, file handles, threads and zombies, against the number of results."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

EVERY_S = 0.5
# A child that has ended must be waited for within this time.
ZOMBIE_LIMIT_S = 60.0


@dataclass(frozen=True)
class Sample:
    """The parent at one moment; `results` counts the results that its folder holds."""

    results: int
    rss_bytes: int
    handles: int
    threads: int


def results_in(out: Path) -> int:
    """The number of results in a run folder."""
    try:
        return sum(".J" in path.name and path.suffix == ".json" for path in out.iterdir())
    except OSError:
        return 0


class Watch:
    """Samples one process until it ends.

    Attributes:
        zombies: children that ended, and were not waited for within `ZOMBIE_LIMIT_S`.
    """

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self.process, self.out = process, out
        self.samples: list[Sample] = []
        self.zombies: set[int] = set()
        self._since_s: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ended(self, limit_s: float) -> int | None:
        """Wait for its end; its exit status, or None if it did not end."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        self._thread.join()
        return code

    def _run(self) -> None:
        while self.process.poll() is None:
            with contextlib.suppress(psutil.Error, OSError):
                self._sample(psutil.Process(self.process.pid))
            time.sleep(EVERY_S)

    def _sample(self, process: psutil.Process) -> None:
        with process.oneshot():
            sample = Sample(results_in(self.out), process.memory_info().rss, process.num_fds(), process.num_threads())
        self.samples.append(sample)
        now_s = time.monotonic()
        dead = {c.pid for c in process.children() if c.status() == psutil.STATUS_ZOMBIE}
        self._since_s = {pid: self._since_s.get(pid, now_s) for pid in dead}
        self.zombies |= {pid for pid, since_s in self._since_s.items() if now_s - since_s > ZOMBIE_LIMIT_S}


@dataclass(frozen=True)
class Growth:
    """A figure of the parent after its first results and at its end."""

    first: float
    last: float

    @property
    def grown(self) -> float:
        return self.last - self.first


def growth(watch: Watch, of: Callable[[Sample], float], after: int, span: int) -> Growth | None:
    """How a figure grew from the `span` results after the first `after` ones to the last `span` ones.

    None if the process lived through fewer results than that.
    """
    if not watch.samples:
        return None
    begin, end = watch.samples[0].results, watch.samples[-1].results
    if end - begin < after + 2 * span:
        return None
    first = [of(s) for s in watch.samples if begin + after <= s.results < begin + after + span]
    last = [of(s) for s in watch.samples if s.results >= end - span]
    return Growth(statistics.median(first), statistics.median(last)) if first and last else None
