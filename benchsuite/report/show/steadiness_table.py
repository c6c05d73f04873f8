"""The tasks whose window is not steady, with what makes it so."""

from __future__ import annotations

from rich.console import RenderableType

from benchsuite.report.read.summary import Summary, TaskSummary
from benchsuite.report.show.format import NONE, one_line, percent
from benchsuite.report.show.tables import Column, fitted

_COLUMNS = (
    Column("task"),
    Column("device", rank=1),
    Column("spread", right=True),
    Column("drift per 10 s", right=True, rank=4),
    Column("slices", right=True, rank=3),
    Column("seconds", right=True, rank=2),
    Column("why", prose=True),
)


def unsteady_table(summary: Summary, width: int) -> list[RenderableType]:
    """Nothing where all are steady."""
    tasks = [task for job in summary.jobs for task in job.tasks if task.status == "ok" and task.steady is False]
    return [fitted(_COLUMNS, [_cells(task) for task in tasks], width)[0]] if tasks else []


def _cells(task: TaskSummary) -> list[str]:
    why = "; ".join(map(one_line, task.unsteady)) or NONE
    slices = [str(task.slices), f"{task.seconds:.1f}"]
    spread = _with_half(percent(task.spread), task.spread_half)
    drift = NONE if task.drift is None else _with_half(f"{100 * task.drift:+.1f} %", task.drift_half)
    return [task.id, task.device, spread, drift, *slices, why]


def _with_half(figure: str, half: float | None) -> str:
    return figure if half is None else f"{figure.removesuffix(' %')} ± {percent(half)}"
