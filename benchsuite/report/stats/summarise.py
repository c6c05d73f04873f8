"""A summary from the rows of a run folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from benchsuite.describe import work
from benchsuite.describe.profile import names
from benchsuite.describe.tasks import Job, Task, lacks_gpus
from benchsuite.describe.variables import recorded_environ
from benchsuite.errors import BenchError, encodable
from benchsuite.records import Code, Result
from benchsuite.report.format import percent
from benchsuite.report.measure.window import Window
from benchsuite.report.read.flops import model_flops, pipeline_used, product_format
from benchsuite.report.read.load import INSUFFICIENT, OPEN, Loaded, Row
from benchsuite.report.read.mixed import facts_of, unlike_machines
from benchsuite.report.read.summary import BadFile, JobSummary, ProfileRef, RerunSummary, Summary, TaskGpu, TaskSummary
from benchsuite.report.read.trainings import Training, training
from benchsuite.report.read.use import Use
from benchsuite.report.read.workload import data, data_used, fence, overlap, tally, unit
from benchsuite.report.stats.cost import costs
from benchsuite.report.stats.differences import trained_changes
from benchsuite.report.stats.figures import complete, with_figures
from benchsuite.report.stats.throttling import unthrottled
from benchsuite.report.stats.together import together
from benchsuite.report.stats.use import job_items_per_joule, task_use, unsampled
from benchsuite.report.stats.wall import wall_time
from benchsuite.schema import finite
from benchsuite.telemetry import STOLEN_LIMIT

# Workloads by what they depend on. The job itself is kept, so that no other object has its identity.
_Workloads: TypeAlias = dict[tuple[int, str | None, bool, bool], tuple[Job, str]]


def summarise(loaded: Loaded) -> Summary:
    """The summary of a results folder; jobs are in the plan's order."""
    by_job: dict[str, list[Row]] = defaultdict(list)
    for row in loaded.rows:
        if not lacks_gpus(row.task):
            by_job[row.task.row].append(row)
    own = (*loaded.rows, *loaded.trainings)
    every = [row.result for row in own if row.result] or [row.result for row in loaded.reruns if row.result]
    measured = [result for result in every if result.measurement.streams]
    wall = min((result.timeline.clock.wall for result in every), default=None)
    jobs = tuple(_job(name, rows, loaded.in_progress, loaded.planned) for name, rows in by_job.items())
    left_out = _left_out(loaded)
    lacking = {task.row: task.job.placement.at_least for task in (row.task for row in loaded.rows) if lacks_gpus(task)}
    return Summary(
        source=encodable(loaded.path.resolve().name),
        created=loaded.run.created if loaded.run else wall,
        command=loaded.run.command if loaded.run else (),
        planned=loaded.planned,
        in_progress=loaded.in_progress,
        profile=_profile(loaded, every),
        machines=loaded.machines,
        code=_codes(loaded, every),
        measured_with=facts_of(measured or every),
        gpus_used=len({gpu.uuid for row in loaded.rows for gpu in row.task.gpus}),
        isolation=tally(fence(result) for result in measured or every),
        data=tally(data(result) for result in measured),
        overlap=overlap(loaded.rows),
        budget_s=loaded.run.budget_s if loaded.run else None,
        jobs=jobs,
        reruns=_reruns(loaded),
        bad_files=tuple(
            BadFile(file=encodable(file.relative_to(loaded.path).as_posix()), reason=encodable(why))
            for file, why in loaded.bad_files
        ),
        trainings=tuple(map(_training, loaded.trainings)),
        left_out=left_out,
        needs_more_gpus={name: needed for name, needed in lacking.items() if name not in by_job},
        costs=costs(result for _, result in loaded.kept),
        wall=wall_time(result for _, result in loaded.kept) if loaded.planned else None,
        complete=complete(jobs, (*left_out, *lacking)) if loaded.planned else None,
    )


