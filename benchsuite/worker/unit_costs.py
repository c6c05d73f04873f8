"""Measure the units of a model's chain: times of their forward and backward passes, bytes of outputs and parameters.

    python -m benchsuite.worker.unit_costs < ASSIGNMENT

The last line that it prints is JSON: the ChainCosts, or a text that says why there are none.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor, nn

from benchsuite.describe.tasks import Task
from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.events import Assignment
from benchsuite.models import Batch, Chain, Share, Workload
from benchsuite.searches import ChainCosts, UnitCost
from benchsuite.worker.build import build, module_of, seed_of
from benchsuite.worker.device import Device, open_device
from benchsuite.worker.feed import feed
from benchsuite.worker.learner import Learner, learner
from benchsuite.worker.memory import needed, no_device_memory
from benchsuite.worker.parent_death import die_with_parent
from benchsuite.worker.precision import autocast, set_precision
from benchsuite.worker.step import place, trainable

WARM_UP = 3
# Batches of sentences differ in length, so that several are measured.
BATCHES, REPEATS = 16, 5
# No further batch is begun after this time, and no further repeat of the first one.
LIMIT_S = 20.0
LINK_BYTES, LINK_REPEATS = 1 << 28, 10


class Marks(Protocol):
    """Instants on the device's own clock, in the order of the work that it was given."""

    def mark(self) -> None:
        """Mark the instant at which the device has done all work so far."""

    def intervals(self) -> list[float]:
        """Seconds between neighbouring marks; call it after a sync. It forgets the marks."""


class HostMarks:
    """Marks of the CPU, which has done its work when a call returns."""

    def __init__(self) -> None:
        self._ns: list[int] = []

    def mark(self) -> None:
        self._ns.append(time.perf_counter_ns())

    def intervals(self) -> list[float]:
        ns, self._ns = self._ns, []
        return [(after - before) / 1e9 for before, after in pairwise(ns)]


class CudaMarks:
    """Marks of the current CUDA stream. The host does not wait, so that it runs ahead as it does in training."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def intervals(self) -> list[float]:
        events, self._events = self._events, []
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass of a chain, unit by unit, and the optimiser's step.

    Attributes:
        learns: the learner of all parameters.
        cast: the context of the job's precision.
    """

    chain: Chain
    units: Sequence[nn.Module]
    learns: Learner
    cast: Any
    marks: Marks

    def run(self, batch: Batch) -> tuple[float, list[float]]:
        """Take the pass, with a mark before it, after each unit both ways, and after the optimiser's step.

        The loss belongs to the last unit. Units are detached from each other, as stages of a pipeline are.

        Returns:
            The bytes that the first unit receives, and those that each unit passes on.
        """
        self.learns.clear()
        last = len(self.units) - 1
        output: Any = self.chain.inputs(batch)
        received, passed = _bytes(output), list[float]()
        entered, left = list[tuple[Tensor, ...]](), list[tuple[Tensor, ...]]()
        self.marks.mark()
        for index, unit in enumerate(self.units):
            entered.append(tuple(map(_cut, _tensors(output))))
            with self.cast:
                output = unit(*entered[index])
                loss = self.chain.loss(output, batch) if index == last else None
            left.append(_tensors(output))
            passed.append(_bytes(output))
            self.marks.mark()
        assert loss is not None
        self.learns.backward(loss)
        self.marks.mark()
        for index in reversed(range(last)):
            _backward(left[index], entered[index + 1])
            self.marks.mark()
        self.learns.update()
        self.marks.mark()
        return received, passed


def _tensors(flow: Any) -> tuple[Tensor, ...]:
    return flow if isinstance(flow, tuple) else (flow,)


def _bytes(flow: Any) -> float:
    return float(sum(tensor.nbytes for tensor in _tensors(flow)))


def _cut(tensor: Tensor) -> Tensor:
    """The same values as the first tensor of a graph of its own, with a gradient if the tensor needs one."""
    return tensor.detach().requires_grad_() if tensor.requires_grad else tensor


def _backward(left: Sequence[Tensor], entered: Sequence[Tensor]) -> None:
    """The backward pass of a unit, from the gradients of what the next unit received."""
    pairs = [(out, into.grad) for out, into in zip(left, entered, strict=True) if into.grad is not None]
    if pairs:
        outputs, gradients = zip(*pairs, strict=True)
        torch.autograd.backward(outputs, gradients)


