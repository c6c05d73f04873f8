"""The figures of a job from its tasks: n, fail, perf, std, perf_adj and the interval; of one run, or of several."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from benchsuite.report.measure.intervals import mean, perf_adjusted, relative_std
from benchsuite.report.read.summary import JobState, JobSummary, Repeat, TaskSummary
from benchsuite.report.stats.samples import job_mean
from benchsuite.report.stats.throttling import job_unthrottled
from benchsuite.report.stats.use import job_use, std_parts


def with_figures(job: JobSummary, items_per_joule: float | None) -> JobSummary:
    """The job with every figure that its tasks give; its other fields, `to_run` and `not_run` among them, stay.

    Args:
        items_per_joule: of the whole job. Tasks that share a GPU do not record a figure of their own.
    """
    ok = [task for task in job.tasks if task.status == "ok"]
    perfs = [task.perf for task in ok if task.perf is not None]
    perf, std = mean(perfs), relative_std(perfs)
    ended = len(job.tasks) - job.to_run
    fail = ended - len(ok)
    job = replace(
        job,
        n=len(job.tasks),
        state=_state(job, len(ok)),
        fail=fail,
        perf=perf,
        std=std,
        std_parts=std_parts(job.tasks),
        perf_adj=perf_adjusted(perf, std, ended, fail),
        min=min(perfs, default=None),
        max=max(perfs, default=None),
        slices=sum(task.slices for task in ok),
        seconds=math.fsum(task.seconds for task in ok),
        unsteady=sum(task.steady is False for task in ok),
        perf_unthrottled=job_unthrottled(job.tasks),
        use=job_use(job.tasks, items_per_joule),
        repeats=_repeats(job.tasks),
    )
    if job.unlike_machines:
        return _without_figures(job)
    around = job_mean(job)
    return replace(job, interval=around.interval if around else None)


def _without_figures(job: JobSummary) -> JobSummary:
    """The job without any figure over its tasks, whose machines differ. The tasks keep theirs."""
    repeats = tuple(replace(repeat, perf=None) for repeat in job.repeats)
    none = dict.fromkeys(("perf", "std", "std_parts", "perf_unthrottled", "use", "interval"))
    return replace(job, **none, perf_adj=0.0, repeats=repeats)


def _state(job: JobSummary, ok: int) -> JobState:
    n = len(job.tasks)
    if job.to_run > job.not_run:
        return "in progress"
    if job.not_run:
        return "never run" if job.not_run == n else "unfinished"
    return "ok" if ok == n else "fails in part" if ok else "fails"


def complete(jobs: Iterable[JobSummary], left_out: Iterable[str]) -> bool:
    """Whether every planned task was run, every job has a number, and no job of the profile was left out."""
    return not any(left_out) and all(job.perf is not None and not job.to_run for job in jobs)


def _repeats(tasks: Iterable[TaskSummary]) -> tuple[Repeat, ...]:
    perfs: dict[tuple[int, int], list[float | None]] = defaultdict(list)
    for task in tasks:
        perfs[task.session, task.repeat].append(task.perf)
    return tuple(
        Repeat(session=session, repeat=repeat, tasks=len(of), ok=sum(perf is not None for perf in of), perf=mean(of))
        for (session, repeat), of in sorted(perfs.items())
    )
