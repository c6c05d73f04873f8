"""A step of training: one or more updates, each with a loss and the parameters that learn from it.

Options are decided when a step is made, so that the step itself holds no branch for an option that is off. torch is
imported only in functions that need it, since a model without torch has a step, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from benchsuite.describe.training import Training
from benchsuite.measurement import PipelineUsed
from benchsuite.models import Batch, Carry, Workload, on_tensors
from benchsuite.worker.checkpoint import checkpoint_blocks
from benchsuite.worker.compiling import begin_graphed, graphed
from benchsuite.worker.feed import Feed, feed
from benchsuite.worker.learner import Learner
from benchsuite.worker.microbatches import MicroBatch, Splitter, check_carry
from benchsuite.worker.precision import MIXED, autocast, device_type
from benchsuite.worker.state import State, state_of

if TYPE_CHECKING:
    from torch import Tensor, nn

LossOf: TypeAlias = "Callable[[Batch, Carry], tuple[Tensor, Carry]]"
Keep: TypeAlias = Callable[[Carry], Carry]
Run: TypeAlias = Callable[[Batch], int]


def nothing() -> None:
    """Check nothing."""


@dataclass(frozen=True)
class Step:
    """A step of a workload.

    Attributes:
        run: takes one step with a batch and returns the number of items, without waiting for the device.
        losses: the losses of the last step, one for each update, on the device; of an array, each is a tensor with one
            value for each model. Reading one is a sync, so it is read at the end of a slice. A workload with a step of
            its own fills the list itself.
        notes: how the step differs from what the job asks for.
        scales: read the loss scales of fp16; reading one is a sync. A step that overflows lowers a scale and changes
            no weight.
        feed: puts batches where `run` needs them.
        check: raises ModelError if the weights after training are not as this way of training leaves them.
        found: notes that the first steps add.
        modules: the modules that hold the weights, if the step does not train the workload's own.
        finish: ends what earlier steps began and left in flight; call it before `state` is read or set.
        forget: drops the carry, as before the first step.
        state: what this rank trains; None for a model that trains nothing or steps by itself.
        read_losses: reads `losses` where another rank computes them; all ranks wait for it. None: this rank does.
        counts_items: the items of this rank count towards the rate.
        observe: takes steps after the measurement, of which it records the bubble of a pipeline.
    """

    run: Run
    losses: list[Tensor] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    scales: tuple[Callable[[], float], ...] = ()
    feed: Feed = iter
    check: Callable[[], None] = nothing
    found: list[str] = field(default_factory=list)
    modules: Mapping[str, nn.Module] | None = None
    finish: Callable[[], None] = nothing
    forget: Callable[[], None] = nothing
    state: State | None = None
    read_losses: Callable[[], list[float]] | None = None
    counts_items: bool = True
    observe: Callable[[Iterator[Batch]], PipelineUsed] | None = None


@dataclass(frozen=True)
class Part:
    """One update.

    Attributes:
        loss: computes the loss and the carry from a batch and the last carry.
        learner: trains the parameters with the loss.
        unfinished: the context for all micro-batches of a batch but the last; ranks exchange no gradients in it.
        times: the parts into which the batch is cut, each with an optimiser step.
    """

    loss: LossOf
    learner: Learner
    unfinished: Callable[[], AbstractContextManager[Any]] = nullcontext
    times: int = 1


def place(workload: Workload, training: Training, device: str) -> None:
    """Move the modules to the device in place, and fill those that are on the meta device.

    With `channels_last`, convolution weights get the layout of images. With `checkpoint`, the blocks compute their
    activations again.

    Raises:
        ModelError: `checkpoint` is asked for, and the model names no blocks.
    """
    checkpoint_blocks(workload, training)
    for name in workload.modules:
        place_module(name, workload, training, device)


def place_module(name: str, workload: Workload, training: Training, device: str) -> None:
    """As `place`, for the module of this name alone, and without `checkpoint`."""
    net = workload.modules[name]
    if workload.fill:
        materialise(name, net, workload.fill, device)
    net.to(device)
    if training.channels_last and workload.updates:
        import torch

        net.to(memory_format=torch.channels_last)


def materialise(name: str, net: nn.Module, fill: Callable[[str, Tensor], None], device: str) -> None:
    """Give a module of the meta device its values, on `device`. `name` is the module's in the workload."""
    import torch

    net.to_empty(device=device)
    with torch.no_grad():
        for path, tensor in itertools.chain(net.named_parameters(), net.named_buffers()):
            fill(f"{name}.{path}", tensor)


def trainable(net: nn.Module) -> list[Tensor]:
    """The parameters of a module that an optimiser trains."""
    return [param for param in net.parameters() if param.requires_grad]


