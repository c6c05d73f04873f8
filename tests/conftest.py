"""Records for tests, made as the real code would make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from benchsuite.records import (
    Anchor,
    Code,
    Failure,
    Identity,
    Measurement,
    Result,
    Slice,
    Stream,
    TaskMachine,
    Tenant,
    Timeline,
)
from benchsuite.tasks import Gpu, Job, Placement, Task


def make_gpu(index: int = 0, name: str = "NVIDIA Test") -> Gpu:
    return Gpu(visible_index=index, nvml_index=index, uuid=f"GPU-{index:04d}", name=name, pci=f"0000:0{index}:00.0")


def make_task(job: str = "vae", repeat: int = 0, gpu: int | None = 0, profile: str = "suite", **fields: Any) -> Task:
    """`gpu=None` is a task on the CPU."""
    gpus = () if gpu is None else (make_gpu(gpu),)
    placement = Placement(devices="each" if gpus else "none")
    suffix = f"{repeat}.{gpu}" if gpus else f"{repeat}"
    fields = {"job": Job(name=job, model="vae", placement=placement), **fields}
    return Task(id=f"{job}.J{suffix}", profile=profile, repeat=repeat, gpus=gpus, **fields)


def make_slices(rates: Sequence[float], slice_s: float = 0.5) -> tuple[Slice, ...]:
    """One slice a rate (items/s), back to back."""
    return tuple(
        Slice(start_s=i * slice_s, end_s=(i + 1) * slice_s, steps=1, items=round(rate * slice_s))
        for i, rate in enumerate(rates)
    )


def make_result(
    job: str = "vae",
    rates: Sequence[float] = (100.0,) * 30,
    *,
    repeat: int = 0,
    gpu: int | None = 0,
    status: str = "ok",
    slice_s: float = 0.5,
    origin_s: float = 1000.0,
    host: str = "hostA",
    task: Task | None = None,
    **fields: Any,
) -> Result:
    """A result whose slices have the given rates in items/s."""
    task = task or make_task(job, repeat, gpu)
    slices = make_slices(rates, slice_s)
    stream = Stream(
        device=task.gpus[0].uuid if task.gpus else "cpu",
        unit="image",
        origin_s=origin_s,
        slices=slices,
        losses=(1.0,) * len(slices),
        stopped_by="min_time",
    )
    defaults: dict[str, Any] = {
        "status": status,
        "error": None if status == "ok" else Failure(kind=status, message=f"the task is {status}"),
        "identity": Identity(
            host=host,
            profile=task.profile,
            job=task.job.name,
            cell=None,
            repeat=task.repeat,
            devices=tuple(g.visible_index for g in task.gpus),
            copy=0,
            attempt=1,
        ),
        "task": task,
        "machine": TaskMachine(gpus=task.gpus, driver="580.0", facts_sha256="0" * 64, software={"torch": "2.11.0"}),
        "code": Code(version="0.1.0"),
        "tenant": Tenant(asked="share", reason="not fenced"),
        "timeline": Timeline(queued_s=0.0, started_s=1.0, ready_s=2.0, go_s=origin_s, ended_s=origin_s + 20),
        "anchor": Anchor(boot_id="boot", wall="2026-01-06T16:00:00+00:00", monotonic_s=0.0),
        "measurement": Measurement(streams=(stream,) if rates else ()),
    }
    return Result(**{**defaults, **fields})


@pytest.fixture(name="make_result")
def make_result_fixture() -> Callable[..., Result]:
    return make_result