def _training(row: Row) -> Training:
    if row.result is None:
        return Training(task=row.task.id, device=row.task.device, status=row.status, reason=row.reason)
    return training(row.task.id, row.result)


def _left_out(loaded: Loaded) -> tuple[str, ...]:
    """The jobs of the run's profile that its plan lacks."""
    if not (loaded.run and loaded.planned):
        return ()
    used = loaded.run.profile
    try:
        every = names(used.text, Path(used.path)) if used.text else ()
    except BenchError:
        return ()
    planned = {row.task.job.name for row in (*loaded.rows, *loaded.trainings)}
    return tuple(name for name in every if name not in planned)


def _job(name: str, rows: Sequence[Row], in_progress: bool, planned: bool) -> JobSummary:
    """One row of the report. The tasks of a plan are of one machine: a run continues on its own machine only."""
    ok = [row for row in rows if row.status == "ok"]
    workloads: _Workloads = {}
    tasks = tuple(task_summary(row, workloads) for row in rows)
    to_run = sum(row.status in OPEN for row in rows)
    job = JobSummary(
        name=name,
        job=rows[0].task.job.name,
        axes=rows[0].task.axes,
        per=rows[0].task.per,
        unit=next((found for row in ok or rows if row.result and (found := unit(row.result))), None),
        devices=rows[0].task.job.placement.devices,
        n=len(tasks),
        fail=0,
        to_run=to_run,
        not_run=0 if in_progress else to_run,
        perf_adj=0.0,
        workload=tasks[0].workload,
        unlike=_unlike(rows, tasks),
        unlike_machines=() if planned else unlike_machines(rows),
        settings=_settings(rows[0]),
        tags=rows[0].task.job.tags,
        data_used=data_used(row.result.data for row in rows if row.result and row.result.data),
        batch_size=next((s.found for row in rows if row.result and (s := row.result.batch_search)), None),
        model_flops=next((flops for row in ok if row.result and (flops := model_flops(row.result))), None),
        pipeline=next((used for row in ok if row.result and (used := pipeline_used(row.result))), None),
        product_format=next((found for row in ok if row.result and (found := product_format(row.result))), None),
        gpu_names=tuple(dict.fromkeys(gpu.name for row in ok for gpu in row.task.gpus)),
        **_group(rows),
        together=together(rows),
        tasks=tasks,
    )
    return with_figures(job, job_items_per_joule(rows))


def _unlike(rows: Sequence[Row], tasks: Sequence[TaskSummary]) -> tuple[str, ...]:
    """The differences between the workloads of a job's tasks; empty for the tasks of a plan, which are equal."""
    found: dict[str, None] = {}
    for row, task in zip(rows, tasks, strict=True):
        if task.workload != tasks[0].workload:
            found |= dict.fromkeys(trained_changes(_settings(row), _settings(rows[0])))
    return tuple(found)


def _group(rows: Sequence[Row]) -> dict[str, Any]:
    """The fields of a job whose tasks are groups of ranks."""
    ranks = rows[0].task.ranks
    if ranks == 1:
        return {}
    batch = next((r.result.task for r in rows if r.result), rows[0].task).job.params.get("batch_size")
    backend = next((r.result.group.backend for r in rows if r.result and r.result.group), None)
    return {"ranks": ranks, "batch_each": batch if isinstance(batch, int) else None, "backend": backend}


def task_summary(row: Row, workloads: _Workloads | None = None) -> TaskSummary:
    """The summary of one row.

    Args:
        workloads: those of other rows, to which this one's is added.
    """
    window, use = row.window or Window("empty"), task_use(row)
    without, reason = unthrottled(row)
    return TaskSummary(
        id=row.task.id,
        host=row.result.identity.host if row.result else None,
        repeat=row.task.repeat,
        copy=row.task.copy,
        attempt=row.result.identity.attempt if row.result else None,
        device=row.task.device,
        status=row.status,
        reason=row.reason,
        workload=_workload(row, {} if workloads is None else workloads),
        perf=row.perf,
        slices=window.slices,
        dropped=window.dropped,
        items=window.items,
        seconds=window.seconds,
        **(_steadiness(row.window, use) if row.window and row.status != INSUFFICIENT else {}),
        perf_unthrottled=without,
        unthrottled_reason=reason,
        gpus=tuple(TaskGpu(index=gpu.visible_index, uuid=gpu.uuid) for gpu in row.task.gpus),
        nodes=nodes_of(row.task),
        use=use,
        unsampled=unsampled(row.result),
        file=row.file.name if row.file else None,
    )


