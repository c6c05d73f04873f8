"""Convert files of older schemas: one function for each schema number and kind of file, on plain JSON content.

A step is never changed after its schema was released. It uses only the fields of its two schemas and imports no record.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Content = dict[str, Any]

# --- 1 -> 2 -----------------------------------------------------------------------------------------------------------

_TRAINING_1 = ("precision", "compile", "channels_last", "parallel")
# Before schema 2, batches were copied on the stream that computes, and no batch was split.
_TRAINING_NEW = {"accumulate": 1, "prefetch": False, "array": 1}
_WORK_2 = (
    *("model", "entry", "params", "precision", "compile", "channels_last", "accumulate", "prefetch", "parallel"),
    *("array", "data", "page_cache"),
)
_CROWDED_1 = "its share and ours overlap"


def _job_2(job: Content) -> Content:
    training = {name: job[name] for name in _TRAINING_1 if name in job}
    own = {name: value for name, value in job.items() if name not in training}
    return {**own, "training": {**training, **_TRAINING_NEW}}


def _task_2(task: Content) -> Content:
    job = _job_2(task["job"])
    name, ranks = job["name"], task.get("ranks", 1)
    progression = job.get("placement", {}).get("devices") == "progression"
    row = f"{name}.{ranks}" if progression else name
    return {
        **task,
        "job": job,
        "cell": name,
        "row": row,
        "axes": {"gpus" if task.get("gpus") or task.get("skip") else "ranks": ranks} if progression else {},
        "per": ranks if progression else 1,
        "wave": f"{row}.R{task['repeat']}",
    }


def _plan_2(plan: Content) -> Content:
    tasks = [_task_2(task) for task in plan["tasks"]]
    grouped = itertools.groupby(tasks, key=lambda task: task["wave"])
    return {"waves": [{"name": name, "tasks": list(of)} for name, of in grouped]}


def _run_2(run: Content) -> Content:
    return {"machines": [run["machine"]], "begun_schema": 1}


def _result_2(result: Content) -> Content:
    task, anchor, identity = _task_2(result["task"]), result["anchor"], result["identity"]
    clock = {"host": identity["host"], **anchor}
    streams = [{**stream, "clock": clock} for stream in result.get("measurement", {}).get("streams", ())]
    tenant = result["tenant"]
    return {
        "task": task,
        "identity": {**identity, **{name: task[name] for name in ("cell", "row", "axes")}},
        "timeline": {**result["timeline"], "clock": clock},
        "measurement": {"streams": streams},
        "tenant": {**tenant, "crowded": _CROWDED_1 in tenant["reason"]},
    }


def _summary_2(summary: Content) -> Content:
    machine = summary.get("machine")
    return {"machines": [machine] if machine else [], "jobs": [_job_summary_2(job) for job in summary["jobs"]]}


def _job_summary_2(job: Content) -> Content:
    name, gpus = job["name"], job.get("group_gpus", 1)
    progression = job.get("devices") == "progression"
    changed: Content = {
        "job": name.removesuffix(f".{gpus}") if progression else name,
        "axes": {"gpus": gpus} if progression else {},
        "per": gpus,
    }
    if settings := job.get("settings"):
        return _rehashed({**job, **changed, "settings": {**settings, **_TRAINING_NEW}}, _WORK_2)
    return {**job, **changed}


def _rehashed(job: Content, fields: Sequence[str]) -> Content:
    """A job of a summary with the hash of its workload from its settings; tasks that had the job's hash get it, too."""
    own = job.get("workload")
    if not own:
        return job
    work = _workload(job["settings"], fields)
    tasks = [{**task, "workload": work} if task.get("workload") == own else task for task in job.get("tasks", ())]
    return {**job, "workload": work, "tasks": tasks}


def _workload(settings: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The same hash as `describe.work.workload` of the schema that has these fields."""
    what = {field: settings.get(field) for field in fields}
    what["parallel"] = {name: value for name, value in (what["parallel"] or {}).items() if name != "port"}
    return hashlib.sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# --- 2 -> 3 -----------------------------------------------------------------------------------------------------------

# Before schema 3, the warm-up was a fixed number of steps.
_JOB_NEW = {"warm_up_s": 0.0}


def _task_3(task: Content) -> Content:
    return {**task, "job": {**task["job"], **_JOB_NEW}}


def _run_3(run: Content) -> Content:
    return {"begun_schema": run.get("begun_schema", 2)}


def _plan_3(plan: Content) -> Content:
    return {"waves": [{**wave, "tasks": list(map(_task_3, wave["tasks"]))} for wave in plan["waves"]]}


def _result_3(result: Content) -> Content:
    return {"task": _task_3(result["task"])}


def _summary_3(summary: Content) -> Content:
    return {"jobs": [_job_summary_3(job) for job in summary["jobs"]]}


def _job_summary_3(job: Content) -> Content:
    settings = job.get("settings")
    return {**job, "settings": {**settings, **_JOB_NEW}} if settings else job


# --- 3 -> 4 -----------------------------------------------------------------------------------------------------------

# Before schema 4, a task on a GPU had as many intra-op threads as CPUs, too.
_THREADS_NEW = {"intra_op_threads": "cpus"}
_WORK_4 = (*_WORK_2, "intra_op_threads")


def _task_4(task: Content) -> Content:
    job = task["job"]
    return {**task, "job": {**job, "training": {**job["training"], **_THREADS_NEW}}}


def _run_4(run: Content) -> Content:
    return {"begun_schema": run.get("begun_schema", 3)}


def _plan_4(plan: Content) -> Content:
    return {"waves": [{**wave, "tasks": list(map(_task_4, wave["tasks"]))} for wave in plan["waves"]]}


def _result_4(result: Content) -> Content:
    return {"task": _task_4(result["task"])}


def _summary_4(summary: Content) -> Content:
    return {"jobs": [_job_summary_4(job) for job in summary["jobs"]]}


def _job_summary_4(job: Content) -> Content:
    settings = job.get("settings")
    return _rehashed({**job, "settings": {**settings, **_THREADS_NEW}}, _WORK_4) if settings else job


_STEPS: dict[int, dict[str, Callable[[Content], Content]]] = {
    1: {"run": _run_2, "plan": _plan_2, "result": _result_2, "summary": _summary_2},
    2: {"run": _run_3, "plan": _plan_3, "result": _result_3, "summary": _summary_3},
    3: {"run": _run_4, "plan": _plan_4, "result": _result_4, "summary": _summary_4},
}


def upgraded(content: Content, found: int, schema: int) -> Content:
    """The content converted from schema `found` to `schema`, one step at a time.

    Raises:
        ValueError: the content lacks a field that its schema requires.
    """
    for step in range(found, schema):
        change = _STEPS[step].get(str(content.get("kind")))
        try:
            content = {**content, **(change(content) if change else {}), "schema": step + 1}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a valid file of schema {step}: {type(error).__name__} {error}") from None
    return content
