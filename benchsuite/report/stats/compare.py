"""Two runs side by side: ratios a job with their verdicts, and both scores over the jobs they share. Above 1 the first
is faster."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchsuite import files
from benchsuite.report.milarun import suite
from benchsuite.report.read.summary import JobSummary, ProfileRef, Summary
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.differences import Differences, differences, workload_fields
from benchsuite.report.stats.score import geometric_mean, repeat_means, unpenalized
from benchsuite.report.stats.verdict import MARGIN, Verdict, judge
from benchsuite.report.stats.weights import Weighing

_SCORE = "score"


@dataclass(frozen=True)
class JobRatio:
    """A job on both sides; the base's rates are in the unit of this run (items/s).

    `same_workload` is None where a side does not tell what it trained, and `unknown` says which; False: not to be
    compared, unless `forced`, with the fields that differ in `fields`, where they are known. `excluded`: why not to
    compare at all. `factor` and `base_factor`: what the rates of this run and of the base were multiplied by.
    """

    name: str
    perf: float | None
    base_perf: float | None
    perf_adj: float
    base_perf_adj: float
    same_workload: bool | None
    verdict: Verdict
    unknown: str | None = None
    excluded: str | None = None
    fields: tuple[str, ...] = ()
    forced: bool = False
    factor: float = 1.0
    base_factor: float = 1.0

    @property
    def refused(self) -> bool:
        """Whether another workload keeps it from having a ratio."""
        return self.same_workload is False and not self.forced

    @property
    def ratio(self) -> float | None:
        """Perf over the base's perf; None where either has none, and between different workloads."""
        return None if self.refused else _ratio(self.perf, self.base_perf)

    @property
    def ratio_adj(self) -> float | None:
        """As `ratio`, of perf_adj: std% and failures of both sides counted."""
        return None if self.refused else _ratio(self.perf_adj, self.base_perf_adj)


@dataclass(frozen=True)
class Comparison:
    """`score` and `base_score` cover the jobs in `scored` and no other; `left_out` names the weighed ones that one side
    has no throughput for, `different` those, weighed or not, that train something else on the other side.

    `unpenalized` is the ratio of the scores without their variance penalty, and `verdict` is that of this ratio: the
    penalty grows with the number of repeats and tasks, and is no sample of theirs. `margin` is relative. `tested`: how
    many jobs share the verdicts' level.
    """

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
    unpenalized: float | None
    verdict: Verdict
    margin: float
    differences: Differences

    @property
    def ratio(self) -> float | None:
        """Score over the base's; 1 for identical content."""
        return _ratio(self.score, self.base_score)

    @property
    def tested(self) -> int:
        return sum(job.verdict.df is not None for job in self.jobs)


def find_base(name: str) -> Summary:
    """What a user compares with: a results folder, a summary file, or a shipped baseline's name.

    Raises:
        ProfileError: there is no such file.
        ResultError: it is neither a summary nor a folder with results.
    """
    path = Path(name)
    return summary_of(path if path.exists() else files.find("baselines", name))


def compare(
    summary: Summary, base: Summary, weighing: Weighing, name: str, margin: float = MARGIN, unlike: bool = False
) -> Comparison:
    """Ratios over common jobs; those that either side excludes, or that are another workload, leave both scores.

    Args:
        name: what the base is called.
        weighing: the weights laid against `summary`.
        margin: what counts as the same, relative.
        unlike: compare other workloads too.
    """
    if summary.origin != base.origin:  # else both sides count alike, and stand as they were published
        summary, base = suite.converted(summary), suite.converted(base)
    there = {job.name: job for job in base.jobs}
    here = {job.name: job for job in summary.jobs}
    same_profile = _same_lineage(summary.profile, base.profile)
    ratios = [_job_ratio(job, there[name], same_profile, unlike) for name, job in here.items() if name in there]
    jobs = _judged(ratios, here, there, margin)
    comparable = [job for job in jobs if not job.excluded and not job.refused]
    weighed = [job for job in comparable if weighing.jobs.get(job.name, 0.0) > 0]
    scored = [job for job in weighed if job.perf_adj > 0 and job.base_perf_adj > 0]
    weights: Mapping[str, float] = weighing.jobs
    score = geometric_mean({job.name: job.perf_adj for job in scored}, weights)
    base_score = geometric_mean({job.name: job.base_perf_adj for job in scored}, weights)
    sides = [{job.name: _in_todays_unit(of[job.name]) for job in scored} for of in (here, there)]
    plain = _ratio(*(unpenalized(side, weights) for side in sides))
    samples = (
        repeat_means({job.name: here[job.name] for job in scored}, weights),
        repeat_means({job.name: there[job.name] for job in scored}, weights),
    )
    return Comparison(
        base=base,
        name=name,
        jobs=jobs,
        only_here=tuple(job for job in here if job not in there),
        only_base=tuple(job for job in there if job not in here),
        scored=tuple(job.name for job in scored),
        left_out=tuple(job.name for job in weighed if job not in scored),
        different=tuple(job.name for job in jobs if job.refused),
        score=score,
        base_score=base_score,
        unpenalized=plain,
        verdict=_score_verdict(plain, samples, margin, all(j.verdict.identical for j in scored)),
        margin=margin,
        differences=differences(summary, base),
    )