def step_of(
    parts: Sequence[Part], workload: Workload, training: Training, device: str, check: Callable[[], None]
) -> Step:
    """The step that takes all updates in order, with the training's precision and number of micro-batches."""
    cast = autocast(training.precision, device)
    if training.precision in MIXED:
        parts = [replace(part, loss=mixed(part.loss, cast)) for part in parts]
    keep = partial(on_tensors, kept_whole if graphed(training, device) else detached)
    losses: list[Tensor] = []
    carries: list[Carry] = [None] * training.accumulate
    if training.accumulate > 1:
        run = accumulated(parts, workload.items, keep, losses, carries)
    else:
        run = whole(parts, workload.items, keep, losses, carries)
    if graphed(training, device):
        run = marked(run)
    notes = ["tf32: a CPU computes in fp32"] if training.precision == "tf32" and device_type(device) == "cpu" else []
    for part in parts:
        notes += part.learner.notes
    scales = tuple(scale for part in parts for scale in part.learner.scales)
    state = state_of(workload, [part.learner for part in parts])
    forget = partial(forget_all, carries)
    found = tuple(dict.fromkeys(notes))
    return Step(run, losses, found, scales, feed(training, device), check, forget=forget, state=state)


def forget_all(carries: list[Carry]) -> None:
    """Drop all carries, as before the first step."""
    carries[:] = [None] * len(carries)


def mixed(loss: LossOf, cast: AbstractContextManager[Any]) -> LossOf:
    """The loss, computed in mixed precision."""

    def computed(batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        with cast:
            return loss(batch, carry)

    return computed


def whole(
    parts: Sequence[Part], items: Callable[[Batch], int], keep: Keep, losses: list[Tensor], carries: list[Carry]
) -> Run:
    """The function that takes all updates from the whole batch.

    The carry passes from each update to the next, and from the last to the first of the next step: it is the only one
    of `carries`.
    """
    calls = [
        (rounds(part), part.loss, part.learner.clear, part.learner.backward, part.learner.update) for part in parts
    ]

    def run(batch: Batch) -> int:
        found, carry = [], carries[0]
        for parts_of, loss_of, clear, backward, update in calls:
            for one in parts_of(batch):
                loss, carry = loss_of(one, carry)
                clear()
                backward(loss)
                update()
                if carry is not None:
                    carry = keep(carry)
            found.append(loss.detach())
        losses[:], carries[0] = found, carry
        return items(batch)

    return run


def rounds(part: Part) -> Callable[[Batch], Sequence[Batch]]:
    """The function that cuts a batch into the parts of which each gets an optimiser step."""
    if part.times == 1:
        return alone
    splitter = Splitter(part.times, "Update.times")
    return lambda batch: [one.batch for one in splitter.split(batch)]


def alone(batch: Batch) -> tuple[Batch]:
    """The batch as its only part."""
    return (batch,)


def accumulated(
    parts: Sequence[Part], items: Callable[[Batch], int], keep: Keep, losses: list[Tensor], carries: list[Carry]
) -> Run:
    """The function that takes each update from the sum of the gradients of all micro-batches, see `Splitter`.

    Each micro-batch has a carry of its own, one of `carries`.
    """
    cuts = [(part, rounds(part), Splitter(len(carries))) for part in parts]

    def run(batch: Batch) -> int:
        found = []
        for part, parts_of, splitter in cuts:
            for one in parts_of(batch):
                total = updated(part, splitter.split(one))
            found.append(total)
        losses[:] = found
        return items(batch)

    def updated(part: Part, micro: Sequence[MicroBatch]) -> Tensor:
        part.learner.clear()
        total = None
        for index, one in enumerate(micro):
            with part.unfinished() if index < len(micro) - 1 else nullcontext():
                loss, carry = part.loss(one.batch, carries[index])
                loss = loss * one.weight
                part.learner.backward(loss)
            total = loss.detach() if total is None else total + loss.detach()
            if carry is not None:
                check_carry(carry, one.samples)
                carry = keep(carry)
            carries[index] = carry
        part.learner.update()
        assert total is not None
        return total

    return run


def marked(run: Run) -> Run:
    """`run` with the begin of each step marked for CUDA graphs."""

    def begun(batch: Batch) -> int:
        begin_graphed()
        return run(batch)

    return begun


def detached(tensor: Tensor) -> Tensor:
    """The tensor without its gradient history."""
    return tensor.detach()


def kept_whole(tensor: Tensor) -> Tensor:
    """A copy without gradient history, which the next replay of a CUDA graph does not overwrite."""
    return tensor.detach().clone()
