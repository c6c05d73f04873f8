"""From a workload to a step: plain, in mixed precision, compiled.

A step is built from one part an update: a function that computes the loss, and one that learns from it. What differs
between ways of running is decided when these are made, so that a step holds no branch for what it does not do. torch is
imported where a workload needs it, since a model without torch has a step too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from benchsuite.models import Batch, Carry, Nets, Optimiser, Workload, on_tensors
from benchsuite.records import Compiled
from benchsuite.tasks import Compile, Precision

if TYPE_CHECKING:
    from torch import Tensor, nn

LossOf: TypeAlias = "Callable[[Batch, Carry], tuple[Tensor, Carry]]"
Learn: TypeAlias = "Callable[[Tensor], None]"

MIXED: frozenset[Precision] = frozenset({"amp-fp16", "bf16"})
GRAPHED: frozenset[Compile] = frozenset({"reduce-overhead", "max-autotune"})


@dataclass(frozen=True)
class How:
    """The way a step is run; `device` as torch calls it."""

    device: str = "cpu"
    precision: Precision = "fp32"
    compile: Compile = "none"
    channels_last: bool = False

    @property
    def device_type(self) -> str:
        return self.device.partition(":")[0]

    @property
    def graphed(self) -> bool:
        """Whether outputs of compiled modules lie in memory that a CUDA graph writes again in the next step."""
        return self.compile in GRAPHED and self.device_type == "cuda"


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


def set_precision(precision: Precision, device: str) -> None:
    """What float32 means in this process, before any model is built.

    On a GPU fp32 means all 24 bits: torch would run convolutions as TF32. With tf32 matrix products and convolutions
    use it, as do the parts that mixed precision leaves in float32. A CPU computes in float32 whatever is asked.
    """
    if not device.startswith("cuda"):
        return
    import torch

    meaning = "ieee" if precision == "fp32" else "tf32"
    torch.backends.cuda.matmul.fp32_precision = meaning
    torch.backends.cudnn.conv.fp32_precision = meaning
    torch.backends.cudnn.rnn.fp32_precision = meaning


def make_step(workload: Workload, how: How) -> Step:
    """The step of a workload; its modules are moved to the device in place."""
    for net in workload.modules.values():
        net.to(how.device)
    if workload.step:
        return Step(workload.step, workload.losses, notes=own_step_notes(how))
    if how.channels_last and workload.updates:
        lay_out(workload.modules.values())
    moved = partial(on_tensors, placed(how))
    if workload.updates:
        return trained_step(workload, how, moved)
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


def trained_step(workload: Workload, how: How, moved: Callable[[Batch], Batch]) -> Step:
    nets = compiled_nets(workload.modules, how)
    parts: list[tuple[LossOf, Learn]] = []
    scales: list[Callable[[], float]] = []
    notes = ["tf32: a CPU computes in fp32"] if how.precision == "tf32" and how.device_type == "cpu" else []
    for update in workload.updates:
        params = [p for p in workload.modules[update.trains].parameters() if p.requires_grad]
        only = params if len(workload.updates) > 1 else None  # else the other modules would gather gradients as well
        learn, scale, note = learner(params, update.optimiser, how, only)
        parts.append((loss_function(partial(update.loss, nets), how), learn))
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


def compiled_nets(modules: Mapping[str, nn.Module], how: How) -> Nets:
    """The modules as losses call them."""
    if how.compile == "none":
        return modules
    import torch

    settings = {"backend": how.compile} if how.compile == "aot_eager" else {"mode": how.compile}
    return {name: torch.compile(net, **settings) for name, net in modules.items()}


def autocast(how: How) -> AbstractContextManager[Any]:
    """The context in which a mixed precision computes, which may be entered again and again; else an idle one."""
    if how.precision not in MIXED:
        return nullcontext()
    import torch

    cast: AbstractContextManager[Any] = torch.autocast(
        how.device_type, torch.float16 if how.precision == "amp-fp16" else torch.bfloat16
    )
    return cast


def loss_function(loss_of: LossOf, how: How) -> LossOf:
    """The loss under autocast where the precision is mixed."""
    if how.precision not in MIXED:
        return loss_of
    cast = autocast(how)

    def mixed(batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        with cast:
            return loss_of(batch, carry)

    return mixed


def learner(
    params: list[Tensor], spec: Optimiser, how: How, only: list[Tensor] | None
) -> tuple[Learn, list[Callable[[], float]], list[str]]:
    """Backward and optimiser step for `params`, its loss scale where it has one, and notes on it.

    `only` limits the backward pass to these parameters.
    """
    import torch

    settings = dict(spec.settings)
    notes = []
    scaled = how.precision == "amp-fp16"
    if scaled and how.device_type == "cuda":
        if "fused" in inspect.signature(spec.kind).parameters:
            settings.setdefault("fused", True)
        else:
            notes.append(f"amp-fp16: {getattr(spec.kind, '__name__', spec.kind)} has no fused form; each step syncs")
    optimiser = spec.kind(params, **settings)
    clip = partial(torch.nn.utils.clip_grad_norm_, params, spec.clip_norm) if spec.clip_norm is not None else None
    scaler = torch.amp.GradScaler(how.device_type) if scaled else None

    def plain(loss: Tensor) -> None:
        optimiser.zero_grad()
        loss.backward(inputs=only)
        optimiser.step()

    def clipped(loss: Tensor) -> None:
        optimiser.zero_grad()
        loss.backward(inputs=only)
        if clip:
            clip()
        optimiser.step()

    def in_half(loss: Tensor) -> None:
        assert scaler
        optimiser.zero_grad()
        scaler.scale(loss).backward(inputs=only)
        if clip:
            scaler.unscale_(optimiser)
            clip()
        scaler.step(optimiser)
        scaler.update()

    return (in_half if scaler else clipped if clip else plain), [scaler.get_scale] if scaler else [], notes
