"""Pipelines in reports: bubbles, and speed beside that of data parallel training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from conftest import Call, keep_run, make_gpu, make_result, make_run, make_task
from made_summaries import flat

from benchsuite.describe.tasks import Job, Placement
from benchsuite.describe.training import Parallel, Training
from benchsuite.measurement import Measurement, PipelineUsed, StageUsed
from benchsuite.records import Result
from benchsuite.report.read.summary import JobSummary
from benchsuite.report.stats.pipelines import speed_ups

USED = PipelineUsed(
    schedule="1f1b",
    microbatches=8,
    cut_by="flops",
    stages=(StageUsed(units=4, parameters=10, ranks=(0,)), StageUsed(units=7, parameters=20, ranks=(1,))),
    bubble=0.2,
    ideal_bubble=1 / 9,
    idle=(0.15, 0.25),
    watched_steps=5,
)


def job(name: str, rate: float, ranks: int, batch: int = 64, lr: float = 0.1, **parallel: Any) -> JobSummary:
    settings = {"model": "gnmt", "params": {"batch_size": batch, "lr": lr}, "parallel": parallel}
    return flat(name, rate, ranks=ranks, settings=settings, pipeline=USED if "pp" in parallel else None)


def test_a_pipeline_is_compared_with_the_same_training_on_as_many_gpus() -> None:
    jobs = [
        job("one", 100, 1, dp=1),
        job("two", 150, 2, dp=2),
        job("four", 250, 4, dp=4),
        job("other", 900, 2, lr=0.2, dp=2),
        job("pipe", 180, 2, batch=128, pp=2),
        job("alike", 165, 2, pp=2),
        job("larger", 170, 2, batch=192, pp=2),
    ]
    found = {one.pipeline.name: one for one in speed_ups(jobs)}
    assert set(found) == {"pipe", "alike"}, "a batch of 192 is that of no other job"
    assert found["pipe"].over_data_parallel == 1.2
    assert found["pipe"].data_parallel and found["pipe"].data_parallel.name == "two"
    assert found["pipe"].one is None
    assert found["alike"].over_one == 1.65
    assert found["alike"].data_parallel_over_one == 1.5


def result(name: str, rate: float, used: PipelineUsed | None, **parallel: Any) -> Result:
    training = Training(parallel=Parallel(**parallel))
    one = Job(name=name, model="vae", placement=Placement(devices="all"), training=training)
    task = make_task(job=one, gpus=(make_gpu(0), make_gpu(1)), ranks=2)
    made = make_result(rates=[rate] * 30, task=task)
    stream = msgspec.structs.replace(made.measurement.streams[0], pipeline=used)
    idle = msgspec.structs.replace(stream, rank=1, pipeline=None, counts_items=False)
    return msgspec.structs.replace(made, measurement=Measurement(streams=(stream, idle)))


def test_the_report_shows_the_bubble_beside_its_theory_and_counts_items_once(call: Call, tmp_path: Path) -> None:
    results = [result("dp", 100, None, dp=2), result("pp", 150, USED, pp=2)]
    keep_run(tmp_path / "run", results, run=make_run(2))
    text = call("report", tmp_path / "run", "--md", "-")[1]
    section = text[text.index("Pipelines") :]
    assert "| pp | 1f1b | 1-1 | 4-7 | flops | 8 | 20.0 | 15.0 | 25.0 | 11.1 |" in " ".join(section.split())
    assert "1.5" in section
    summary = json.loads(call("summary", tmp_path / "run", "-o", "-")[1])
    rates = {one["name"]: one["perf"] for one in summary["jobs"]}
    assert rates["pp"] == 150
