"""A run beside a base: the ratio and verdict of each job, and both scores over the jobs they share.

A ratio above 1 means that the run is faster than the base.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from benchsuite import files
from benchsuite.report.milarun import suite
from benchsuite.report.read.summary import JobSummary, ProfileRef, Summary
from benchsuite.report.sources import run_names, summary_of
from benchsuite.report.stats.differences import Differences, differences, trained_changes
from benchsuite.report.stats.score import geometric_mean, repeat_means, unpenalized
from benchsuite.report.stats.sessions import together
from benchsuite.report.stats.verdict import MARGIN, Verdict, judge
from benchsuite.report.stats.weights import Weighing

_SCORE = "score"


@dataclass(frozen=True)
class JobRatio:
    """A job on both sides, with all rates in today's unit (items/s).

    Attributes:
        same_workload: None if a side does not record its workload; False keeps the job from a comparison unless
            `forced`.
        unknown: the sides that do not record their workload.
        excluded: the reason not to compare the job at all.
        fields: the fields in which the workloads differ, if known.
        factor: the rates of this run were multiplied by it.
        base_factor: the rates of the base were multiplied by it.
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
        """Whether the job has no ratio because the workloads differ."""
        return self.same_workload is False and not self.forced

    @property
    def ratio(self) -> float | None:
        """Perf over the base's perf; None if a side has no perf, or if the workloads keep the job from a ratio."""
        return None if self.refused else _ratio(self.perf, self.base_perf)

    @property
    def ratio_adj(self) -> float | None:
        """As `ratio`, of perf_adj, which counts std% and failures."""
        return None if self.refused else _ratio(self.perf_adj, self.base_perf_adj)


@dataclass(frozen=True)
class Comparison:
    """A run beside a base.

    Attributes:
        name: of the base, as the user gave it.
        scored: the jobs that both scores cover.
        left_out: the weighed jobs without a throughput on one side.
        different: the jobs, weighed or not, that train something else on the other side.
        unpenalized: the ratio of the scores without their variance penalty.
        verdict: of `unpenalized`, since the penalty grows with the number of repeats and tasks and is not sampled.
        margin: the largest relative difference that counts as the same.
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
        """The number of jobs that share the verdicts' level."""
        return sum(job.verdict.df is not None for job in self.jobs)


def find_base(name: str) -> Summary:
    """The summary of a results folder, a summary file, or a shipped baseline; of several, separated by commas, with
    each run as a session.

    Raises:
        UsageError: a name between commas is empty.
        ProfileError: there is no such file.
        ResultError: it is neither a summary nor a folder with results, or the runs cannot be sessions of one machine.
    """
    names = run_names(name)
    paths = [Path(part) if files.look(Path(part)) else files.find("baselines", part) for part in names]
    return together([summary_of(path) for path in paths], names)


def compare(
    summary: Summary, base: Summary, weighing: Weighing, name: str, margin: float = MARGIN, unlike: bool = False
) -> Comparison:
    """Compare a run with a base. Jobs that a side excludes, and jobs of different workloads, leave both scores.

    Args:
        name: of the base, as the user gave it.
        weighing: the weights matched to `summary`.
        margin: the largest relative difference that counts as the same.
        unlike: compare different workloads too.
    """
    if summary.origin != base.origin:  # two summaries of one program count alike, and stay as published
        summary, base = suite.converted(summary), suite.converted(base)
    there = {job.name: _in_todays_unit(job) for job in base.jobs}
    here = {job.name: _in_todays_unit(job) for job in summary.jobs}
    same_profile = _same_lineage(summary.profile, base.profile)
    ratios = [_job_ratio(job, there[name], same_profile, unlike) for name, job in here.items() if name in there]
    jobs = _judged(ratios, here, there, margin)
    comparable = [job for job in jobs if not job.excluded and not job.refused]
    weighed = [job for job in comparable if weighing.jobs.get(job.name, 0.0) > 0]
    scored = [job for job in weighed if job.perf_adj > 0 and job.base_perf_adj > 0]
    weights: Mapping[str, float] = weighing.jobs
    own, others = ({job.name: side[job.name] for job in scored} for side in (here, there))
    plain = _ratio(unpenalized(own, weights), unpenalized(others, weights))
    samples = repeat_means(own, weights), repeat_means(others, weights)
    return Comparison(
        base=base,
        name=name,
        jobs=jobs,
        only_here=tuple(job for job in here if job not in there),
        only_base=tuple(job for job in there if job not in here),
        scored=tuple(job.name for job in scored),
        left_out=tuple(job.name for job in weighed if job not in scored),
        different=tuple(job.name for job in jobs if job.refused),
        score=geometric_mean({job.name: job.perf_adj for job in scored}, weights),
        base_score=geometric_mean({job.name: job.base_perf_adj for job in scored}, weights),
        unpenalized=plain,
        verdict=_score_verdict(plain, samples, margin, all(j.verdict.identical for j in scored)),
        margin=margin,
        differences=differences(summary, base),
    )


