"""The table of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchsuite.describe.names import axis_value
from benchsuite.report.format import NONE, around, number, share
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.document import Cell, Column, Section, table
from benchsuite.report.show.sections.flops import mfu_cell, mfu_legend
from benchsuite.report.stats.samples import MIN_SESSIONS
from benchsuite.report.stats.score import Score

_LEGEND = (
    "perf: items/s in the measured window, mean over tasks. std%: between tasks. perf_adj = perf x (1 - std%) x "
    "(1 - fail/n). 95 %: perf's interval over "
)


def jobs_section(summary: Summary, score: Score) -> Section:
    """Every job of a run, with the legend of its columns."""
    legend = _LEGEND if score.penalized else _LEGEND.replace(" x (1 - std%)", "")
    if words := mfu_legend(summary):
        legend = f"{words} {legend}"
    rows = table(
        _columns(summary, score), summary.jobs, f"{legend}{_samples(summary)}.", lambda job: "bad" if job.fail else ""
    )
    return Section("Jobs", (rows,))


def _samples(summary: Summary) -> str:
    """The samples of the intervals, in words."""
    found = {job.interval.of for job in summary.jobs if job.interval}
    if "session" not in found:
        return f"repeats (needs {MIN_REPEATS})"
    partly = f"; over repeats where a job is ok in fewer than {MIN_SESSIONS}" if "repeat" in found else ""
    return f"sessions (needs {MIN_SESSIONS}){partly}"


def _columns(summary: Summary, score: Score) -> Iterator[Column[JobSummary]]:
    weights = score.weighing.jobs
    yield Column("job", _name)
    for axis in dict.fromkeys(axis for job in summary.jobs for axis in job.varied):
        yield Column(axis, partial(_axis, axis), right=True)
    yield Column("n", lambda job: job.n, right=True)
    yield Column("fail", lambda job: job.fail, right=True)
    if any(job.to_run for job in summary.jobs) or summary.in_progress:
        yield Column("to run", lambda job: job.to_run, right=True, rank=1)
    if any(job.unsteady for job in summary.jobs):
        yield Column("flagged", unsteady, right=True, rank=1)
    yield Column("perf", lambda job: job.perf, number, right=True)
    yield Column("unit", unit, rank=3)
    yield Column("MFU %", mfu_cell, right=True, rank=5, optional=True)
    yield Column("std%", lambda job: job.std, share, right=True, rank=4)
    yield Column("perf_adj", _perf_adj, number, right=True, rank=2)
    yield Column("95 %", interval, right=True, rank=5)
    yield Column("weight", lambda job: weights.get(job.name), _weight, right=True, rank=6)
    yield Column("slices", lambda job: Cell(_basis(job, f"{job.slices:,}"), job.slices), right=True, rank=8)
    yield Column("seconds", lambda job: Cell(_basis(job, f"{job.seconds:,.1f}"), job.seconds), right=True, rank=7)


def _axis(axis: str, job: JobSummary) -> Cell:
    """The value of an axis of the job's matrix; blank for other jobs."""
    if axis not in job.varied:
        return Cell("")
    value = job.varied[axis]
    return Cell(axis_value(value), value if isinstance(value, int | float | str) else None)


def _name(job: JobSummary) -> str:
    """The row's name; its axes have columns of their own."""
    if not job.varied:
        return job.name
    return f"{job.job}.{job.per}" if len(job.varied) < len(job.axes) else job.job


def unit(job: JobSummary) -> str:
    """The unit of perf; `each`: per GPU of a group."""
    return f"{job.unit}/s{' each' if job.per > 1 else ''}" if job.unit else NONE


def unsteady(job: JobSummary) -> Cell:
    """The ok tasks whose window is not steady, of all ok tasks."""
    return Cell(f"{job.unsteady} of {job.ended - job.fail}", job.unsteady)


def _perf_adj(job: JobSummary) -> float | None:
    """Unknown while tasks are to run and none has a figure."""
    return None if job.to_run and job.perf is None else job.perf_adj


def interval(job: JobSummary) -> Cell:
    """The interval around perf. A wide one is not symmetric, so both ends are shown."""
    if job.interval is None or not job.perf:
        return Cell(NONE)
    return Cell(around(job.interval, job.perf), job.interval.high / job.perf - 1)


def _weight(weight: float | None) -> str:
    return "none" if weight is None else f"{weight:g}"


def _basis(job: JobSummary, text: str) -> str:
    """Slices or seconds of perf. A published perf may lack them."""
    return text if job.slices or job.perf is None else NONE
