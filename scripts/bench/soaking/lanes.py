"""The lanes of a soak: how each of them disturbs its runs while they go on."""

from __future__ import annotations

import errno
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from soaking import checks
from soaking.faults import MARK, task_of
from soaking.runs import ERRORS, HANGS, LOST, Lane, until

RUN_LIMIT_S = 3600.0
STOP_LIMIT_S = 60.0
STOPS = 8


def undisturbed(lane: Lane, chance: random.Random) -> list[str]:
    """One process lives through all tasks, while workers are killed from outside and GPUs are lost."""
    watch = lane.start()
    over = threading.Event()
    killer = threading.Thread(target=_kill_workers, args=(lane, chance, over))
    killer.start()
    try:
        code = watch.ended(RUN_LIMIT_S)
    finally:
        over.set()
        killer.join()
    return [*_last_word(lane, code), *(_nvml_notes(lane) if lane.gpus else ()), *checks.problems_of(lane)]


def _kill_workers(lane: Lane, chance: random.Random, over: threading.Event) -> None:
    """SIGKILL to a worker at random moments; `lane.killed` has their tasks."""
    while not over.wait(chance.uniform(3.0, 12.0)):
        workers = [p for p in checks.living(lane.token) if _task(p)]
        if workers:
            victim = chance.choice(workers)
            lane.killed.add(_task(victim) or "")
            try:
                victim.kill()
            except psutil.Error:
                continue


def _task(process: psutil.Process) -> str | None:
    """The task whose worker this process is; None if it is none."""
    try:
        if any("benchsuite.worker" in word for word in process.cmdline()):
            return task_of(process.environ().get(MARK, ""))
    except (psutil.Error, OSError):
        pass
    return None


def _nvml_notes(lane: Lane) -> Iterator[str]:
    """The run says that a GPU is lost, that one gives no answers, and that one hangs."""
    said = lane.said()
    if lane.results() < 200:
        return  # the run may be over before the GPUs go wrong
    for gpu, words in ((LOST, "it is no longer watched"), (ERRORS, "queries have answers again"), (HANGS, "stopped")):
        if not any(f"GPU {gpu} (" in line and words in line for line in said.splitlines()):
            yield f"{lane.name}: nothing on stderr says '{words}' of GPU {gpu}"


def stopped(lane: Lane, chance: random.Random) -> list[str]:
    """The run is ended by a signal again and again, and continued; others try to use its folder meanwhile."""
    found: list[str] = []
    for stop in range(STOPS):
        before = lane.results()
        watch = lane.start()
        if stop % 3:  # else among its first steps
            until(lambda: watch.process.poll() is not None or lane.results() > before, 120)  # noqa: B023
            time.sleep(chance.uniform(0.0, 10.0))
            found += _refused(lane)
        else:
            time.sleep(chance.uniform(0.0, 4.0))
        signum = chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        if watch.process.poll() is None:
            watch.process.send_signal(signum)
        code = watch.ended(STOP_LIMIT_S)
        if code not in (0, 1, -signum, 128 + signum):
            found.append(f"{lane.name}: {signum.name} gives exit status {code}")
        if signum != signal.SIGKILL:
            found += [f"{lane.name}, after {signum.name}: {line}" for line in checks.left_behind(lane, at_end=False)]
    return [*found, *_last_word(lane, lane.start().ended(RUN_LIMIT_S)), *checks.problems_of(lane)]


def _refused(lane: Lane) -> Iterator[str]:
    """A second run in the same folder, and its continuation, are refused while the first goes on."""
    for words in (["jobs", str(lane.profile), "-o", str(lane.out)], ["jobs", "--resume", str(lane.out)]):
        second = lane.once(*words)
        # The first run may have ended by now.
        if second.returncode != 2 and lane.watches[-1].process.poll() is None:
            yield f"{lane.name}: a second run in its folder exits with {second.returncode}: {second.stderr[-200:]}"


def full_disk(lane: Lane, chance: random.Random) -> list[str]:
    """The disk with the run's folder is full for a while, again and again; then the run is continued."""
    found: list[str] = []
    watch = lane.start()
    filler = lane.out.parent / checks.FILLER
    while watch.process.poll() is None:
        _wait(watch.process.poll, chance.uniform(2.0, 10.0))
        fill(filler)
        _wait(watch.process.poll, chance.uniform(1.0, 6.0))
        filler.unlink(missing_ok=True)
    code = watch.ended(STOP_LIMIT_S)
    if code not in (0, 1):
        found.append(f"{lane.name}: with a full disk the run exits with {code}")
    found += [f"{lane.name}, before it is continued: {line}" for line in checks.left_behind(lane)]
    return [
        *found,
        *_last_word(lane, lane.start().ended(RUN_LIMIT_S)),
        *checks.problems_of(lane, disk_was_full=True),
    ]


def _wait(ended: Callable[[], int | None], seconds: float) -> None:
    until(lambda: ended() is not None, seconds)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def _last_word(lane: Lane, code: int | None) -> Iterator[str]:
    """A run that came to its end by itself exits with 0 or 1, since tasks failed."""
    if code not in (0, 1):
        yield f"{lane.name}: the run ended with {code}: {lane.said()[-300:]}"
