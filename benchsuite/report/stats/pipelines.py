"""Pipelines beside data parallel training: pairs of jobs that differ in `parallel` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchsuite.describe.work import work
from benchsuite.report.read.summary import JobSummary

_BATCH = "params.batch_size"


@dataclass(frozen=True)
class SpeedUp:
    """A pipeline, and the jobs with which it is compared.

    Attributes:
        data_parallel: on as many GPUs or ranks.
        one: the same training on one GPU or rank.
    """

    pipeline: JobSummary
    data_parallel: JobSummary | None
    one: JobSummary | None

    @property
    def ranks(self) -> int:
        """The GPUs, or the ranks on a CPU."""
        return self.pipeline.ranks

    @property
    def rate(self) -> float | None:
        """Items per second of all ranks of the pipeline together."""
        return _rate(self.pipeline)

    @property
    def data_parallel_rate(self) -> float | None:
        """Items per second of all ranks of the data parallel job together."""
        return _rate(self.data_parallel)

    @property
    def over_data_parallel(self) -> float | None:
        """The pipeline's rate over that of data parallel training."""
        return _over(self.rate, self.data_parallel_rate)

    @property
    def over_one(self) -> float | None:
        """The pipeline's rate over that of one GPU or rank."""
        return _over(self.rate, _rate(self.one))

    @property
    def data_parallel_over_one(self) -> float | None:
        """The data parallel rate over that of one GPU or rank."""
        return _over(self.data_parallel_rate, _rate(self.one))


def speed_ups(jobs: Sequence[JobSummary]) -> list[SpeedUp]:
    """One for each pipeline that has a data parallel job, or one on a single GPU or rank, to compare with."""
    plain = [job for job in jobs if job.settings and not _parallel(job).get("pp") and not _parallel(job).get("fsdp")]
    found = []
    for job in jobs:
        if not (job.settings and _parallel(job).get("pp")):
            continue
        alike = [other for other in plain if _same(job, other)]
        data_parallel = next((other for other in alike if other.ranks == job.ranks), None)
        one = next((other for other in alike if other.ranks == 1), None)
        if data_parallel or one:
            found.append(SpeedUp(job, data_parallel, one))
    return found


def _parallel(job: JobSummary) -> dict[str, Any]:
    return job.settings.get("parallel") or {}


def _same(one: JobSummary, other: JobSummary) -> bool:
    """Whether two jobs train the same, apart from `parallel`.

    A replica has the same batch in both, or the batches of all replicas together are equally large.
    """
    mine, theirs = (
        {name: value for name, value in work(job.settings).items() if not name.startswith(("parallel", _BATCH))}
        for job in (one, other)
    )
    sizes = [job.settings.get("params", {}).get("batch_size") for job in (one, other)]
    return mine == theirs and (sizes[0] == sizes[1] or _whole(one, sizes[0]) == _whole(other, sizes[1]) is not None)


def _whole(job: JobSummary, size: Any) -> int | None:
    """The batch of all replicas together."""
    parallel = job.settings.get("parallel") or {}
    ranks = (sum(parallel.get("replicas") or ()) or parallel.get("pp") or 1) if parallel.get("pp") else 1
    return size * (job.ranks // ranks) if isinstance(size, int) else None


def _rate(job: JobSummary | None) -> float | None:
    return None if job is None or job.perf is None else job.perf * job.per


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None
