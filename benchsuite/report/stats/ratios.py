"""A job beside the same job of a base: whether both train the same, and the ratio of their speeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec.structs import replace

from benchsuite.report.format import count
from benchsuite.report.read.summary import JobSummary
from benchsuite.report.stats.differences import trained_changes
from benchsuite.report.stats.failures import FailureTest
from benchsuite.report.stats.samples import LogMean, job_mean, repeat_rates
from benchsuite.report.stats.settings import SettingDifference, named_difference
from benchsuite.report.stats.verdict import Verdict
from benchsuite.report.stats.welch import Side


@dataclass(frozen=True)
class JobRatio:
    """A job on both sides, with all rates in today's unit (items/s).

    Attributes:
        same_workload: None if a side does not record its workload; False keeps the job from a comparison unless it has
            a `difference` or is `forced`.
        of_means: the ratio of the geometric means over repeats; None if a side keeps no numbers per repeat.
        unknown: the sides that do not record their workload.
        excluded: the reason not to compare the job at all.
        difference: the setting that the ratio is about; None for the same workload, or for the reason `unnamed`.
        fields: the fields in which the workloads differ, if known.
        factor: the rates of this run were multiplied by it.
        base_factor: the rates of the base were multiplied by it.
        unsteady: the ok tasks of this run and of the base whose window is not steady.
        failures: None if no task fails on either side.
    """

    name: str
    perf: float | None
    base_perf: float | None
    perf_adj: float
    base_perf_adj: float
    same_workload: bool | None
    verdict: Verdict
    of_means: float | None = None
    unknown: str | None = None
    excluded: str | None = None
    difference: SettingDifference | None = None
    unnamed: str | None = None
    fields: tuple[str, ...] = ()
    forced: bool = False
    factor: float = 1.0
    base_factor: float = 1.0
    unsteady: tuple[int, int] = (0, 0)
    failures: FailureTest | None = None

    @property
    def refused(self) -> bool:
        """Whether the job has no ratio because the workloads differ."""
        return self.same_workload is False and self.difference is None and not self.forced

    @property
    def comparable(self) -> bool:
        """Whether the job could have a ratio, if both sides have a figure."""
        return not (self.refused or self.excluded)

    @property
    def ratio(self) -> float | None:
        """The speed over the base's; None if a side has none, or if the workloads keep the job from a ratio."""
        if self.refused or self.perf is None or not self.base_perf:
            return None
        return self.perf / self.base_perf if self.of_means is None else self.of_means

    @property
    def ratio_adj(self) -> float | None:
        """The ratio of perf_adj, which counts std% and failures."""
        return self.perf_adj / self.base_perf_adj if self.base_perf_adj and not self.refused else None


def job_ratio(
    job: JobSummary, base: JobSummary, same_profile: bool, unlike: bool, other_machine: str | None = None
) -> JobRatio:
    """The ratio of two jobs, without a verdict.

    Args:
        job, base: `in_todays_unit`.
        same_profile: the runs are of one profile or of changed copies of it.
        unlike: compare different workloads too.
        other_machine: why both sides are not known to be of one machine; else a differing setting is named.
    """
    same = _same_workload(job, base, same_profile)
    unknown = [name for name, of in (("this run", job), ("the baseline", base)) if not of.workload]
    named = None if same is not False else other_machine or named_difference(job, base)
    difference = named if isinstance(named, SettingDifference) else None
    both = job_mean(job), job_mean(base)
    return JobRatio(
        name=job.name,
        perf=job.perf,
        base_perf=base.perf,
        perf_adj=job.perf_adj,
        base_perf_adj=base.perf_adj,
        same_workload=same,
        verdict=Verdict(None),
        of_means=_ratio(both[0].mean - both[1].mean) if both[0] and both[1] else None,
        unknown=" and ".join(unknown) or None,
        excluded=base.excluded or job.excluded or _of_unlike_machines(job, base),
        fields=job.unlike or base.unlike or trained_changes(job.settings, base.settings) if same is False else (),
        forced=unlike and same is False and difference is None,
        difference=difference,
        unnamed=named if isinstance(named, str) else None,
        factor=job.unit_factor or 1.0,
        base_factor=base.unit_factor or 1.0,
        unsteady=(job.unsteady, base.unsteady),
    )


def _of_unlike_machines(job: JobSummary, base: JobSummary) -> str | None:
    """Why a job has no single rate on a side; None if it has one on both."""
    sides = (("this run", job), ("the baseline", base))
    mixed = " and ".join(name for name, of in sides if of.unlike_machines)
    return f"results of unlike machines in {mixed}" if mixed else None


def _ratio(log: float) -> float | None:
    return math.exp(log) if abs(log) < 300 else None


def _same_workload(job: JobSummary, base: JobSummary, same_profile: bool) -> bool | None:
    """Whether two jobs train the same; None if a side does not record it and the profiles are related.

    A job whose own tasks differ in their workload is the same as no other.
    """
    if job.unlike or base.unlike:
        return False
    if job.workload and base.workload:
        return job.workload == base.workload
    return None if same_profile else False


def in_todays_unit(job: JobSummary) -> JobSummary:
    """The job with its rates multiplied by `unit_factor`, on whichever side has one."""
    if job.unit_factor is None:
        return job
    factor = job.unit_factor
    return replace(
        job,
        perf=None if job.perf is None else job.perf * factor,
        perf_adj=job.perf_adj * factor,
        repeats=tuple(replace(r, perf=None if r.perf is None else r.perf * factor) for r in job.repeats),
        tasks=tuple(replace(t, perf=None if t.perf is None else t.perf * factor) for t in job.tasks),
    )


def side(job: JobSummary, which: str) -> Side:
    """The mean of a job as one side of a test, or the reason why it has none.

    Args:
        which: "this run" or "the baseline".
    """
    rates = repeat_rates(job)
    if not rates:
        return f"{which} keeps no numbers per repeat"
    mean: LogMean | None = job_mean(job)
    return mean or f"a repeat of {which} has a throughput of 0"


def without_figure(job: JobSummary, base: JobSummary) -> Verdict | None:
    """The verdict where a side has no figure: FAILS, BASE FAILS, or a reason; None if both have one.

    A job with tasks still to run has not failed yet.
    """
    if job.perf is not None and base.perf is not None:
        return None
    here, there = (_why(of, which) for of, which in ((job, "here"), (base, "in the baseline")))
    reason = "; ".join(why for why in (here, there) if why)
    if base.perf is not None and job.fail and not job.to_run:
        return Verdict("FAILS", reason=reason)
    if job.perf is not None and base.fail and not base.to_run:
        return Verdict("BASE FAILS", reason=reason)
    return Verdict(None, reason=reason)


def _why(job: JobSummary, where: str) -> str | None:
    if job.perf is not None:
        return None
    open_tasks = f", {job.to_run} still to run" if (job.to_run and job.ended) or job.to_run > job.not_run else ""
    if job.fail:
        return f"fails in {job.fail:,} of {count(job.ended, 'task')} {where}{open_tasks}"
    return f"no task has ended yet {where}{open_tasks}" if open_tasks else f"not run yet {where}"
