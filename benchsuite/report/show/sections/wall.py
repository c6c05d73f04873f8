"""What the wall time of a run went to: a row for each job, and one for the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchsuite.report.format import NONE, count, percent
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Section, sentence, table
from benchsuite.report.show.sections.origin import took

_LEGEND = (
    "Seconds of a task, mean over the tasks of a job. preload: a process that imports torch, from which later workers "
    "are forked; the first task of a repeat waits for it. start: the process, its interpreter, and the worker's own "
    "imports, or a fork. imports: torch and the model's module. build: the GPU's context, the model, its way to the "
    "device, the optimiser, the data. first step: compilation included. wait: for neighbours, before and after. after: "
    "the cost of measuring, recordings, checks, the count of FLOPs. The last row is the wall time of the run: an "
    "instant is measured if any task measures, and otherwise belongs to the task that is least advanced."
)


@dataclass(frozen=True)
class _Took:
    name: str
    tasks: int
    seconds: float
    phases: Mapping[str, float]


def _group(title: str, *names: str, rank: int = 0) -> Column[_Took]:
    """A column that adds up phases; it is left out if no row has any of them."""

    def of(row: _Took) -> Cell:
        seconds = math.fsum(row.phases.get(name, 0.0) for name in names)
        return Cell(f"{seconds:.1f}", seconds) if any(name in row.phases for name in names) else Cell(NONE)

    return Column(title, of, right=True, rank=rank, optional=True)


_COLUMNS: tuple[Column[_Took], ...] = (
    Column("job", lambda row: row.name),
    Column("tasks", lambda row: row.tasks, right=True, rank=3),
    Column("s", lambda row: row.seconds, lambda seconds: f"{seconds:.1f}", right=True),
    _group("preload", "preload", rank=2),
    _group("start-up", "start-up"),
    _group("start", "interpreter", "fork", rank=2),
    _group("imports", "imports", rank=2),
    _group("build", "device", "meet ranks", "build", "to device", "data", rank=2),
    _group("first step", "check precision", "first step", rank=2),
    _group("warm-up", "warm-up", rank=2),
    _group("wait", "wait", "hold", rank=3),
    _group("measure", "measure"),
    _group("after", "cost of measuring", "recordings", "checks", "count FLOPs", rank=2),
    _group("exit", "exit", rank=3),
    _group("other", "other", rank=4),
    _group("between", "between tasks", rank=3),
    Column(
        "measured %", lambda row: row.phases.get("measure", 0.0) / row.seconds, lambda part: f"{100 * part:.0f}", True
    ),
)


def _measured(row: _Took) -> float:
    return row.phases.get("measure", 0.0) / row.seconds


def wall_section(summary: Summary) -> Section | None:
    """What the wall time went to; None if the times are not recorded."""
    wall = summary.wall
    if wall is None or not wall.seconds:
        return None
    rows = [_Took(job.name, job.tasks, job.seconds, job.phases) for job in wall.jobs if job.seconds]
    tasks = sum(job.tasks for job in wall.jobs)
    rows.append(_Took("wall time", tasks, wall.seconds, wall.phases))
    words = f"{percent(wall.measured)} of {took(wall.seconds)} of wall time is measured. {_workers(tasks, wall.forked)}"
    return Section("Where the time went", (sentence(words), table(_COLUMNS, rows, _LEGEND)))


def _workers(tasks: int, forked: int) -> str:
    anew = f"{count(tasks - forked, 'worker')} started anew"
    if not forked:
        return f"{anew}."
    return f"{count(forked, 'worker')} forked from a preloaded process{f', {anew}' if tasks > forked else ''}."
