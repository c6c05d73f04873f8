"""Files of older schemas are read as today's: plan, run, result and summary, with the way they were measured."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import benchsuite, one_line_error, write_profile

from benchsuite import files, manifest
from benchsuite.describe import work
from benchsuite.describe.goal import DEFAULTS as GOAL
from benchsuite.describe.tasks import Job, Plan
from benchsuite.describe.training import Parallel, Training
from benchsuite.records import Result, Run
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import read_summary
from benchsuite.report.stats.differences import trained_changes
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.verify.check import RECORDS, check
from benchsuite.report.verify.hashed import jobs_of_schema
from benchsuite.rundir import RunDir
from benchsuite.schema import SCHEMA, from_json, to_json
from benchsuite.upgrade import _WORK_4, _workload

JOB = {
    "name": "scaling",
    "model": "vae",
    "params": {"batch_size": 64},
    "placement": {"devices": "progression"},
    "parallel": {"dp": None, "port": None},
    "precision": "bf16",
    "compile": "default",
    "channels_last": True,
}
GPUS = [
    {"visible_index": index, "nvml_index": index, "uuid": f"GPU-{index}", "name": "A", "pci": f"{index}"}
    for index in range(2)
]
MACHINE = {
    "host": "node1", "boot_id": "boot", "system": "Linux", "kernel": "6", "cpu": "C", "cpus": 8, "cpus_usable": 8,
    "memory_bytes": 1, "gpus": GPUS, "visible": ["GPU-0", "GPU-1"], "python": "3.11", "packages": {},
}  # fmt: skip
# Fields that were added during schema 4, after `checkpoint` and `fsdp`.
NEWEST_OF_JOB = ("container", "sharing", "copies", *GOAL)
NEWEST_OF_TRAINING = ("lr_schedule", "unfused_units")
NEWEST_OF_PARALLEL = ("backend", "pp", "schedule", "microbatches", "stages", "replicas")


def older_placement(fields: dict[str, Any]) -> dict[str, Any]:
    """A placement as it was before `sharing` and `copies` were fields of the job."""
    before = list(fields)[: list(fields).index("nodes") + 1]
    return {**{name: fields[name] for name in before}, "copies": 1, "share": "timeslice", **fields}


def without_newest(job: dict[str, Any]) -> None:
    """Take the newest fields out of a job."""
    for of, names in (
        (job, NEWEST_OF_JOB),
        (job["training"], NEWEST_OF_TRAINING),
        (job["training"]["parallel"], NEWEST_OF_PARALLEL),
    ):
        for name in names:
            del of[name]
    job["placement"] = older_placement(job["placement"])


def task(ranks: int, repeat: int = 0) -> dict[str, Any]:
    place = {"gpus": GPUS[:ranks], "ranks": ranks, "repeat": repeat, "cell": None}
    return {"id": f"scaling.J{repeat}.{ranks - 1}", "profile": "p", "job": JOB, **place}


RESULT = {
    "schema": 1, "kind": "result", "status": "ok",
    "identity": {
        "host": "node1", "profile": "p", "job": "scaling", "cell": None, "repeat": 0, "devices": [0, 1], "copy": 0,
        "attempt": 1,
    },
    "task": task(2),
    "machine": {"gpus": GPUS, "driver": None, "facts_sha256": "0"},
    "code": {"version": "0.1.0"},
    "tenant": {"asked": "share", "reason": "another run (1): its share and ours overlap"},
    "timeline": {"queued_s": 1.0},
    "anchor": {"boot_id": "boot", "wall": "2026-01-01T00:00:00+00:00", "monotonic_s": 5.0},
    "measurement": {"streams": [{"device": "cuda:0", "unit": "image", "origin_s": 2.0, "slices": [[0.0, 0.5, 1, 64]]}]},
}  # fmt: skip


def of_schema_1(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def test_a_plan_gets_its_waves_and_each_task_what_the_plan_decides() -> None:
    tasks = [task(ranks, repeat) for repeat in range(2) for ranks in (1, 2)]
    plan = from_json(of_schema_1({"schema": 1, "kind": "plan", "tasks": tasks}), Plan)
    assert [(wave.name, [t.id for t in wave.tasks]) for wave in plan.waves] == [
        ("scaling.1.R0", ["scaling.J0.0"]), ("scaling.2.R0", ["scaling.J0.1"]),
        ("scaling.1.R1", ["scaling.J1.0"]), ("scaling.2.R1", ["scaling.J1.1"]),
    ]  # fmt: skip
    last = plan.tasks[-1]
    assert (last.cell, last.row, last.axes, last.per) == ("scaling", "scaling.2", {"gpus": 2}, 2)


def test_a_job_says_that_batches_were_copied_on_the_stream_that_computes() -> None:
    training = from_json(of_schema_1(RESULT), Result).task.job.training
    assert (training.precision, training.compile, training.channels_last) == ("bf16", "default", True)
    assert (training.accumulate, training.prefetch, training.array) == (1, False, 1)


def test_a_task_of_older_files_had_as_many_threads_as_cpus() -> None:
    result = from_json(of_schema_1(RESULT), Result)
    assert result.task.job.training.intra_op_threads == "cpus"
    third = json.loads(to_json(result)) | {"schema": 3}
    del third["task"]["job"]["training"]["intra_op_threads"]
    assert from_json(of_schema_1(third), Result) == result


def test_the_warm_up_of_older_files_was_a_number_of_steps() -> None:
    result = from_json(of_schema_1(RESULT), Result)
    assert result.task.job.warm_up_s == 0.0
    second = json.loads(to_json(result)) | {"schema": 2}
    del second["task"]["job"]["warm_up_s"]
    del second["task"]["job"]["training"]["intra_op_threads"]
    assert from_json(of_schema_1(second), Result) == result
    new = ("warm_up_s", "intra_op_threads")
    settings = {name: value for name, value in work.settings(result.task.job).items() if name not in new}
    jobs = [{"name": "a", "job": "a", "n": 1, "fail": 0, "perf_adj": 1.0, "settings": of} for of in (settings, {})]
    kept = {"schema": 2, "kind": "summary", "source": "x", "jobs": jobs}
    known, unknown = from_json(of_schema_1(kept), Summary).jobs
    assert known.settings == work.settings(result.task.job)
    assert unknown.settings == {}, "another program's figures say nothing about their warm-up"


def test_streams_and_timeline_get_the_results_clock() -> None:
    result = from_json(of_schema_1(RESULT), Result)
    (stream,) = result.measurement.streams
    assert stream.clock == result.timeline.clock
    assert (stream.clock.host, stream.clock.boot_id, stream.clock.monotonic_s) == ("node1", "boot", 5.0)
    assert result.tenant.crowded
    assert (result.identity.cell, result.identity.row, result.identity.axes) == ("scaling", "scaling.2", {"gpus": 2})


def test_a_run_holds_its_machine() -> None:
    run = {
        "schema": 1, "kind": "run", "created": "now", "command": ["jobs"], "repeats": 1, "machine": MACHINE,
        "profile": {"name": "p", "path": "p", "sha256": "", "text": "", "official": False}, "code": {"version": "0"},
    }  # fmt: skip
    assert [machine.host for machine in from_json(of_schema_1(run), Run).machines] == ["node1"]


@pytest.mark.parametrize("name", ["h200", "h200x2", "v100", "rtx8000"])
def test_shipped_baselines_are_read_and_their_workloads_are_todays_hashes(name: str) -> None:
    """So that a baseline that was made before compares with a run of today by what both trained."""
    path = files.shipped("baselines")[name]
    old, summary = json.loads(path.read_text()), read_summary(path)
    assert (summary.schema, [job.name for job in summary.jobs]) == (SCHEMA, [job["name"] for job in old["jobs"]])
    for before, job in zip(old["jobs"], summary.jobs, strict=True):
        assert (job.perf, job.perf_adj, job.per) == (before["perf"], before["perf_adj"], before.get("group_gpus", 1))
        assert (job.job, job.axes) == (("scaling", {"gpus": job.per}) if "scaling" in job.name else (job.name, {}))
        if job.workload:
            assert (job.settings["prefetch"], job.settings["warm_up_s"]) == (False, 0.0)
            assert job.settings["intra_op_threads"] == "cpus"
            assert job.workload == work.workload(job.settings)
            assert {task.workload for task in job.tasks} == {job.workload}


@pytest.mark.parametrize("lacking", ["task", "anchor", "identity", "timeline", "tenant"])
def test_a_damaged_file_of_schema_1_is_refused_in_words(lacking: str) -> None:
    content = {name: value for name, value in copy.deepcopy(RESULT).items() if name != lacking}
    with pytest.raises(ValueError, match=f"not a valid file of schema 1: KeyError '{lacking}'"):
        from_json(of_schema_1(content), Result)


def test_a_summary_that_is_no_mapping_inside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a valid file of schema 1"):
        from_json(of_schema_1({"schema": 1, "kind": "summary", "jobs": ["x"]}), Summary)


# --- a whole run of an older benchsuite -------------------------------------------------------------------------------

NEW_OF_A_TASK = ("cell", "row", "axes", "per", "wave")
JOB_OF_SCHEMA_1 = (
    *("name", "model", "entry", "params", "placement", "parallel", "max_count", "max_steps", "min_time_s"),
    *("max_time_s", "timeout_s", "loss_band", "precision", "compile", "channels_last", "data", "page_cache"),
    *("prepare", "env", "tenant", "tags"),
)


def older_task(task: dict[str, Any]) -> dict[str, Any]:
    training = task["job"]["training"]
    added = ("fsdp", *NEWEST_OF_PARALLEL)
    parallel = {name: value for name, value in training["parallel"].items() if name not in added}
    placement = older_placement(task["job"]["placement"])
    fields = {**task["job"], **training, "parallel": parallel, "placement": placement}
    kept = {name: value for name, value in task.items() if name not in NEW_OF_A_TASK}
    return {**kept, "cell": None, "job": {name: fields[name] for name in JOB_OF_SCHEMA_1}}


def older_result(result: dict[str, Any]) -> dict[str, Any]:
    clock = result["timeline"].pop("clock")
    for stream in result["measurement"]["streams"]:
        del stream["clock"]
    identity = {name: value for name, value in result["identity"].items() if name not in ("row", "axes")}
    del clock["host"]
    changed = {"task": older_task(result["task"]), "identity": {**identity, "cell": None}, "anchor": clock}
    return {**result, **changed, "schema": 1}


def make_older(run: Path, schema: int) -> None:
    """Rewrite a run folder as schema 1, 2 or 3 had it."""
    if schema == 1:
        make_of_schema_1(run)
    else:
        make_of_schema_2_or_3(run, schema)
    manifest.seal(run)


def make_of_schema_1(run: Path) -> None:
    plan, about = (json.loads((run / name).read_text()) for name in ("plan.json", "run.json"))
    tasks = [older_task(task) for wave in plan["waves"] for task in wave["tasks"]]
    about["profile"]["sha256"] = profile_hash(tasks)
    (about["machine"],) = about.pop("machines")
    about["command"] = about["command"][: about["command"].index("--")]
    (run / "plan.json").write_text(json.dumps({"schema": 1, "kind": "plan", "tasks": tasks}))
    (run / "run.json").write_text(json.dumps({**about, "schema": 1}))
    for file in run.glob("p.*.json"):
        file.write_text(json.dumps(older_result(json.loads(file.read_text()))))


def without_new_fields(job: dict[str, Any], schema: int) -> None:
    without_newest(job)
    del job["training"]["intra_op_threads"], job["training"]["checkpoint"], job["training"]["parallel"]["fsdp"]
    if schema == 2:
        del job["warm_up_s"]


def make_of_schema_2_or_3(run: Path, schema: int) -> None:
    plan, about = (json.loads((run / name).read_text()) for name in ("plan.json", "run.json"))
    tasks = [task for wave in plan["waves"] for task in wave["tasks"]]
    for one in tasks:
        without_new_fields(one["job"], schema)
    about["profile"]["sha256"] = profile_hash(tasks)
    about["command"] = about["command"][: about["command"].index("--")]
    (run / "plan.json").write_text(json.dumps({**plan, "schema": schema}))
    (run / "run.json").write_text(json.dumps({**about, "schema": schema, "begun_schema": schema}))
    for file in run.glob("p.*.json"):
        result = json.loads(file.read_text())
        without_new_fields(result["task"]["job"], schema)
        file.write_text(json.dumps({**result, "schema": schema}))


def profile_hash(tasks: list[dict[str, Any]]) -> str:
    jobs = list({task["job"]["name"]: task["job"] for task in tasks}.values())
    ordered = [{**job, "params": dict(sorted(job["params"].items()))} for job in jobs]
    return hashlib.sha256(json.dumps(ordered, separators=(",", ":")).encode()).hexdigest()


def test_fields_added_within_a_schema_leave_workloads_and_hashes_of_before_as_they_are() -> None:
    job = Job(name="one", model="vae", training=Training(parallel=Parallel(dp=2, port=7)))
    settings = work.settings(job)
    assert "checkpoint" not in settings and settings["parallel"] == {"dp": 2, "port": 7}
    assert work.workload(settings) == _workload(settings, _WORK_4)
    before = msgspec.to_builtins(job)
    without_newest(before)
    without_pipelines = profile_hash([{"job": before}])
    del before["training"]["checkpoint"], before["training"]["parallel"]["fsdp"]
    assert jobs_of_schema(4, [job]) == (profile_hash([{"job": before}]), without_pipelines)
    other = msgspec.structs.replace(job, training=Training(checkpoint=True, parallel=Parallel(dp=2, fsdp=2)))
    assert work.workload(work.settings(other)) != work.workload(settings)
    assert set(trained_changes(work.settings(other), settings)) == {
        "checkpoint none -> true",
        "parallel.fsdp none -> 2",
    }


@pytest.mark.parametrize(
    ("schema", "then", "changes"),
    [
        (
            1,
            ("--warm-up-s", "0", "--no-prefetch", "--intra-op-threads", "cpus"),
            ("warm_up_s 0.0 -> 2.0", "prefetch False -> True", "intra_op_threads cpus -> auto"),
        ),
        (
            2,
            ("--warm-up-s", "0", "--intra-op-threads", "cpus"),
            ("warm_up_s 0.0 -> 2.0", "intra_op_threads cpus -> auto"),
        ),
        (3, ("--intra-op-threads", "cpus"), ("intra_op_threads cpus -> auto",)),
    ],
)
def test_a_run_of_an_older_schema_is_reported_verified_and_resumed_as_it_was_measured(
    schema: int, then: tuple[str, ...], changes: tuple[str, ...], tmp_path: Path
) -> None:
    write_profile(tmp_path / "p.json", one={}, two={})
    common = json.loads((tmp_path / "p.json").read_text())
    del common["*"]["warm_up_s"]
    (tmp_path / "p.json").write_text(json.dumps(common))
    arguments = ("jobs", "p.json", "-o", "out", "--name", "one")
    assert benchsuite(*arguments, "--", *then, cwd=tmp_path).returncode == 0
    make_older(tmp_path / "out", schema)
    records = {finding.about: finding.state for finding in check(tmp_path / "out")[RECORDS]}
    assert set(records.values()) == {"ok"}, records
    (job,) = summarise(load(tmp_path / "out")).jobs
    warm_up_s = 0.0 if schema < 3 else 2.0
    assert (job.name, job.settings["prefetch"], job.settings["warm_up_s"]) == ("one", False, warm_up_s)
    refused = benchsuite(*arguments, "--resume", "--repeat", "2", cwd=tmp_path)
    one_line_error(refused, *changes, f"an older benchsuite started it, so add '-- {' '.join(then)}'")
    resumed = benchsuite(*arguments, "--resume", "--repeat", "2", "--", *then, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert [task.repeat for task in RunDir(tmp_path / "out").plan().tasks] == [0, 1]
    records = {finding.about: finding.state for finding in check(tmp_path / "out")[RECORDS]}
    assert set(records.values()) == {"ok"}, records
