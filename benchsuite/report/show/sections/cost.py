"""What measuring costs each job, with its interval and a verdict."""

from __future__ import annotations

from benchsuite.report.format import NONE, number, percent
from benchsuite.report.read.cost import MOST, JobCost
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Section, Tone, table

_TONES: dict[str, Tone] = {"PASS": "good", "FAIL": "bad", "OPEN": "warn"}
_LEGEND = (
    "Time of measured steps over that of as many bare ones, minus 1, in one process, in turns; mean over rounds with "
    "its 95 % interval. Measured: slices, events, telemetry, the parent's words. Bare: the same loop with a sync at "
    f"its start and end. PASS: the whole interval is at most {percent(MOST)}. FAIL: all of it is above. OPEN: the "
    "interval is too wide; take more --rounds, or a quiet machine. CPU time: the same ratio of the worker's processor "
    "time, which other processes change less, but which leaves out telemetry."
)

_COLUMNS: tuple[Column[JobCost], ...] = (
    Column("job", lambda job: job.name),
    Column("rounds", lambda job: job.rounds, right=True, rank=2),
    Column("steps", lambda job: job.steps, lambda steps: f"{steps:,}", right=True, rank=3),
    Column("block s", lambda job: job.block_s, number, right=True, rank=3),
    Column("cost %", lambda job: job.cost, lambda cost: _percent(cost), right=True),
    Column("95 %", lambda job: _ends(job.low, job.high), right=True, rank=1),
    Column("of CPU time %", lambda job: job.cpu, lambda cost: _percent(cost), right=True, rank=4, optional=True),
    Column("95 % of it", lambda job: _ends(job.cpu_low, job.cpu_high), right=True, rank=4, optional=True),
    Column("verdict", lambda job: Cell(job.verdict, job.verdict, _TONES[job.verdict])),
)


def _percent(cost: float | None) -> str:
    return NONE if cost is None else f"{100 * cost:+.2f}"


def _ends(low: float | None, high: float | None) -> str:
    return NONE if low is None or high is None else f"{_percent(low)} to {_percent(high)}"


def cost_section(summary: Summary) -> Section | None:
    """The cost of measuring; None if it was not measured."""
    return Section("Cost of measuring", (table(_COLUMNS, summary.costs, _LEGEND),)) if summary.costs else None
