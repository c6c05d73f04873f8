"""From a workload to a step: plain, in mixed precision, compiled.

A step is built from one part an update: a function that computes the loss, and one that learns from it. What differs
between ways of running is decided when these are made, so that a step holds no branch for what it does not do. torch is
imported where a workload needs it, since a model without torch has a step too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Carry, Workload, on_tensors
from benchsuite.records import Compiled
from benchsuite.worker.learn import Learn, LossOf, learner, loss_function
from benchsuite.worker.training import MIXED, How

if TYPE_CHECKING:
    from torch import Tensor, nn

Result = TypeVar("Result")


@dataclass(frozen=True)
class Step:
    """`run(batch)` takes one step and returns its items without waiting for the device.

    `losses` holds the last step's loss of each update, on the device: to read one is a sync, so read where a slice
    ends. A workload with a step of its own may keep its own there. `scales` give the loss scales of fp16, at the cost
    of a sync; a step that overflowed has lowered one and learnt nothing. `notes` says what differs from what was asked.
    """

    run: Callable[[Batch], int]
    losses: list[Tensor] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    scales: tuple[Callable[[], float], ...] = ()


class Averaging(Protocol):
    """The other ranks, for a step: `wrap` makes a module's gradients the mean over all, `beat` counts."""

    def wrap(self, net: nn.Module) -> nn.Module: ...

    def beat(self) -> None: ...


def make_step(workload: Workload, how: How, ranks: Averaging | None = None) -> Step:
    """The step of a workload, alone or with other ranks; its modules are moved to the device in place.

    Raises:
        ModelError: it cannot be trained by several ranks.
    """
    for net in workload.modules.values():
        net.to(how.device)
    if workload.step:
        if ranks:
            raise ModelError("the model steps by itself and cannot be trained by several ranks; give placement per_gpu")
        return Step(workload.step, workload.losses, notes=own_step_notes(how))
    if how.channels_last and workload.updates:
        lay_out(workload.modules.values())
    moved = partial(on_tensors, placed(how))
    if workload.updates:
        return trained_step(workload, how, moved, ranks)
    if how.device_type == "cpu":
        return Step(workload.items)

    def load(batch: Batch) -> int:
        moved(batch)
        return workload.items(batch)

    return Step(load)


def lay_out(nets: Iterable[nn.Module]) -> None:
    """The weights of convolutions, channels last."""
    import torch

    for net in nets:
        net.to(memory_format=torch.channels_last)


def placed(how: How) -> Callable[[Tensor], Tensor]:
    """A tensor of a batch as the step wants it: on the device, images in the layout of the weights."""

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(how.device, non_blocking=True)

    if not how.channels_last:
        return moved
    import torch

    def laid_out(tensor: Tensor) -> Tensor:
        there = moved(tensor)  # first, so that the device has the work of it
        return there.contiguous(memory_format=torch.channels_last) if there.dim() == 4 else there

    return laid_out


def own_step_notes(how: How) -> tuple[str, ...]:
    asked = [f"precision {how.precision}"] if how.precision in MIXED else []
    asked += [f"compile {how.compile}"] if how.compile != "none" else []
    asked += ["channels_last"] if how.channels_last else []
    return (f"the model steps by itself, without {' and '.join(asked)}",) if asked else ()


def read_compiled() -> Compiled:
    """What Dynamo has made in this process so far; its counters are no public interface, so see `test_step`."""
    from torch._dynamo.utils import counters

    return Compiled(graphs=counters["stats"]["unique_graphs"], breaks=sum(counters["graph_break"].values()))


# --- a step made of updates -------------------------------------------------------------------------------------------


def trained_step(workload: Workload, how: How, moved: Callable[[Batch], Batch], ranks: Averaging | None = None) -> Step:
    nets = {name: compiled(net, how) for name, net in workload.modules.items()}
    parts: list[tuple[LossOf, Learn]] = []
    scales: list[Callable[[], float]] = []
    notes = ["tf32: a CPU computes in fp32"] if how.precision == "tf32" and how.device_type == "cpu" else []
    for update in workload.updates:
        params = [p for p in workload.modules[update.trains].parameters() if p.requires_grad]
        only = params if len(workload.updates) > 1 else None  # else the other modules would gather gradients as well
        learn, scale, note = learner(params, update.optimiser, how, only)
        loss_of = update.loss
        if ranks:  # only the module that learns goes through its wrapper
            called = {**nets, update.trains: compiled(ranks.wrap(workload.modules[update.trains]), how)}
            loss_of, learn = heard(partial(loss_of, called), ranks.beat), heard(learn, ranks.beat)
        else:
            loss_of = partial(loss_of, nets)
        parts.append((loss_function(loss_of, how), learn))
        scales += scale
        notes += note
    step = joined(parts, workload.items, keep=partial(on_tensors, kept_whole if how.graphed else detached))
    run = step.run if how.device_type == "cpu" and not how.channels_last else after(moved, step.run)
    if how.graphed:
        run = after(begin_graphed, run)
    return Step(run, step.losses, tuple(dict.fromkeys(notes)), scales=tuple(scales))


def joined(
    parts: Sequence[tuple[LossOf, Learn]], items: Callable[[Batch], int], keep: Callable[[Carry], Carry]
) -> Step:
    """One step of all updates in order; the carry passes from each to the next, and on to the next step."""
    losses: list[Tensor] = []
    carry: Carry = None

    def run_all(batch: Batch) -> int:
        nonlocal carry
        found = []
        for loss_of, learn in parts:
            loss, carry = loss_of(batch, carry)
            learn(loss)
            found.append(loss.detach())
            if carry is not None:
                carry = keep(carry)
        losses[:] = found
        return items(batch)

    return Step(run_all, losses)


def after(change: Callable[[Batch], Batch], run: Callable[[Batch], int]) -> Callable[[Batch], int]:
    def changed(batch: Batch) -> int:
        return run(change(batch))

    return changed


def begin_graphed(batch: Batch) -> Batch:
    import torch

    torch.compiler.cudagraph_mark_step_begin()
    return batch


def detached(tensor: Tensor) -> Tensor:
    return tensor.detach()


def kept_whole(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def compiled(net: nn.Module, how: How) -> Callable[..., Any]:
    """A module as losses call it."""
    if how.compile == "none":
        return cast("Callable[..., Any]", net)
    import torch

    settings = {"backend": how.compile} if how.compile == "aot_eager" else {"mode": how.compile}
    return cast("Callable[..., Any]", torch.compile(net, **settings))


def heard(run: Callable[..., Result], beat: Callable[[], None]) -> Callable[..., Result]:
    """The same, with a beat once it is done."""

    def beating(*arguments: Any) -> Result:
        result = run(*arguments)
        beat()
        return result

    return beating
