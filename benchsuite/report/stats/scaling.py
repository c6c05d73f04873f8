"""Scaling: how the throughput of each progression grows with its GPUs, against its own single GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from benchsuite.describe.names import cell_name
from benchsuite.describe.tasks import PLACE_AXES
from benchsuite.report.measure.intervals import Interval
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.stats.samples import repeat_rates, weighted_mean


@dataclass(frozen=True)
class Point:
    """One number of GPUs (on a CPU: ranks).

    Attributes:
        total: items/s of the group; None if no task is ok.
        per_gpu: items/s of each GPU; None if no task is ok.
        efficiency: `per_gpu` over that of one GPU.
        interval: of `efficiency`, over the ratios of the same repeats, or of sessions; None under three.
    """

    gpus: int
    total: float | None
    per_gpu: float | None
    efficiency: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True)
class Curve:
    """A progression's points, fewest GPUs first."""

    job: str
    unit: str
    points: tuple[Point, ...]


def curves(summary: Summary) -> list[Curve]:
    """The curve of each progression of a summary."""
    by_job: dict[str, list[JobSummary]] = defaultdict(list)
    for job in summary.jobs:
        if any(axis in job.axes for axis in PLACE_AXES):
            by_job[cell_name(job.job, job.varied)].append(job)
    return [_curve(name, sorted(jobs, key=lambda job: job.per)) for name, jobs in by_job.items()]


def _curve(name: str, jobs: Sequence[JobSummary]) -> Curve:
    single = next((job for job in jobs if job.per == 1), None)
    unit = next((job.unit for job in jobs if job.unit), "item")
    return Curve(name, unit, tuple(_point(job, single) for job in jobs))


def _point(job: JobSummary, single: JobSummary | None) -> Point:
    total = None if job.perf is None else job.perf * job.per
    if single is None or not single.perf or job.perf is None:
        return Point(job.per, total, job.perf)
    alone, rates = repeat_rates(single), repeat_rates(job)
    ratios = {key: rate / alone[key] for key, rate in rates.items() if alone.get(key)}
    around = weighted_mean({job.name: ratios}, {job.name: 1.0}) if job is not single else None
    return Point(job.per, total, job.perf, job.perf / single.perf, around.interval if around else None)
