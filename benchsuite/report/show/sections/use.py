"""How a run used its GPUs, and how much heat or the hardware slowed it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from benchsuite.report.format import NONE, count, number, one_line, percent, share, whole
from benchsuite.report.read.summary import JobSummary, Summary, TaskSummary
from benchsuite.report.read.use import StdParts, Use
from benchsuite.report.show.document import Cell, Column, Section, table
from benchsuite.telemetry import CAPPED, SLOWING

_LEGEND = (
    "Means over ok tasks while measured. util: any kernel runs. GiB: peak of one GPU. items/J: rate / power of all "
    "GPUs. capped: at the power limit (normal). throttled: share of the time under heat or hardware slow-down. std% in "
    "parts (GPUs, repeats, rest): their squares add up."
)


# The figures of which at least one is known if a job's GPUs were watched.
_WATCHED = ("gpu_percent", "power_w", "clock_events", "sm_clock_mhz")


@dataclass(frozen=True)
class _Used:
    """A job whose GPUs were watched."""

    name: str
    use: Use
    parts: StdParts


_USE_COLUMNS: tuple[Column[_Used], ...] = (
    Column("job", lambda job: job.name),
    Column("util %", lambda job: job.use.gpu_percent, whole, right=True, rank=1, optional=True),
    Column("SM %", lambda job: job.use.sm_percent, whole, right=True, rank=4, optional=True),
    Column("tensor %", lambda job: job.use.tensor_percent, whole, right=True, rank=5, optional=True),
    Column("GiB", lambda job: _gib(job.use), number, right=True, rank=2, optional=True),
    Column("W/GPU", lambda job: job.use.power_w, whole, right=True, rank=3, optional=True),
    Column("items/J", lambda job: job.use.items_per_joule, number, right=True, rank=6, optional=True),
    Column("capped %", lambda job: _capped(job.use), share, right=True, rank=8, optional=True),
    Column("throttled", lambda job: _throttled(job.use), prose=True),
    Column("std% GPUs", lambda job: job.parts.gpus, share, right=True, rank=7, optional=True),
    Column("repeats", lambda job: job.parts.repeats, share, right=True, rank=9, optional=True),
    Column("rest", lambda job: job.parts.rest, share, right=True, rank=10, optional=True),
)
_SLOWED_COLUMNS: tuple[Column[JobSummary], ...] = (
    Column("job", lambda job: job.name),
    Column("perf", lambda job: job.perf, number, right=True),
    Column("without", lambda job: job.perf_unthrottled, number, right=True),
    Column("unit", lambda job: f"{job.unit}/s" if job.unit else NONE, rank=1),
    Column("tasks", lambda job: _slowed_of_ok(job), right=True, rank=2),
    Column("why not", lambda job: _why_not(job), prose=True),
)


def use_section(summary: Summary) -> Section | None:
    """The jobs whose GPUs were watched; None without such a job."""
    used = [_Used(job.name, job.use, job.std_parts or StdParts()) for job in summary.jobs if job.use]
    watched = [job for job in used if any(getattr(job.use, field) is not None for field in _WATCHED)]
    return Section("Use of the GPUs", (table(_USE_COLUMNS, watched, _LEGEND),)) if watched else None


def slowed_section(summary: Summary) -> Section | None:
    """Perf with and without the slowed slices; None if no slice was slowed."""
    jobs = [job for job in summary.jobs if _slowed(job)]
    title = "Slowed by heat or hardware (perf as delivered, and without)"
    return Section(title, (table(_SLOWED_COLUMNS, jobs),)) if jobs else None


def _gib(use: Use) -> float | None:
    return None if use.device_reserved_bytes is None else use.device_reserved_bytes / 2**30


def _capped(use: Use) -> float | None:
    return None if use.clock_events is None else use.clock_events.get(CAPPED, 0.0)


def _throttled(use: Use) -> str:
    """Each cause with its share of the time, worst first. One cause may imply another, so shares are not added up."""
    if use.clock_events is None:
        return NONE
    found = sorted(((use.clock_events.get(cause, 0.0), cause) for cause in SLOWING), reverse=True)
    return ", ".join(f"{cause} {percent(part)}" for part, cause in found if part > 0) or "none"


def _slowed(job: JobSummary) -> list[TaskSummary]:
    return [task for task in job.tasks if task.perf_unthrottled is not None or task.unthrottled_reason]


def _slowed_of_ok(job: JobSummary) -> Cell:
    slowed = len(_slowed(job))
    return Cell(f"{slowed} of {sum(task.status == 'ok' for task in job.tasks)}", slowed)


def _why_not(job: JobSummary) -> str:
    reasons = Counter(one_line(task.unthrottled_reason) for task in _slowed(job) if task.unthrottled_reason)
    return "; ".join(f"{why} ({count(n, 'task')})" for why, n in reasons.items())