def _judged(
    ratios: Sequence[JobRatio], here: Mapping[str, JobSummary], there: Mapping[str, JobSummary], margin: float
) -> tuple[JobRatio, ...]:
    """Verdicts for all jobs that have a ratio worth one: they are one family."""
    family = [job.name for job in ratios if job.ratio is not None and not job.excluded]
    samples = {name: (_repeat_rates(here[name]), _repeat_rates(there[name])) for name in family}
    verdicts = judge(samples, margin, [name for name in family if _content(here[name]) == _content(there[name])])
    return tuple(replace(job, verdict=verdicts.get(job.name, job.verdict)) for job in ratios)


def _content(job: JobSummary) -> tuple[object, ...]:
    """What was measured, and of what; a kept summary may lack fields that have been added since."""
    tasks = [(task.id, task.status, task.items, task.seconds, task.perf) for task in job.tasks]
    what = (job.workload, job.unit_factor, job.n, job.fail, job.perf, job.perf_adj)
    return (*what, [(repeat.repeat, repeat.perf) for repeat in job.repeats], tasks)


def _in_todays_unit(job: JobSummary) -> JobSummary:
    return msgspec.structs.replace(job, perf=None if job.perf is None else job.perf * (job.unit_factor or 1.0))


def _repeat_rates(job: JobSummary) -> list[float]:
    """Items/s of each repeat that has any ok task, in today's unit."""
    return [repeat.perf * (job.unit_factor or 1.0) for repeat in job.repeats if repeat.perf is not None]


def _score_verdict(
    ratio: float | None, samples: tuple[Sequence[float], Sequence[float]], margin: float, identical: bool
) -> Verdict:
    """The verdict of the ratio of scores without their penalty, a family of its own, from each repeat's weighted mean.

    Repeats scatter around that ratio, which counts failures too: it is moved there.
    """
    if ratio is None:
        return Verdict(None, reason="no score on both sides")
    here, base = samples
    if here and base:
        shift = math.log(ratio) - statistics.fmean(map(math.log, here)) + statistics.fmean(map(math.log, base))
        here = [rate * math.exp(shift) for rate in here]
    return judge({_SCORE: (here, base)}, margin, [_SCORE] if identical else [])[_SCORE]


def _same_lineage(profile: ProfileRef | None, base: ProfileRef | None) -> bool:
    """Whether two profiles are, or are changed copies of, the same one."""
    if profile is None or base is None:
        return False
    return (profile.based_on or profile.name) == (base.based_on or base.name)


def _job_ratio(job: JobSummary, base: JobSummary, same_profile: bool, unlike: bool) -> JobRatio:
    # A factor applies on whichever side bears it, so that a baseline beside itself is exactly 1.
    factor, base_factor = job.unit_factor or 1.0, base.unit_factor or 1.0
    same = _same_workload(job, base, same_profile)
    unknown = [side for side, of in (("this run", job), ("the base", base)) if not of.workload]
    return JobRatio(
        name=job.name,
        perf=None if job.perf is None else job.perf * factor,
        base_perf=None if base.perf is None else base.perf * base_factor,
        perf_adj=job.perf_adj * factor,
        base_perf_adj=base.perf_adj * base_factor,
        same_workload=same,
        verdict=Verdict(None),
        unknown=" and ".join(unknown) or None,
        excluded=base.excluded or job.excluded,
        fields=job.unlike or base.unlike or workload_fields(job, base) if same is False else (),
        forced=unlike and same is False,
        factor=factor,
        base_factor=base_factor,
    )


def _same_workload(job: JobSummary, base: JobSummary, same_profile: bool) -> bool | None:
    """None where only the profile and the job's name speak for it. Tasks unlike each other are like no other."""
    if job.unlike or base.unlike:
        return False
    if job.workload and base.workload:
        return job.workload == base.workload
    return None if same_profile else False


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base
