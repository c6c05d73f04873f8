"""What must hold after a run of a soak, each breach in a line."""

from __future__ import annotations

import os
import signal
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchsuite.describe.tasks import Task
from benchsuite.records import Result
from benchsuite.rundir import RunDir, results
from soaking.faults import FAULTS, TOKEN, drawn
from soaking.runs import Lane

FILLER = "filler"
CGROUPS = Path("/sys/fs/cgroup")


def problems_of(lane: Lane, *, disk_was_full: bool = False) -> list[str]:
    """All that is wrong with a lane that has come to its end.

    Args:
        disk_was_full: a task may also have failed for want of room.
    """
    found = [
        *_results(lane, disk_was_full),
        *_readable(lane),
        *left_behind(lane),
        *(f"zombie {pid} of process {w.process.pid}" for w in lane.watches for pid in sorted(w.zombies)),
    ]
    found += [f"a traceback on stderr: {lane.home / 'jobs.err'}: {last}" for last in _tracebacks(lane.said())]
    return [f"{lane.name}: {line}" for line in found]


def _tracebacks(said: str) -> Iterator[str]:
    """The last line of each traceback, except of a SIGINT that Python gets before benchsuite is loaded."""
    for block in said.split("Traceback (most recent call last):\n")[1:]:
        last = next((line for line in block.splitlines() if not line.startswith(" ")), "")
        if last != "KeyboardInterrupt" or ", in main\n" in block:
            yield last


def counted(lane: Lane) -> dict[str, Result]:
    """Task -> the result that counts: that of the first attempt that was not interrupted."""
    found: dict[str, Result] = {}
    for _, result in results(lane.out):
        if isinstance(result, Result) and result.status != "interrupted":
            other = found.setdefault(result.task.id, result)
            if result.identity.attempt < other.identity.attempt:
                found[result.task.id] = result
    return found


def fault_of(task: Task, lane: Lane) -> str:
    return drawn(task.id, lane.seed, task.job.params["faults"])[0]


def faults_drawn(lane: Lane) -> Counter[str]:
    """How many tasks drew each fault."""
    return Counter(fault_of(task, lane) for task in RunDir(lane.out).plan().tasks)


def _results(lane: Lane, disk_was_full: bool) -> Iterator[str]:
    """Each planned task has a result that counts, with the status of its fault, and each attempt at most one."""
    rundir, found = RunDir(lane.out), counted(lane)
    planned = rundir.plan().tasks
    if len(planned) != lane.repeats * lane.tasks_per_repeat:
        yield f"{len(planned)} tasks are planned"
    attempts = Counter()
    for file, result in results(lane.out):
        if isinstance(result, Result):
            attempts[result.task.id, result.identity.attempt] += 1
        else:
            yield f"{file}: {result}"
    yield from (f"{task}, attempt {attempt}: {n} results" for (task, attempt), n in attempts.items() if n > 1)
    for task in planned:
        if task.id in found:
            yield from _status(task, found[task.id], lane, disk_was_full)
        else:
            yield f"{task.id}: no result"
    ends = Counter((line.task, line.attempt) for line in rundir.attempts() if line.event == "end")
    yield from (f"{task}, attempt {attempt}: {n} ends are noted" for (task, attempt), n in ends.items() if n > 1)
    starts = {(line.task, line.attempt) for line in rundir.attempts() if line.event == "start"}
    yield from (f"{task}, attempt {attempt}: no end is noted" for task, attempt in sorted(starts - ends.keys()))


def _status(task: Task, result: Result, lane: Lane, disk_was_full: bool) -> Iterator[str]:
    name, at = drawn(task.id, lane.seed, task.job.params["faults"])
    fault = FAULTS[name]
    got = (result.status, result.error.kind if result.error else None)
    expected = {(fault.status, fault.kind)}
    if task.id in lane.killed:
        expected.add(("killed", "SIGKILL"))
    if got in expected or (disk_was_full and result.status == "failed"):
        return
    message = result.error.message if result.error else ""
    yield f"{task.id}: fault '{name}' at step {at} gave {got} instead of {sorted(expected, key=str)}: {message[:200]}"


def _readable(lane: Lane) -> Iterator[str]:
    """`verify` finds nothing BAD, and `report` works."""
    verify = lane.once("verify", str(lane.out))
    if "BAD" in verify.stdout or verify.returncode != 0:
        bad = [line for line in verify.stdout.splitlines() if "BAD" in line]
        yield f"verify exits with {verify.returncode}: {'; '.join(bad)[:300]} {verify.stderr[-300:]}"
    # No task is long enough for a number, so that the report's exit status is 1.
    report = lane.once("report", str(lane.out))
    if report.returncode not in (0, 1) or "Traceback" in report.stderr or not report.stdout.strip():
        yield f"report exits with {report.returncode}: {report.stderr[-300:]}"


def left_behind(lane: Lane, *, at_end: bool = True) -> Iterator[str]:
    """Processes, groups and files that a lane left, now that none of its runs is alive.

    Args:
        at_end: also what runs left that were killed; the next run ends it.
    """
    for process in living(lane.token):
        try:
            yield f"process {process.pid} is left: {' '.join(process.cmdline())[:100]}"
        except psutil.Error:
            continue
    watches = [watch for watch in lane.watches if at_end or watch.process.returncode != -signal.SIGKILL]
    runs = tuple(f"benchsuite-{watch.process.pid}-" for watch in watches)
    for folder, names, _ in os.walk(CGROUPS):
        yield from (f"control group {folder}/{name} is left" for name in names if name.startswith(runs))
    yield from (f"temporary file {path} is left" for path in lane.tmp.iterdir() if path.name != FILLER)
    yield from (f"{path} is left in /dev/shm" for path in Path("/dev/shm").iterdir() if "benchsuite" in path.name)
    for folder, _, names in os.walk(lane.out):
        for path in (Path(folder, name) for name in names):
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) or path.name.endswith(".tmp"):
                yield f"{path} is left: {stat.filemode(mode)}"


def living(token: str) -> list[psutil.Process]:
    """The processes with this token in their environment or command line; not this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(TOKEN) == token or token in process.cmdline():
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
