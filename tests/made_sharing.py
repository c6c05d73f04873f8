"""Runs of a model whose copies share a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from conftest import keep_run, make_gpu, make_result
from made_telemetry import make_device, make_telemetry

from benchsuite.describe.jobs import resolve
from benchsuite.describe.plan import make_plan
from benchsuite.describe.tasks import Task
from benchsuite.measurement import Measurement, PeakMemory
from benchsuite.records import Result

WAYS = {"sharing": ["serial", "concurrent", "fused"], "copies": [1, 2, 4], "matrix": {"precision": ["fp32", "bf16"]}}
# The rate of a copy, or of the whole array: way -> precision -> number -> rate; None: out of memory.
RATES: Mapping[str, Mapping[str, Mapping[int, float | None]]] = {
    "serial": {"fp32": {1: 100.0}, "bf16": {1: 120.0}},
    "concurrent": {"fp32": {1: 100.0, 2: 80.0, 4: 60.0}, "bf16": {1: 120.0, 2: 100.0, 4: None}},
    "fused": {"fp32": {1: 100.0, 2: 200.0, 4: 400.0}, "bf16": {1: 120.0, 2: 220.0, 4: 600.0}},
}
GRAPHED = 160.0


def keep_shared(folder: Path, repeats: int = 2, **fields: Any) -> Path:
    """A run of one model in all ways; its second repeat is a tenth faster than the first."""
    raw = {"model": "vae", **WAYS, **fields}
    jobs = [resolve("v", raw, "p"), resolve("v_graphed", {"model": "vae", "compile": "reduce-overhead"}, "p")]
    plan = make_plan("suite", jobs, [make_gpu(0)], environ={}, repeats=repeats)
    keep_run(folder, [shared_result(task) for task in plan.tasks])
    return folder


def shared_result(task: Task) -> Result:
    job = task.job
    rate = GRAPHED if job.name == "v_graphed" else RATES[job.sharing][job.training.precision][int(job.copies)]
    if rate is None:
        return make_result(rates=(), task=task, status="oom")
    whole = make_result(
        rates=[rate * (1 + 0.1 * task.repeat)] * 30,
        task=task,
        origin_s=1000.0 + 0.2 * task.copy,
        telemetry=make_telemetry(make_device(gauges={"memory_used_bytes": float(int(job.copies) << 30)})),
    )
    peak = PeakMemory(device_reserved_bytes=1 << 29, host_rss_bytes=1 << 31)
    streams = tuple(msgspec.structs.replace(one, peak_memory=peak) for one in whole.measurement.streams)
    return msgspec.structs.replace(whole, measurement=Measurement(streams=streams))
