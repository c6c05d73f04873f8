"""Files of schema 1 are read as today's: plan, run, result and summary, with the way they were measured."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchsuite import files
from benchsuite.describe import work
from benchsuite.describe.tasks import Plan
from benchsuite.records import Result, Run
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import read_summary
from benchsuite.schema import SCHEMA, from_json

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
            assert job.settings["prefetch"] is False
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
