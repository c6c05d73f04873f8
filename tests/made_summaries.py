"""Summaries whose tasks have given rates, with the figures that `summarise` derives from them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from conftest import make_gpu, make_run

from benchsuite.report.measure.intervals import mean, perf_adjusted, relative_std
from benchsuite.report.read.summary import GpuSummary, JobSummary, ProfileRef, Repeat, Summary, TaskGpu, TaskSummary

FAILED, NOT_RUN = "failed", "not run"
# A rate in items/s, or the status of a task without one.
Outcome = float | str


def made_job(
    name: str,
    *gpus: Sequence[Outcome],
    sessions: Sequence[int] | None = None,
    in_progress: bool = False,
    **fields: Any,
) -> JobSummary:
    """A job with one task on each GPU in each repeat.

    Args:
        gpus: the outcomes on each GPU, one for each repeat.
        sessions: the session of each repeat; all in one by default.
        in_progress: tasks that are not run are still to run.
    """
    columns = sessions or [0] * len(gpus[0])
    numbers = [columns[:place].count(session) for place, session in enumerate(columns)]
    keys = list(zip(columns, numbers, strict=True))
    tasks = [
        _task(name, key, gpu, outcome)
        for gpu, outcomes in enumerate(gpus)
        for key, outcome in zip(keys, outcomes, strict=True)
    ]
    rates = [task.perf for task in tasks if task.perf is not None]
    still_open = sum(task.status == NOT_RUN for task in tasks)
    fail = len(tasks) - still_open - len(rates)
    perf, std = mean(rates), relative_std(rates)
    figures: dict[str, Any] = {
        "n": len(tasks),
        "fail": fail,
        "not_run": 0 if in_progress else still_open,
        "to_run": still_open,
        "perf": perf,
        "std": std,
        "perf_adj": perf_adjusted(perf, std, len(tasks) - still_open, fail),
        "workload": name,
        "repeats": tuple(_repeat(key, [task for task in tasks if (task.session, task.repeat) == key]) for key in keys),
        "tasks": tuple(tasks),
    }
    return JobSummary(name=name, job=name, **{**figures, **fields})


def _task(name: str, key: tuple[int, int], gpu: int, outcome: Outcome) -> TaskSummary:
    session, repeat = key
    return TaskSummary(
        id=f"{name}.{session}.{repeat}.{gpu}",
        host="hostA",
        session=session,
        repeat=repeat,
        device=f"GPU {gpu}",
        status=outcome if isinstance(outcome, str) else "ok",
        perf=None if isinstance(outcome, str) else outcome,
        gpus=(TaskGpu(index=gpu, uuid=make_gpu(gpu).uuid),),
    )


def _repeat(key: tuple[int, int], tasks: Sequence[TaskSummary]) -> Repeat:
    rates = [task.perf for task in tasks if task.perf is not None]
    perf = statistics.fmean(rates) if rates else None
    return Repeat(session=key[0], repeat=key[1], tasks=len(tasks), ok=len(rates), perf=perf)


def flat(name: str, rate: Outcome, gpus: int = 1, repeats: int = 3, **fields: Any) -> JobSummary:
    """A job with the same outcome in each of its tasks."""
    return made_job(name, *([rate] * repeats for _ in range(gpus)), **fields)


def made_run(*jobs: JobSummary, gpus: int = 1, profile: str = "suite", **fields: Any) -> Summary:
    """A run of these jobs on all GPUs of a machine."""
    kept = {"profile": ProfileRef(name=profile), "machines": make_run(gpus).machines, "gpus_used": gpus, **fields}
    return Summary(source="run", jobs=jobs, **kept)


def published_job(name: str, rate: float, gpus: int, repeats: int = 10, **fields: Any) -> JobSummary:
    """A job of a published baseline, which keeps no figures per repeat."""
    cards = tuple(GpuSummary(gpu=f"GPU {index}", n=repeats, perf=rate) for index in range(gpus))
    figures: dict[str, Any] = {"n": repeats * gpus, "fail": 0, "perf": rate, "perf_adj": rate, "gpus": cards}
    return JobSummary(name=name, job=name, **{"workload": name, **figures, **fields})
