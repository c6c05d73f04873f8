"""A run folder as rows, one a planned task with its outcome. A crash may have left the folder in any state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from benchsuite.describe.names import wave_name
from benchsuite.describe.tasks import Job, Task
from benchsuite.errors import ResultError
from benchsuite.records import Machine, Result, Run, TaskMachine
from benchsuite.report.measure.window import Window, task_window
from benchsuite.rundir import Attempt, RunDir, read_record, results

T = TypeVar("T")
# A task's outcome: a result's status, or one of these.
NOT_RUN = "not run"
RUNNING = "running"
INSUFFICIENT = "insufficient"
# Without an outcome yet: the run in progress, or `jobs --resume`, runs such tasks.
OPEN = frozenset({NOT_RUN, RUNNING, "interrupted"})


@dataclass(frozen=True)
class Row:
    """One task and its outcome; `reason` says why `status` is not ok."""

    task: Task
    status: str
    reason: str | None = None
    result: Result | None = None
    file: Path | None = None
    window: Window | None = None

    @property
    def perf(self) -> float | None:
        """Items/s in the window over the task's `per`; None unless ok."""
        if self.status != "ok" or self.window is None or self.window.perf is None:
            return None
        return self.window.perf / self.task.per


@dataclass(frozen=True)
class Loaded:
    """The content of a results folder.

    Attributes:
        planned: the rows are the tasks of plan.json; false: there is no plan, and each result found makes a row.
        bad_files: each file that does not count, with the reason.
        in_progress: a run was writing to the folder when the reading began.
        kept: every result except reruns, whether a row counts it or not.
        machines: those that the run records, else those that its results hold.
    """

    path: Path
    run: Run | None
    planned: bool
    rows: tuple[Row, ...]
    reruns: tuple[Row, ...]
    bad_files: tuple[tuple[Path, str], ...]
    in_progress: bool = False
    kept: tuple[tuple[Path, Result], ...] = ()
    trainings: tuple[Row, ...] = ()
    machines: tuple[Machine, ...] = ()


_TRACED = "a profiler was at work, so the rate enters no report; read its file with 'benchsuite trace --read FILE'"


@dataclass
class _Found:
    results: list[tuple[Path, Result]] = field(default_factory=list)
    reruns: list[tuple[Path, Result]] = field(default_factory=list)
    bad: dict[Path, str] = field(default_factory=dict)


def load(path: Path) -> Loaded:
    """Read a results folder.

    Raises:
        ResultError: no such folder, nothing in it, or it holds several runs.
    """
    found, folder = _Found(), RunDir(path)
    # A run in progress writes a result first, and then notes the end of its attempt. Reading goes the other way round,
    # so that every attempt that has ended has its result.
    in_progress = folder.in_progress()
    run = _own(path / "run.json", folder.run, found)
    tasks = _own(path / "plan.json", lambda: _compact(folder.plan().tasks), found)
    if tasks and all(task.trace for task in tasks):
        raise ResultError(f"{path}: {_TRACED}, such as {path}/logs/*.trace.json.gz")
    attempts = _own(path / "attempts.jsonl", folder.attempts, found) or []
    _find(path, found, {task.id: task for task in tasks or ()})
    every = _found_rows(found) if tasks is None else _planned_rows(tasks, attempts, found, in_progress)
    rows = [row for row in every if not row.task.job.by_epochs]
    trainings = tuple(row for row in every if row.task.job.by_epochs)
    reruns = tuple(row_of(file, result) for file, result in found.reruns)
    if not every and not reruns and not found.bad:
        raise ResultError(f"{path}: no results in this folder; name the folder that 'benchsuite jobs' wrote")
    bad_files = tuple(sorted(found.bad.items()))
    kept = tuple(found.results)
    machines = run.machines if run else _held(result for _, result in (*found.results, *found.reruns))
    planned = tasks is not None
    return Loaded(path, run, planned, tuple(rows), reruns, bad_files, in_progress, kept, trainings, machines)


