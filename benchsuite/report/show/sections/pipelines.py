"""Pipelines of stages: their bubbles, and their speed beside that of data parallel training on as many GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchsuite.report.format import NONE, number, ratio, share
from benchsuite.report.show.document import Column, Section, table
from benchsuite.report.stats.pipelines import SpeedUp, speed_ups

if TYPE_CHECKING:  # light to import: no scipy
    from benchsuite.measurement import PipelineUsed
    from benchsuite.report.read.summary import JobSummary, Summary

_LEGEND = (
    "Of the first ok task. bubble: share of the time in which a rank neither computes nor updates weights, mean over "
    "ranks, with the rank that waits least and most, over some steps after the measurement. ideal: that of the "
    "schedule with equal stages and transfers of no time. units: of each stage; cut: who chose them."
)
_SPEED_LEGEND = (
    "items/s of all GPUs or ranks together, of jobs that differ in `parallel` alone, or have equal "
    "batches of all replicas together. x DP: pipeline over data parallel "
    "on as many. x1: over the same training on one."
)

_COLUMNS: tuple[Column[JobSummary], ...] = (
    Column("job", lambda job: job.name),
    Column("schedule", lambda job: _used(job).schedule),
    Column("ranks", lambda job: "-".join(str(len(stage.ranks)) for stage in _used(job).stages)),
    Column("units", lambda job: "-".join(str(stage.units) for stage in _used(job).stages), rank=2),
    Column("cut", lambda job: _used(job).cut_by, rank=4),
    Column("micro-batches", lambda job: _used(job).microbatches, lambda n: str(n) if n else NONE, right=True, rank=3),
    Column("bubble %", lambda job: _used(job).bubble, share, right=True),
    Column("least", lambda job: min(_used(job).idle), share, right=True, rank=5),
    Column("most", lambda job: max(_used(job).idle), share, right=True, rank=5),
    Column("ideal %", lambda job: _used(job).ideal_bubble, share, right=True, rank=1),
)

_SPEEDS: tuple[Column[SpeedUp], ...] = (
    Column("pipeline", lambda one: one.pipeline.name),
    Column("data parallel", lambda one: one.data_parallel.name if one.data_parallel else NONE, rank=2),
    Column("on", lambda one: one.ranks, right=True),
    Column("items/s", lambda one: one.rate, number, right=True, rank=1),
    Column("DP items/s", lambda one: one.data_parallel_rate, number, right=True, rank=3),
    Column("x DP", lambda one: one.over_data_parallel, ratio, right=True),
    Column("x1", lambda one: one.over_one, ratio, right=True, rank=4, optional=True),
    Column("DP x1", lambda one: one.data_parallel_over_one, ratio, right=True, rank=4, optional=True),
)


def _used(job: JobSummary) -> PipelineUsed:
    assert job.pipeline
    return job.pipeline


def pipelines_section(summary: Summary) -> Section | None:
    """The pipelines of a run; None if it has none."""
    found = [job for job in summary.jobs if job.pipeline]
    if not found:
        return None
    tables = [table(_COLUMNS, found, _LEGEND)]
    if compared := speed_ups(summary.jobs):
        tables.append(table(_SPEEDS, compared, _SPEED_LEGEND))
    return Section("Pipelines", tuple(tables))
