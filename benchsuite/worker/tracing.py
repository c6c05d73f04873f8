"""Record steps with a profiler, after the measurement: its cost falls into no slice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchsuite.describe.tasks import Trace
from benchsuite.errors import ModelError
from benchsuite.events import trace_file
from benchsuite.measurement import Traced
from benchsuite.models import Workload
from benchsuite.worker.device import Device
from benchsuite.worker.memory_history import recorded_memory
from benchsuite.worker.step import Step

_ENDINGS = {
    "timeline": ".json.gz",
    "memory": ".memory.json",
    "ncu": ".ncu.csv",
    "nsys": ".nsys-rep",
    "nvprof": ".nvvp",
}
# The tools that start the worker and write their files when it ends.
OUTSIDE = ("ncu", "nsys", "nvprof")
# Steps that the profiler of a timeline sees first and drops: its start slows them down.
_DROPPED = 2
# Steps just before the recording, from which the time of an unrecorded step is taken.
_BEFORE = 5


def traced(asked: Trace, events: str, step: Step, batches: Iterator[Any], device: Device, workload: Workload) -> Traced:
    """Record some steps, and write the recording beside the event file of this rank.

    Raises:
        ModelError: the data ended before all steps were taken, or the tool needs a GPU.
        OSError: the file cannot be written.
    """
    step_s = _timed(step, batches, device, _BEFORE) / _BEFORE
    taken = {"timeline": _timeline, "memory": _memory}.get(asked.tool, _outside)
    path = Path(trace_file(events, _ENDINGS[asked.tool]))
    began_s = time.monotonic()
    elapsed_s = taken(asked.steps, path, step, batches, device, workload)
    file = f"{path.parent.name}/{path.name}"
    return Traced(file=file, steps=asked.steps, start_s=began_s, elapsed_s=elapsed_s, step_s=step_s)


def _timed(
    step: Step,
    batches: Iterator[Any],
    device: Device,
    steps: int,
    around: Callable[[str], AbstractContextManager[Any]] = lambda name: nullcontext(),
) -> float:
    """Take steps; their time in seconds, from sync to sync.

    Args:
        around: the context for the fetch of a batch, and for each step.
    """
    device.sync()
    began = time.monotonic()
    for number in range(steps):
        with around(f"ProfilerStep#{number}"):
            with around("benchsuite: next batch"):
                batch = next(batches, _END)
            if batch is _END:
                raise ModelError(f"the data ended after {number} of {steps} steps of the trace; give more data")
            step.run(batch)
    device.sync()
    return time.monotonic() - began


_END = object()


def _timeline(steps: int, path: Path, step: Step, batches: Iterator[Any], device: Device, workload: Workload) -> float:
    """Record with torch.profiler."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.name != "cpu" else [])]
    with profile(activities=activities, acc_events=True):  # its first use loads CUPTI, which takes seconds
        _timed(step, batches, device, _DROPPED)
    with profile(activities=activities, acc_events=True) as profiler:
        elapsed_s = _timed(step, batches, device, steps, record_function)
    profiler.export_chrome_trace(str(path))
    return elapsed_s


def _memory(steps: int, path: Path, step: Step, batches: Iterator[Any], device: Device, workload: Workload) -> float:
    """Record the history of torch's allocator."""
    with recorded_memory(path, device.name, workload):
        return _timed(step, batches, device, steps)


def _outside(steps: int, path: Path, step: Step, batches: Iterator[Any], device: Device, workload: Workload) -> float:
    """Let the profiler that started this process record kernels. It writes its file by itself."""
    import torch

    if device.name == "cpu":
        raise ModelError("the profiler records kernels of a GPU, and this task runs on the CPU")
    cudart = torch.cuda.cudart()
    cudart.cudaProfilerStart()
    with contextlib.ExitStack() as stack:
        stack.callback(cudart.cudaProfilerStop)
        return _timed(step, batches, device, steps)