def load_file(path: Path) -> Loaded:
    """Read the file of one result. A rerun counts as the task that it is.

    Its machine is the one that it holds, else that of the run.json beside it if the result names the same facts.

    Raises:
        ResultError: the file cannot be read, or is no result.
    """
    result = read_record(path, Result)
    if result.task.trace:
        raise ResultError(f"{path}: {_TRACED}")
    machines = _held([result]) or _beside(path, result)
    row, kept = row_of(path, result), ((path, result),)
    if result.task.job.by_epochs:
        return Loaded(path, None, False, (), (), (), kept=kept, trainings=(row,), machines=machines)
    return Loaded(path, None, False, (row,), (), (), kept=kept, machines=machines)


def _held(results: Iterable[Result]) -> tuple[Machine, ...]:
    """The machines whose facts the results hold, each host once."""
    facts = (result.machine.facts for result in results)
    return tuple({machine.host: machine for machine in facts if machine}.values())


def _beside(path: Path, result: Result) -> tuple[Machine, ...]:
    """The machine in the run.json beside a result; empty if there is none, or it is another than the result names."""
    try:
        machine = RunDir(path.parent).run().machine
    except (ResultError, OSError, ValueError):
        return ()
    return (machine,) if machine.sha256 == result.machine.facts_sha256 else ()


def _find(path: Path, found: _Found, planned: Mapping[str, Task]) -> None:
    runs = sorted(p.parent for p in path.glob("*/run.json"))
    if runs and not (path / "run.json").exists():
        raise ResultError(f"{path}: holds {len(runs)} runs; name one of them, such as {runs[-1]}")
    machines: dict[str, TaskMachine] = {}
    for file, result in results(path):
        if isinstance(result, str):
            found.bad[file] = result
        else:
            kept = found.reruns if result.task.rerun_of else found.results
            kept.append((file, _sharing(result, planned, machines)))


def _compact(tasks: Iterable[Task]) -> list[Task]:
    """The same tasks; tasks with equal jobs share one object."""
    jobs: dict[str, Job] = {}
    found = []
    for task in tasks:
        job = jobs.setdefault(task.cell, task.job)
        found.append(msgspec.structs.replace(task, job=job) if job == task.job else task)
    return found


def _sharing(result: Result, planned: Mapping[str, Task], machines: dict[str, TaskMachine]) -> Result:
    """The same result, with an equal task of the plan and an equal machine of an earlier result in place of its own.

    Thousands of results then take a quarter less memory.
    """
    own, device = result.machine, result.machine.gpus[0].uuid if result.machine.gpus else ""
    machine = machines.setdefault(device, own)
    task = planned.get(result.task.id)
    return msgspec.structs.replace(
        result,
        task=task if task == result.task and task is not None else result.task,
        machine=machine if machine == own else own,
    )


def _own(file: Path, read: Callable[[], T], found: _Found) -> T | None:
    """The content of one of the run's own files; None if `file` is missing, or damaged and added to `found.bad`."""
    if not file.exists():
        return None
    try:
        return read()
    except ResultError as error:
        found.bad[file] = str(error).removeprefix(f"{file}: ")
    except OSError as error:
        found.bad[file] = f"cannot be read: {(error.strerror or str(error)).lower()}"
    except ValueError as error:
        found.bad[file] = str(error)
    return None


def _planned_rows(tasks: Sequence[Task], attempts: Iterable[Attempt], found: _Found, in_progress: bool) -> list[Row]:
    """One row a planned task: the first attempt that was not interrupted counts."""
    ids = {task.id for task in tasks}
    lines: dict[str, list[Attempt]] = defaultdict(list)
    for line in attempts:
        lines[line.task].append(line)
    noted = {line.result for of in lines.values() for line in of if line.event == "end" and line.result}
    by_attempt: dict[str, dict[int, tuple[Path, Result]]] = defaultdict(dict)
    # Results that attempts.jsonl names come first, so that a stray file of the same attempt does not displace them.
    for file, result in sorted(found.results, key=lambda kept: kept[0].name not in noted):
        task, attempt = result.task.id, result.identity.attempt
        if task not in ids:
            found.bad[file] = f"its task '{task}' is not in plan.json"
        elif attempt in by_attempt[task]:
            found.bad[file] = f"a second result of '{task}'; {by_attempt[task][attempt][0].name} counts"
        else:
            by_attempt[task][attempt] = (file, result)
    return [_planned_row(task, by_attempt[task.id], lines[task.id], found.bad, in_progress) for task in tasks]


