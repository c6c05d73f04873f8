"""Runs of jobs that sweep the batch size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from conftest import keep_run, make_gpu, make_result
from made_telemetry import make_device, make_telemetry

from benchsuite.describe.plan import make_plan
from benchsuite.describe.tasks import Job
from benchsuite.measurement import Measurement, PeakMemory
from benchsuite.records import Result


def keep_sweep(folder: Path, jobs: Mapping[str, Mapping[int, float | str | None]]) -> Path:
    """A run on one GPU: job -> batch size -> rate, None where it is out of memory, or another status."""
    results = []
    for name, rates in jobs.items():
        job = Job(name=name, model="vae", matrix={"batch_size": tuple(rates)})
        for task in make_plan("suite", [job], [make_gpu(0)], environ={}).tasks:
            rate = rates[int(task.axes["batch_size"])]
            if isinstance(rate, float):
                results.append(
                    _fits(make_result(rates=[rate] * 30, task=task, telemetry=make_telemetry(make_device())))
                )
            else:
                results.append(make_result(rates=(), task=task, status=rate or "oom"))
    keep_run(folder, results)
    return folder


def _fits(result: Result) -> Result:
    """The result with a peak of 1 GiB for each item of its batch."""
    batch = int(result.task.axes["batch_size"])
    peaks = PeakMemory(device_reserved_bytes=batch * 2**30, host_rss_bytes=2**31)
    streams = tuple(msgspec.structs.replace(one, peak_memory=peaks) for one in result.measurement.streams)
    return msgspec.structs.replace(result, measurement=Measurement(streams=streams))
