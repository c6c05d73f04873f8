"""Sub-scores: the weighted geometric mean of perf over the jobs that share a limit, or a precision.

A sub-score counts ok tasks only and has no variance penalty. It has no value if a job of its group has no figure: the
other jobs of the group would give another quantity under the same name.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from benchsuite.report.format import count, few
from benchsuite.report.measure.intervals import MIN_REPEATS, Interval
from benchsuite.report.read.summary import JobSummary
from benchsuite.report.stats.limits import NOT_KNOWN, LimitName, limited_by
from benchsuite.report.stats.samples import LogMean
from benchsuite.report.stats.score import speed
from benchsuite.report.stats.verdict import judge

Kind = Literal["limit", "precision"]
# The number of jobs that a reason names.
_NAMED = 5


@dataclass(frozen=True)
class SubScore:
    """The sub-score of one group of jobs.

    Attributes:
        name: the limit or the precision that the jobs share.
        jobs: the weighed jobs of the group, in the order of the run.
        evidence: of each job, what shows that it belongs to the group.
        weight: the sum of their weights.
        share: `weight` over the weight of all weighed jobs, 0 to 1.
        value: items/s of one GPU (of one task on a CPU); None for the `reason`.
        interval: 95 % over repeats, centred on `value` in logs; None under three repeats with a number of each job.
    """

    kind: Kind
    name: str
    jobs: tuple[str, ...]
    evidence: tuple[str, ...]
    weight: float
    share: float
    value: float | None
    interval: Interval | None
    reason: str | None


@dataclass(frozen=True)
class GroupRatio:
    """The sub-score of a group over that of a base: per GPU, as the rates of both are.

    Attributes:
        value: None for the `reason`.
        low, high: its 95 % interval by Welch's t; None for the `reason`.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


def sub_scores(jobs: Mapping[str, JobSummary], weights: Mapping[str, float]) -> tuple[SubScore, ...]:
    """The groups by limit, then those by precision; a job of weight 0 is left out.

    Groups by precision hold no groups of ranks, whose rates depend on the number of GPUs.

    Args:
        jobs: the jobs of the run, by name.
        weights: also of the jobs that the run lacks, which have no figure.
    """
    weighed = {name: weight for name, weight in weights.items() if weight > 0}
    limits = {name: limited_by(job) for name, job in jobs.items() if name in weighed}
    single = {name: weight for name, weight in weighed.items() if name not in jobs or jobs[name].ranks == 1}
    by_limit = _kind("limit", jobs, weighed, lambda job: limits[job.name].by, lambda job: limits[job.name].evidence)
    return (
        *sorted(by_limit, key=lambda found: get_args(LimitName).index(found.name)),
        *_kind("precision", jobs, single, _precision, _precision),
    )


def group_ratios(
    found: Iterable[SubScore],
    jobs: Mapping[str, JobSummary],
    base: Mapping[str, JobSummary],
    weights: Mapping[str, float],
) -> tuple[GroupRatio, ...]:
    """The ratio of each sub-score to that of a base, over the same jobs.

    Args:
        jobs: those of this run, with rates in today's unit.
        base: the jobs of the baseline that may be compared, with rates in today's unit.
    """
    return tuple(_group_ratio(one, jobs, base, weights) for one in found)


def without_figure(job: JobSummary | None) -> str | None:
    """Why a weighed job has no figure that a score may use, or None if it has one; None stands for an absent job."""
    if job is None:
        return "is not in the run"
    if job.to_run:
        return f"has {count(job.to_run, 'task')} still to run"
    if job.unlike_machines:
        return "has results of unlike machines"
    if job.perf is None:
        return f"has no ok task of {job.n}"
    return None if job.perf > 0 else "has a throughput of 0"


def _precision(job: JobSummary) -> str:
    return str(job.settings.get("precision") or NOT_KNOWN)


def _kind(
    kind: Kind,
    jobs: Mapping[str, JobSummary],
    weights: Mapping[str, float],
    group: Callable[[JobSummary], str],
    evidence: Callable[[JobSummary], str],
) -> list[SubScore]:
    """The sub-scores of one kind, in the order of the run.

    A job without a figure whose group is not known may belong to any group: then no group of the kind has a value.
    """
    groups: dict[str, list[JobSummary]] = defaultdict(list)
    for name, job in jobs.items():
        if name in weights:
            groups[group(job)].append(job)
    placed = {job.name for name, members in groups.items() if name != NOT_KNOWN for job in members}
    lost = [f"{n} {why}" for n in weights if n not in placed and (why := without_figure(jobs.get(n)))]
    anywhere = f"{'; '.join(few(lost, _NAMED))} (of unknown group)" if lost else None
    total = math.fsum(weights.values())
    found = []
    for name, members in groups.items():
        reasons = [f"{job.name} {why}" for job in members if (why := without_figure(job))]
        reason = "; ".join(few(reasons, _NAMED)) or anywhere
        own = {job.name: weights[job.name] for job in members}
        around = None if reason else speed({job.name: job for job in members}, own)
        weight = math.fsum(own.values())
        found.append(
            SubScore(
                kind,
                name,
                jobs=tuple(own),
                evidence=tuple(evidence(job) for job in members),
                weight=weight,
                share=weight / total,
                value=around.rate if around else None,
                interval=around.interval if around else None,
                reason=reason,
            )
        )
    return found


def _group_ratio(
    found: SubScore, jobs: Mapping[str, JobSummary], base: Mapping[str, JobSummary], weights: Mapping[str, float]
) -> GroupRatio:
    if found.value is None:
        return GroupRatio(None, reason=found.reason)
    if absent := [name for name in found.jobs if name not in base]:
        return GroupRatio(None, reason=f"the baseline has no comparable {', '.join(few(absent, _NAMED))}")
    if lost := [f"{name} {why}" for name in found.jobs if (why := without_figure(base[name]))]:
        return GroupRatio(None, reason=f"in the baseline, {'; '.join(few(lost, _NAMED))}")
    here, there = (speed({name: side[name] for name in found.jobs}, weights) for side in (jobs, base))
    return _with_interval(here, there) if here and there else GroupRatio(None, reason="a side has no rate")


def _with_interval(here: LogMean, base: LogMean) -> GroupRatio:
    value = math.exp(here.mean - base.mean)
    for side, of in (("this run", here), ("the baseline", base)):
        if not of.n:
            return GroupRatio(value, reason=f"{side} keeps no numbers per repeat, so no interval")
        if of.variance is None:
            found = f"{count(of.n, 'repeat')} with a number of each job"
            return GroupRatio(value, reason=f"{side} has {found}; an interval needs {MIN_REPEATS}")
    verdict = judge({"": (here, base)})[""]
    return GroupRatio(value, verdict.low, verdict.high)