def _planned_row(
    task: Task,
    by_attempt: dict[int, tuple[Path, Result]],
    lines: list[Attempt],
    bad: dict[Path, str],
    in_progress: bool,
) -> Row:
    ends = {line.attempt: line for line in lines if line.event == "end"}
    started = {line.attempt for line in lines if line.event != "prepare"}
    last = Row(task, NOT_RUN, "not started yet" if in_progress else "never started")
    for attempt in sorted(started | by_attempt.keys()):
        if attempt in by_attempt:
            last = row_of(*by_attempt[attempt])
        elif attempt in ends and ends[attempt].status != "interrupted":
            last = Row(task, "lost", _why_lost(ends[attempt], bad))
        elif in_progress and attempt == max(started) and attempt not in ends:
            last = Row(task, RUNNING, "started, not ended yet")
        else:
            last = Row(task, "interrupted", "started, but no end is noted")
        if last.status != "interrupted":
            break
    return last


def _why_lost(end: Attempt, bad: dict[Path, str]) -> str:
    name = Path(end.result).name if end.result else ""
    reason = next((why for file, why in bad.items() if file.name == name), None)
    if reason:
        return f"its result {name} is damaged: {reason}"
    return f"its result {name} is missing" if name else "ended without a result"


def _found_rows(found: _Found) -> list[Row]:
    """Without a plan, one row a task of a host. Two results of the same attempt come from two runs: the second run's
    repeats are counted on from the first run's. A copy of a result does not count."""
    same_attempt: dict[tuple[str, str, int], list[tuple[Path, Result]]] = defaultdict(list)
    runs: dict[tuple[str, str, int], dict[int, Row]] = defaultdict(dict)
    for file, result in found.results:
        host, task, attempt = result.identity.host, result.task.id, result.identity.attempt
        earlier = same_attempt[host, task, attempt]
        if copied := [name for name, other in earlier if other == result]:
            found.bad[file] = f"a copy of {copied[0].name}, which counts"
            continue
        runs[host, task, len(earlier)][attempt] = row_of(file, result)
        earlier.append((file, result))
    repeats = max((result.task.repeat for _, result in found.results), default=0) + 1
    rows = []
    for (_, _, nth), by_attempt in runs.items():
        in_order = [row for _, row in sorted(by_attempt.items())]
        row = next((row for row in in_order if row.status != "interrupted"), in_order[-1])
        if nth:
            repeat = row.task.repeat + nth * repeats
            wave = wave_name(row.task.row, repeat)
            row = replace(row, task=msgspec.structs.replace(row.task, repeat=repeat, wave=wave))
        rows.append(row)
    return sorted(rows, key=lambda row: (row.task.cell, row.task.ranks, row.task.repeat))


def row_of(file: Path | None, result: Result) -> Row:
    """A result as a row.

    Args:
        file: the file that holds it.
    """
    if result.status != "ok":
        reason = result.error.words if result.error else f"the task is {result.status}"
        return Row(result.task, result.status, reason, result, file)
    if result.task.job.by_epochs:
        return Row(result.task, result.status, None, result, file)
    try:
        window = task_window(result)
    except ArithmeticError:
        return Row(result.task, INSUFFICIENT, "its slices hold numbers beyond any measurement", result, file)
    status = "ok" if window.state == "ok" else INSUFFICIENT
    return Row(result.task, status, window.reason, result, file, window)
