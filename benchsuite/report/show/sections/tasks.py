"""Tasks that need a look: those that are not ok, and those whose window is not steady."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import Summary, TaskSummary
from benchsuite.report.show.document import Cell, Column, Section, sentence, table
from benchsuite.report.show.format import NONE, one_line, percent

# As many tasks that failed alike are named.
_NAMED = 8
_Alike = tuple[str, str, Sequence[TaskSummary]]

_FAILURE_COLUMNS: tuple[Column[_Alike], ...] = (
    Column("status", lambda alike: Cell(alike[0], alike[0], "bad")),
    Column("task", lambda alike: _names(alike[2]), prose=True),
    Column("why", lambda alike: alike[1], prose=True),
)
_UNSTEADY_COLUMNS: tuple[Column[TaskSummary], ...] = (
    Column("task", lambda task: task.id),
    Column("device", lambda task: task.device, rank=1),
    Column("spread", lambda task: _with_half(task.spread, percent(task.spread), task.spread_half), right=True),
    Column("drift per 10 s", lambda task: _drift(task), right=True, rank=4),
    Column("slices", lambda task: task.slices, right=True, rank=3),
    Column("seconds", lambda task: Cell(f"{task.seconds:.1f}", task.seconds), right=True, rank=2),
    Column("why", lambda task: "; ".join(map(one_line, task.unsteady)) or NONE, prose=True),
)


def failures_section(summary: Summary, logs: str | None) -> Section | None:
    """A row for each job, status and reason, and where the tasks' output is; None where all tasks are ok."""
    alike = list(_alike(summary))
    if not alike:
        return None
    kept = [sentence(f"All that the tasks printed: {logs}")] if logs else []
    return Section("Not ok", (table(_FAILURE_COLUMNS, alike), *kept))


def unsteady_section(summary: Summary) -> Section | None:
    """A row for each ok task whose window is not steady; None without any."""
    tasks = [task for job in summary.jobs for task in job.tasks if task.status == "ok" and task.steady is False]
    title = "Unsteady (the rate does not hold within the window)"
    return Section(title, (table(_UNSTEADY_COLUMNS, tasks),)) if tasks else None


def _alike(summary: Summary) -> Iterator[_Alike]:
    """Status, reason and tasks of all that is not ok. What a run in progress has still to run is no failure."""
    passed_over = {"ok", *OPEN} if summary.in_progress else {"ok"}
    for job in summary.jobs:
        alike: dict[tuple[str, str], list[TaskSummary]] = defaultdict(list)
        for task in job.tasks:
            if task.status not in passed_over:
                alike[task.status, one_line(task.reason)].append(task)
        for (status, reason), tasks in alike.items():
            yield status, reason, tasks


def _names(tasks: Sequence[TaskSummary]) -> str:
    """ "vae.J0.0 on GPU 0" for one task; "vae.J0.0 J0.1" for several, with the job's name once."""
    first = tasks[0]
    if len(tasks) == 1:
        return f"{first.id} on {first.device}"
    rest = [task.id.rpartition(".J")[2] for task in tasks[1:_NAMED]]
    more = [f"and {len(tasks) - _NAMED} more"] if len(tasks) > _NAMED else []
    return " ".join([first.id, *(f"J{name}" for name in rest), *more])


def _drift(task: TaskSummary) -> Cell:
    return _with_half(task.drift, NONE if task.drift is None else f"{100 * task.drift:+.1f} %", task.drift_half)


def _with_half(value: float | None, text: str, half: float | None) -> Cell:
    """A percentage, with the half width of its interval where there is one."""
    return Cell(text if value is None or half is None else f"{text.removesuffix(' %')} ± {percent(half)}", value)
