"""Sweeps over the batch size: rate, memory and use of each size, the sizes that do not fit, and the knee."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from benchsuite.describe.names import cell_name
from benchsuite.describe.tasks import PLACE_AXES
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.use import Use

# The axis of a job's matrix that makes a sweep.
AXIS = "batch_size"
# The knee of a sweep is the smallest batch with this share of the best rate, if a larger batch has a rate, too.
KNEE = 0.95


@dataclass(frozen=True)
class Point:
    """One batch size.

    Attributes:
        row: the name of its row in the table of jobs.
        rate: items/s of one GPU; None without an ok task.
        of_best: `rate` over the best rate of the sweep.
        oom: every task that ended without a rate ran out of memory, and at least one did.
        memory_bytes: peak of one GPU, or of the host for a job on the CPU.
        state: why there is no rate, if it is not `oom`.
    """

    row: str
    batch: int
    rate: float | None
    of_best: float | None
    oom: bool
    memory_bytes: int | None
    use: Use
    state: str = ""


@dataclass(frozen=True)
class Sweep:
    """A job over its batch sizes, in ascending order.

    Attributes:
        job: its name with the values of its other axes.
        knee: the smallest batch with at least `KNEE` of the best rate; None if only the largest batch with a rate has
            it, since the rate may still rise.
    """

    job: str
    unit: str
    points: tuple[Point, ...]
    knee: int | None


def sweeps(summary: Summary) -> list[Sweep]:
    """The sweeps of a summary: each job with two batch sizes or more, on one number of GPUs."""
    by_job: dict[str, list[JobSummary]] = defaultdict(list)
    for job in summary.jobs:
        if isinstance(job.axes.get(AXIS), int):
            by_job[_name(job)].append(job)
    return [_sweep(name, jobs) for name, jobs in by_job.items() if len(jobs) > 1]


def _name(job: JobSummary) -> str:
    """The job with its axes but for the batch size; ".2": on two GPUs of a progression."""
    others = {axis: value for axis, value in job.varied.items() if axis != AXIS}
    placed = any(axis in job.axes for axis in PLACE_AXES)
    return cell_name(job.job, others) + (f".{job.per}" if placed else "")


def _sweep(name: str, jobs: Sequence[JobSummary]) -> Sweep:
    jobs = sorted(jobs, key=lambda job: int(job.axes[AXIS]))
    best = max((job.perf for job in jobs if job.perf is not None), default=0.0)
    points = tuple(_point(job, best) for job in jobs)
    rated = [point for point in points if point.rate]
    knee = next((point.batch for point in rated[:-1] if (point.of_best or 0.0) >= KNEE), None)
    return Sweep(name, next((job.unit for job in jobs if job.unit), "item"), points, knee)


def _point(job: JobSummary, best: float) -> Point:
    use = job.use or Use()
    without = [task.status for task in job.tasks if task.status != "ok"]
    oom = bool(without) and all(status == "oom" for status in without)
    return Point(
        row=job.name,
        batch=int(job.axes[AXIS]),
        rate=job.perf,
        of_best=job.perf / best if job.perf is not None and best else None,
        oom=oom,
        memory_bytes=use.host_rss_bytes if job.devices == "none" else use.device_reserved_bytes,
        use=use,
        state="" if job.perf is not None or oom else ", ".join(sorted(set(without))) or "not run",
    )
