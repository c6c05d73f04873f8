"""CPU time and resident memory of a task's processes, summed over all that begin and end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from benchsuite.host import steal
from benchsuite.telemetry import TenantSample

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
T = TypeVar("T")


class Process(NamedTuple):
    """One process at one moment; `started_ticks` distinguishes it from a later one with the same pid."""

    pid: int
    started_ticks: int
    cpu_s: float
    rss_bytes: int


def look(pid: int) -> Process | None:
    """A process, or None if it does not exist or its line is malformed; by one read of /proc/PID/stat, see proc(5)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name of the program, in brackets, may itself contain brackets and spaces.
    fields = text.rpartition(b")")[2].split()
    try:
        user_ticks, system_ticks, started, rss_pages = (int(fields[place]) for place in (11, 12, 19, 21))
    except (IndexError, ValueError):
        return None
    return Process(pid, started, (user_ticks + system_ticks) / _TICKS_PER_S, rss_pages * _PAGE_BYTES)


@dataclass
class Usage:
    """One task's processes.

    Without `group_cpu_s` the CPU time is a lower bound: it misses what a process used after its last sample.

    Attributes:
        pids: lists the living processes.
        group_memory_bytes, group_cpu_s: what the task's group is charged with; None if it has no group.
        cpus: the CPUs that it may use.
        seen: all processes that were ever seen.
        reasons: for each field without a value, the last reason for it.
    """

    pids: Callable[[], Sequence[int]]
    group_memory_bytes: Callable[[], int | None] | None = None
    group_cpu_s: Callable[[], float | None] | None = None
    cpus: Collection[int] = ()
    seen: set[int] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    _cpu_s: dict[tuple[int, int], float] = field(default_factory=dict)

    def sample(self, processors: Mapping[int, steal.ProcessorTime]) -> TenantSample:
        """Take a sample of the processes.

        Args:
            processors: the times of all CPUs, by `steal.processor_times`; empty if the kernel does not report them.
        """
        now_s = time.monotonic()
        pids = self._ask("processes", self.pids) or ()
        self.seen.update(pids)
        alive = [process for pid in pids if (process := look(pid))]
        self._cpu_s.update({(p.pid, p.started_ticks): p.cpu_s for p in alive})
        if not alive:
            self.reasons.setdefault("rss_bytes", "no process of the task was there")
        times = steal.together(processors, self.cpus)
        if times is None:
            self.reasons["cpus_busy_s"] = self.reasons["cpus_stolen_s"] = "the kernel does not report CPU times"
        return TenantSample(
            monotonic_s=now_s,
            processes=len(alive),
            cpu_s=self._ask("cpu_s", self.group_cpu_s) if self.group_cpu_s else sum(self._cpu_s.values()),
            rss_bytes=sum(p.rss_bytes for p in alive) if alive else None,
            group_memory_bytes=self._ask("group_memory_bytes", self.group_memory_bytes),
            cpus_busy_s=times.busy_s if times else None,
            cpus_stolen_s=times.stolen_s if times else None,
        )

    def _ask(self, what: str, asked: Callable[[], T | None] | None) -> T | None:
        if asked is None:
            self.reasons[what] = "the task has no group of its own"
            return None
        try:
            answer = asked()
        except (OSError, psutil.Error) as error:
            self.reasons[what] = str(error) or type(error).__name__
            return None
        if answer is None:
            self.reasons[what] = "the group does not report it"
        return answer