def costs_of(workload: Workload, training: Training, device: Device, share: Share) -> ChainCosts:
    """Measure the chain of a workload on a device.

    Raises:
        ModelError: the model has no chain, or one that this program does not measure.
    """
    chain = workload.chain
    if chain is None or len(workload.updates) != 1:
        raise ModelError("it names no units that can be cut into stages (Workload.chain)")
    place(workload, training, device.name)
    (update,) = workload.updates
    learns = learner(trainable(workload.modules[update.trains]), update.optimiser, training, device.name, None)
    marks = CudaMarks() if device.name.startswith("cuda") else HostMarks()
    units = list(chain.units())
    one = Pass(chain, units, learns, autocast(training.precision, device.name), marks)
    batches = feed(msgspec.structs.replace(training, prefetch=False), device.name)(workload.batches(share))
    found = list(measured(one, batches, device))
    passed, seconds = _means([each.passed for each in found]), _means([each.medians_s for each in found])
    forward, backward, update_s = seconds[: len(units)], seconds[len(units) : -1][::-1], seconds[-1]
    sizes = [float(sum(parameter.nbytes for parameter in unit.parameters())) for unit in units]
    whole = sum(sizes) or 1.0
    return ChainCosts(
        device=device.software().get("gpu", "cpu"),
        batch=_counted(workload, next(batches)),
        batches=len(found),
        repeats=min(each.repeats for each in found),
        input_bytes=statistics.fmean(each.received for each in found),
        units=tuple(
            UnitCost(
                description=_described(unit),
                forward_s=forward[i],
                backward_s=backward[i] + update_s * sizes[i] / whole,
                activation_bytes=passed[i],
                parameter_bytes=sizes[i],
            )
            for i, unit in enumerate(units)
        ),
        update_s=update_s,
    )


@dataclass(frozen=True)
class OneBatch:
    """The measurements of one batch.

    Attributes:
        received: bytes that the first unit receives.
        passed: bytes that each unit passes on.
        medians_s: the medians, over the repeats, of the intervals between the marks of a pass.
    """

    received: float
    passed: list[float]
    medians_s: list[float]
    repeats: int


def measured(one: Pass, batches: Iterator[Batch], device: Device) -> Iterator[OneBatch]:
    """Measure several batches, each several times, until `LIMIT_S` is over. The first one also warms up."""
    began_s = None
    for batch in islice(batches, BATCHES):
        if began_s is None:
            for _ in range(WARM_UP):
                one.run(batch)
            device.sync()
            one.marks.intervals()
            began_s = time.monotonic()
        elif time.monotonic() > began_s + LIMIT_S:
            return
        count = 0
        for _ in range(REPEATS):
            received, passed = one.run(batch)
            count += 1
            if time.monotonic() > began_s + LIMIT_S:
                break
        device.sync()
        intervals = one.marks.intervals()
        length = (len(intervals) - count + 1) // count
        repeats = [intervals[i * (length + 1) : i * (length + 1) + length] for i in range(count)]
        yield OneBatch(received, passed, list(map(statistics.median, zip(*repeats, strict=True))), count)


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


def _described(unit: nn.Module) -> str:
    """The classes of a unit's layers, joined by "+"; of a block its own class."""
    parts = list(unit) if isinstance(unit, nn.Sequential) else [unit]
    return "+".join(type(part).__name__ for part in parts)


def _counted(workload: Workload, batch: Batch) -> str:
    count = workload.items(batch)
    return f"{count} {workload.unit}{'' if count == 1 else 's'}"


def link_rate() -> float | None:
    """Bytes per second of a copy from one GPU to another; None if this process sees fewer than two GPUs."""
    if torch.cuda.device_count() < 2:
        return None
    source = torch.empty(LINK_BYTES, dtype=torch.uint8, device="cuda:0")
    target = torch.empty_like(source, device="cuda:1")
    seconds = []
    for _ in range(WARM_UP + LINK_REPEATS):
        for index in range(2):
            torch.cuda.synchronize(index)
        began_s = time.perf_counter()
        target.copy_(source, non_blocking=True)
        for index in range(2):
            torch.cuda.synchronize(index)
        seconds.append(time.perf_counter() - began_s)
    return LINK_BYTES / statistics.median(seconds[WARM_UP:])


def answer(task: Task) -> ChainCosts | str:
    """Measure the chain of a task's model, and the link between two GPUs if this process sees them.

    Returns:
        The costs, or why the model cannot be measured.
    """
    device = open_device("cuda" if task.gpus else "cpu")
    set_precision(task.job.training.precision, device.name)
    workload = build(module_of(task), task, 0)
    try:
        found = costs_of(workload, task.job.training, device, Share(seed=seed_of(task), device=device.name))
    except ModelError as error:
        return str(error)
    except RuntimeError as error:
        if not no_device_memory(error):
            raise
        return needed(error, task.job.params.get("batch_size"))
    return msgspec.structs.replace(found, link_bytes_per_s=link_rate() if task.gpus else None)


if __name__ == "__main__":
    die_with_parent()
    found = answer(msgspec.json.decode(sys.stdin.buffer.read(), type=Assignment).task)
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(found))
