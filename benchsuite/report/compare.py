"""Two runs side by side: ratios a job, and both scores over the jobs they share. Above 1 the first is faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchsuite import files
from benchsuite.report import milarun_suite
from benchsuite.report.score import geometric_mean
from benchsuite.report.summarise import summary_of
from benchsuite.report.summary import JobSummary, ProfileRef, Summary
from benchsuite.report.weights import Weighing


@dataclass(frozen=True)
class JobRatio:
    """A job on both sides; the base's rates are in the unit of this run (items/s).

    `same_workload` is None where a side does not tell what it trained, and `unknown` says which. `excluded`: why not to
    compare.
    """

    name: str
    perf: float | None
    base_perf: float | None
    perf_adj: float
    base_perf_adj: float
    same_workload: bool | None
    unknown: str | None = None
    excluded: str | None = None

    @property
    def ratio(self) -> float | None:
        """Perf over the base's perf; None where either has none, and between different workloads."""
        return None if self.same_workload is False else _ratio(self.perf, self.base_perf)

    @property
    def ratio_adj(self) -> float | None:
        """As `ratio`, of perf_adj: std% and failures of both sides counted."""
        return None if self.same_workload is False else _ratio(self.perf_adj, self.base_perf_adj)


@dataclass(frozen=True)
class Comparison:
    """`score` and `base_score` cover the jobs in `scored` and no other; `left_out` names the weighed ones that one side
    has no throughput for, `different` those, weighed or not, that train something else on the other side."""

    base: Summary
    name: str
    jobs: tuple[JobRatio, ...]
    only_here: tuple[str, ...]
    only_base: tuple[str, ...]
    scored: tuple[str, ...]
    left_out: tuple[str, ...]
    different: tuple[str, ...]
    score: float | None
    base_score: float | None

    @property
    def ratio(self) -> float | None:
        """Score over the base's; 1 for identical content."""
        return _ratio(self.score, self.base_score)


def find_base(name: str) -> Summary:
    """What a user compares with: a results folder, a summary file, or a shipped baseline's name.

    Raises:
        ProfileError: there is no such file.
        ResultError: it is neither a summary nor a folder with results.
    """
    path = Path(name)
    return summary_of(path if path.exists() else files.find("baselines", name))


def compare(summary: Summary, base: Summary, weighing: Weighing, name: str) -> Comparison:
    """Ratios over common jobs; those that either side excludes, or that are another workload, leave both scores.

    Args:
        name: what the base is called.
        weighing: the weights laid against `summary`.
    """
    if summary.origin != base.origin:  # else both sides count alike, and stand as they were published
        summary, base = milarun_suite.converted(summary), milarun_suite.converted(base)
    there = {job.name: job for job in base.jobs}
    here = [job.name for job in summary.jobs]
    same_profile = _same_lineage(summary.profile, base.profile)
    jobs = tuple(_job_ratio(job, there[job.name], same_profile) for job in summary.jobs if job.name in there)
    comparable = [job for job in jobs if not job.excluded and job.same_workload is not False]
    weighed = [job for job in comparable if weighing.jobs.get(job.name, 0.0) > 0]
    scored = [job for job in weighed if job.perf_adj > 0 and job.base_perf_adj > 0]
    weights: Mapping[str, float] = weighing.jobs
    return Comparison(
        base=base,
        name=name,
        jobs=jobs,
        only_here=tuple(job for job in here if job not in there),
        only_base=tuple(job for job in there if job not in here),
        scored=tuple(job.name for job in scored),
        left_out=tuple(job.name for job in weighed if job not in scored),
        different=tuple(job.name for job in jobs if job.same_workload is False),
        score=geometric_mean({job.name: job.perf_adj for job in scored}, weights),
        base_score=geometric_mean({job.name: job.base_perf_adj for job in scored}, weights),
    )


def _same_lineage(profile: ProfileRef | None, base: ProfileRef | None) -> bool:
    """Whether two profiles are, or are changed copies of, the same one."""
    if profile is None or base is None:
        return False
    return (profile.based_on or profile.name) == (base.based_on or base.name)


def _job_ratio(job: JobSummary, base: JobSummary, same_profile: bool) -> JobRatio:
    # A factor applies on whichever side bears it, so that a baseline beside itself is exactly 1.
    factor, base_factor = job.unit_factor or 1.0, base.unit_factor or 1.0
    unknown = [side for side, of in (("this run", job), ("the base", base)) if not of.workload]
    return JobRatio(
        name=job.name,
        perf=None if job.perf is None else job.perf * factor,
        base_perf=None if base.perf is None else base.perf * base_factor,
        perf_adj=job.perf_adj * factor,
        base_perf_adj=base.perf_adj * base_factor,
        same_workload=_same_workload(job, base, same_profile),
        unknown=" and ".join(unknown) or None,
        excluded=base.excluded or job.excluded,
    )


def _same_workload(job: JobSummary, base: JobSummary, same_profile: bool) -> bool | None:
    """None where only the profile and the job's name speak for it."""
    if job.workload and base.workload:
        return job.workload == base.workload
    return None if same_profile else False


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base
