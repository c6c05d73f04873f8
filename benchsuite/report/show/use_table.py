"""How a run used its GPUs, as a table, and what heat or the hardware took from it."""

from __future__ import annotations

import itertools
from collections import Counter

from rich.console import RenderableType
from rich.text import Text

from benchsuite.report.read.summary import JobSummary, StdParts, Summary, Use
from benchsuite.report.show.format import NONE, count, number, one_line, percent, share
from benchsuite.report.show.tables import Column, fitted
from benchsuite.telemetry import CAPPED, SLOWING

_COLUMNS = (
    Column("job"),
    Column("util %", right=True, rank=1),
    Column("SM %", right=True, rank=4),
    Column("tensor %", right=True, rank=5),
    Column("GiB", right=True, rank=2),
    Column("W/GPU", right=True, rank=3),
    Column("items/J", right=True, rank=6),
    Column("capped %", right=True, rank=8),
    Column("throttled", prose=True),
    Column("std% GPUs", right=True, rank=7),
    Column("repeats", right=True, rank=9),
    Column("rest", right=True, rank=10),
)
_ALWAYS = frozenset({"job", "throttled"})
_LEGEND = (
    "Means over ok tasks while measured. util: any kernel runs. GiB: peak of one GPU. items/J: rate / power of all "
    "GPUs. capped: at the power limit (normal). throttled: share of the time under heat or hardware slow-down. std% in "
    "parts (GPUs, repeats, rest): their squares add up."
)
_SLOWED_COLUMNS = (
    Column("job"),
    Column("perf", right=True),
    Column("without", right=True),
    Column("unit", rank=1),
    Column("tasks", right=True, rank=2),
    Column("why not", prose=True),
)


def use_table(summary: Summary, width: int) -> list[RenderableType]:
    """Nothing where no GPU was watched."""
    used = [(job, job.use) for job in summary.jobs if job.use and _watched(job.use)]
    if not used:
        return []
    rows = [_cells(job, use, job.std_parts or StdParts()) for job, use in used]
    told = [column.name in _ALWAYS or any(row[place] != NONE for row in rows) for place, column in enumerate(_COLUMNS)]
    columns = list(itertools.compress(_COLUMNS, told))
    table, without = fitted(columns, [list(itertools.compress(row, told)) for row in rows], width)
    left_out = f" Not shown for want of width: {', '.join(without)}." if without else ""
    return [table, Text(_LEGEND + left_out, style="dim")]


def slowed_table(summary: Summary, width: int) -> list[RenderableType]:
    """Perf as delivered, beside perf without the slices that were slowed; nothing where none was."""
    rows = [row for job in summary.jobs if (row := _slowed(job))]
    return [fitted(_SLOWED_COLUMNS, rows, width)[0]] if rows else []


def _watched(use: Use) -> bool:
    return any(value is not None for value in (use.gpu_percent, use.power_w, use.clock_events, use.sm_clock_mhz))


def _cells(job: JobSummary, use: Use, parts: StdParts) -> list[str]:
    reserved = use.device_reserved_bytes
    return [
        job.name,
        _whole(use.gpu_percent),
        _whole(use.sm_percent),
        _whole(use.tensor_percent),
        number(reserved / 2**30) if reserved is not None else NONE,
        _whole(use.power_w),
        number(use.items_per_joule),
        NONE if use.clock_events is None else share(use.clock_events.get(CAPPED, 0.0)),
        throttled(use),
        share(parts.gpus),
        share(parts.repeats),
        share(parts.rest),
    ]


def throttled(use: Use) -> str:
    """Cause and share of the time, worst first; a cause may imply another, so they are not added up."""
    if use.clock_events is None:
        return NONE
    found = sorted(((use.clock_events.get(cause, 0.0), cause) for cause in SLOWING), reverse=True)
    return ", ".join(f"{cause} {percent(part)}" for part, cause in found if part > 0) or "none"


def _whole(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _slowed(job: JobSummary) -> list[str] | None:
    slowed = [task for task in job.tasks if task.perf_unthrottled is not None or task.unthrottled_reason]
    if not slowed:
        return None
    ok = sum(task.status == "ok" for task in job.tasks)
    unit = f"{job.unit}/s" if job.unit else NONE
    reasons = Counter(one_line(task.unthrottled_reason) for task in slowed if task.unthrottled_reason)
    figures = [number(job.perf), number(job.perf_unthrottled), unit, f"{len(slowed)} of {ok}"]
    return [job.name, *figures, "; ".join(f"{why} ({count(n, 'task')})" for why, n in reasons.items())]