def nodes_of(task: Task) -> tuple[str, ...]:
    """The nodes of a task over nodes. The agents of one node have numbers behind its name."""
    return tuple(dict.fromkeys(share.node.partition(":")[0] for share in task.nodes))


def _workload(row: Row, known: _Workloads) -> str:
    """The workload of a task. The tasks of a plan share the objects of their jobs, and each is hashed once."""
    searched = bool(row.result and row.result.batch_search)
    key = id(row.task.job), row.task.entry_sha256, searched, bool(row.task.gpus)
    if key not in known:
        known[key] = row.task.job, work.workload(work.settings(_asked(row), row.task.entry_sha256))
    return known[key][1]


def _steadiness(window: Window, use: Use | None) -> dict[str, Any]:
    found = window.steadiness
    stolen = (use.cpu_stolen if use else None) or 0.0
    cause = (f"a hypervisor withheld {percent(stolen)} of its processors' time",) if stolen >= STOLEN_LIMIT else ()
    return {
        "spread": found.spread.value if found.spread else None,
        "spread_half": found.spread.half if found.spread else None,
        "drift": found.drift.value if found.drift else None,
        "drift_half": found.drift.half if found.drift else None,
        "settled_s": found.settled_s,
        "change": finite(found.change),
        "error": finite(found.error),
        "steady": found.steady,
        "unsteady": (*found.why_not, *cause) if found.why_not else (),
    }


def _asked(row: Row) -> Job:
    """The job as its profile states it: a batch size that the run found is still "auto".

    Without a GPU, `prefetch` has no effect and is false, and intra-op threads are `auto` no longer: that means `cpus`.
    """
    job = row.task.job
    if row.result and row.result.batch_search:
        job = msgspec.structs.replace(job, params={**job.params, "batch_size": "auto"})
    if not row.task.gpus:
        threads = job.training.intra_op_threads.replace("auto", "cpus")
        training = msgspec.structs.replace(job.training, prefetch=False, intra_op_threads=threads)
        job = msgspec.structs.replace(job, training=training)
    return job


def _settings(row: Row) -> dict[str, Any]:
    """The settings of a task's job, with the environment variables that can change a measurement."""
    return {**work.settings(_asked(row), row.task.entry_sha256), "environ": recorded_environ(row.task.environ)}


def _reruns(loaded: Loaded) -> tuple[RerunSummary, ...]:
    by_file = {row.file.name: row for row in loaded.rows if row.file}
    found = []
    for row in loaded.reruns:
        if rerun_of := row.task.rerun_of:
            of = Path(rerun_of.result).name
            original = by_file[of].perf if of in by_file else None
            found.append(RerunSummary(task=task_summary(row), of=of, original_perf=original, changes=rerun_of.changes))
    return tuple(found)


def _profile(loaded: Loaded, every: Sequence[Result]) -> ProfileRef | None:
    if loaded.run:
        return msgspec.convert(loaded.run.profile, ProfileRef, from_attributes=True)
    names = sorted({row.task.profile for row in loaded.rows} | {result.identity.profile for result in every})
    return ProfileRef(name=names[0]) if len(names) == 1 else None


def _codes(loaded: Loaded, every: Sequence[Result]) -> tuple[Code, ...]:
    """Every distinct code that took part, the run's first."""
    own = [loaded.run.code] if loaded.run else []
    return tuple(dict.fromkeys(own + [result.code for result in every]))