def _judged(
    ratios: Sequence[JobRatio], here: Mapping[str, JobSummary], there: Mapping[str, JobSummary], margin: float
) -> tuple[JobRatio, ...]:
    """The jobs with their verdicts, which are one family of tests."""
    family = [job.name for job in ratios if job.ratio is not None and not job.excluded]
    samples = {name: (_repeat_rates(here[name]), _repeat_rates(there[name])) for name in family}
    verdicts = judge(samples, margin, [name for name in family if _content(here[name]) == _content(there[name])])
    return tuple(dataclasses.replace(job, verdict=verdicts.get(job.name, job.verdict)) for job in ratios)


def _content(job: JobSummary) -> tuple[object, ...]:
    """The figures that make two jobs identical; fields that an older summary lacks do not count."""
    tasks = [(task.id, task.status, task.items, task.seconds, task.perf) for task in job.tasks]
    what = (job.workload, job.unit_factor, job.n, job.fail, job.perf, job.perf_adj)
    return (*what, [(repeat.repeat, repeat.perf) for repeat in job.repeats], tasks)


def _in_todays_unit(job: JobSummary) -> JobSummary:
    """The job with its rates multiplied by `unit_factor`, on whichever side has one."""
    factor = job.unit_factor or 1.0
    return replace(
        job,
        perf=None if job.perf is None else job.perf * factor,
        perf_adj=job.perf_adj * factor,
        repeats=tuple(replace(r, perf=None if r.perf is None else r.perf * factor) for r in job.repeats),
    )


def _repeat_rates(job: JobSummary) -> list[float]:
    return [repeat.perf for repeat in job.repeats if repeat.perf is not None]


def _score_verdict(
    ratio: float | None, samples: tuple[Sequence[float], Sequence[float]], margin: float, identical: bool
) -> Verdict:
    """The verdict of the ratio of scores without their penalty, a family of its own.

    Args:
        ratio: with the failures counted. The samples are shifted so that they scatter around it.
        samples: the weighted mean of each repeat, of this run and of the base.
    """
    if ratio is None:
        return Verdict(None, reason="no score on both sides")
    here, base = samples
    if here and base:
        shift = math.log(ratio) - statistics.fmean(map(math.log, here)) + statistics.fmean(map(math.log, base))
        here = [rate * math.exp(shift) for rate in here]
    return judge({_SCORE: (here, base)}, margin, [_SCORE] if identical else [])[_SCORE]


def _same_lineage(profile: ProfileRef | None, base: ProfileRef | None) -> bool:
    """Whether two profiles are the same, or changed copies of the same profile."""
    if profile is None or base is None:
        return False
    return (profile.based_on or profile.name) == (base.based_on or base.name)


def _job_ratio(job: JobSummary, base: JobSummary, same_profile: bool, unlike: bool) -> JobRatio:
    same = _same_workload(job, base, same_profile)
    unknown = [side for side, of in (("this run", job), ("the base", base)) if not of.workload]
    return JobRatio(
        name=job.name,
        perf=job.perf,
        base_perf=base.perf,
        perf_adj=job.perf_adj,
        base_perf_adj=base.perf_adj,
        same_workload=same,
        verdict=Verdict(None),
        unknown=" and ".join(unknown) or None,
        excluded=base.excluded or job.excluded,
        fields=job.unlike or base.unlike or trained_changes(job.settings, base.settings) if same is False else (),
        forced=unlike and same is False,
        factor=job.unit_factor or 1.0,
        base_factor=base.unit_factor or 1.0,
    )


def _same_workload(job: JobSummary, base: JobSummary, same_profile: bool) -> bool | None:
    """Whether two jobs train the same; None if a side does not record it and the profiles are related.

    A job whose own tasks differ in their workload is the same as no other.
    """
    if job.unlike or base.unlike:
        return False
    if job.workload and base.workload:
        return job.workload == base.workload
    return None if same_profile else False


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base
