"""The figures of a job from its tasks: n, fail, perf, std, perf_adj and the interval; of one run, or of several."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from benchsuite.report.measure.intervals import mean, perf_adjusted, relative_std
from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import JobSummary, Repeat, TaskSummary
from benchsuite.report.stats.samples import job_mean
from benchsuite.report.stats.throttling import job_unthrottled
from benchsuite.report.stats.use import job_use, std_parts


def job_summary(
    tasks: Sequence[TaskSummary], *, to_run: int, items_per_joule: float | None, **facts: Any
) -> JobSummary:
    """The summary of a job.

    Args:
        tasks: all that were planned.
        to_run: the tasks that a run in progress has yet to end.
        items_per_joule: of the whole job. Tasks that share a GPU do not record a figure of their own.
        facts: the fields of `JobSummary` that are no figures of its tasks, such as name, unit and settings.
    """
    ok = [task for task in tasks if task.status == "ok"]
    perfs = [task.perf for task in ok if task.perf is not None]
    perf, std = mean(perfs), relative_std(perfs)
    fail = len(tasks) - to_run - len(ok)
    job = JobSummary(
        n=len(tasks),
        fail=fail,
        not_run=sum(task.status in OPEN for task in tasks) - to_run,
        to_run=to_run,
        perf=perf,
        std=std,
        std_parts=std_parts(tasks),
        perf_adj=perf_adjusted(perf, std, len(tasks) - to_run, fail),
        min=min(perfs, default=None),
        max=max(perfs, default=None),
        slices=sum(task.slices for task in ok),
        seconds=math.fsum(task.seconds for task in ok),
        unsteady=sum(task.steady is False for task in ok),
        perf_unthrottled=job_unthrottled(tasks),
        use=job_use(tasks, items_per_joule),
        repeats=_repeats(tasks),
        tasks=tuple(tasks),
        **facts,
    )
    around = job_mean(job)
    return replace(job, interval=around.interval if around else None)


def _repeats(tasks: Iterable[TaskSummary]) -> tuple[Repeat, ...]:
    perfs: dict[tuple[int, int], list[float | None]] = defaultdict(list)
    for task in tasks:
        perfs[task.session, task.repeat].append(task.perf)
    return tuple(
        Repeat(session=session, repeat=repeat, tasks=len(of), ok=sum(perf is not None for perf in of), perf=mean(of))
        for (session, repeat), of in sorted(perfs.items())
    )
