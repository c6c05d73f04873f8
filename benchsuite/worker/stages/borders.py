"""What passes from one stage to the next: its shapes, its number formats, and how integers travel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchsuite.models import on_tensors
from benchsuite.worker.flops import emptied, on_meta
from benchsuite.worker.stages.cut import Flow, applied
from benchsuite.worker.stages.layout import Layout
from benchsuite.worker.stages.recurrent import without_loops


@dataclass(frozen=True)
class Passed:
    """One tensor that a stage returns.

    Attributes:
        grad: it requires a gradient.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    grad: bool

    @property
    def carried(self) -> torch.dtype:
        """The format in which it travels: torch's schedules pass on floating-point numbers only.

        fp32 holds integers up to 2 ** 24 exactly, which words of a vocabulary, lengths and masks are.
        """
        return self.dtype if self.dtype.is_floating_point else torch.float32


Border = tuple[Passed, ...]


def carried(flow: Flow) -> Flow:
    """What a stage sends: contiguous floating-point tensors, and none that it has received itself."""
    sent = []
    for one in flow:
        tensor = one if one.is_floating_point() else one.float()
        sent.append((tensor.view_as(tensor) if tensor.is_leaf else tensor).contiguous())
    return tuple(sent)


def restored(flow: Flow, border: Border) -> Flow:
    """What a stage computes with: the received tensors, in the formats in which their stage returned them."""
    both = list(zip(flow, border, strict=True))
    idle = [tensor for tensor, passed in both if tensor.requires_grad and not passed.grad]
    found = []
    for tensor, passed in both:
        if passed.grad and tensor.requires_grad:
            found.append(_Received.apply(tensor, *idle))
            idle = []
        else:
            found.append(tensor.detach().to(passed.dtype))
    return tuple(found)


class _Received(torch.autograd.Function):
    """The first tensor, whose gradient is contiguous, as transfers need it. The gradients of the others are 0.

    torch 2.11 wants a gradient for each tensor that a stage received, also for one that is not differentiable.
    """

    @staticmethod
    def forward(ctx: Any, flow: Tensor, *idle: Tensor) -> Tensor:
        ctx.save_for_backward(*idle)
        return flow.view_as(flow)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (gradient,) = gradients
        return gradient.contiguous(), *(torch.zeros_like(tensor) for tensor in ctx.saved_tensors)


class Stage(nn.Module):
    """The units of one stage as a module.

    Args:
        before: what the last stage returns; None for the first stage.
        last: it is the last stage, whose output the loss takes as it is.
        cast: the context of mixed precision.
    """

    def __init__(
        self, units: Sequence[nn.Module], before: Border | None, last: bool, cast: AbstractContextManager[Any]
    ) -> None:
        super().__init__()
        self.units = nn.ModuleList(units)
        self._before, self._last, self._cast = before, last, cast

    def forward(self, *flow: Tensor) -> Any:
        """The stage's tensors, as they travel; of the last stage what the loss takes."""
        with self._cast:
            found = applied(list(self.units), flow if self._before is None else restored(flow, self._before))
        if self._last:
            return found[0] if len(found) == 1 else found
        return carried(found)


def explored(
    layout: Layout,
    rank: int,
    stages: Mapping[int, Sequence[nn.Module]],
    inputs: Flow,
    cast: AbstractContextManager[Any],
    device: str,
) -> list[Border]:
    """What each stage returns, on every rank. The stages compute once, one after the other, without a backward pass.

    Args:
        stages: the units of this rank's stages, on the device.
        inputs: of the first stage, for one micro-batch.
    """
    borders: list[Border] = []
    for stage in range(layout.stages):
        owner = layout.of_stage(stage)[0]
        said: list[Any] = [None]
        if rank == owner:
            flow = on_tensors(lambda tensor: tensor.to(device), inputs) if stage == 0 else _made(borders[-1], device)
            with cast, torch.enable_grad(), _Evaluating(stages[stage]):
                found = applied(stages[stage], flow)
            said = [tuple(Passed(tuple(one.shape), one.dtype, one.requires_grad) for one in found)]
        dist.broadcast_object_list(said, owner, device=torch.device("cpu"))
        borders.append(said[0])
    return borders


def _made(border: Border, device: str) -> Flow:
    return tuple(
        torch.zeros(passed.shape, dtype=passed.dtype, device=device, requires_grad=passed.grad) for passed in border
    )


class _Evaluating:
    """Units do not update their statistics in it."""

    def __init__(self, units: Sequence[nn.Module]) -> None:
        self._training = [module for unit in units for module in unit.modules() if module.training]

    def __enter__(self) -> None:
        for module in self._training:
            module.training = False

    def __exit__(self, *exception: object) -> None:
        for module in self._training:
            module.training = True


class Shapes:
    """The borders for batches of other shapes, computed on the meta device.

    Args:
        inputs: of the first stage, for which `borders` are known.
        borders: see `explored`.
    """

    def __init__(self, stages: Sequence[Sequence[nn.Module]], inputs: Flow, borders: list[Border]) -> None:
        names = [f"{stage}.{place}" for stage, units in enumerate(stages) for place in range(len(units))]
        copies = on_meta(dict(zip(names, itertools.chain(*stages), strict=True)))
        without_loops(copies.values())
        found = iter(copies.values())
        self._stages = [list(itertools.islice(found, len(units))) for units in stages]
        self._formats = borders
        self._known = {key_of(inputs): borders}

    def of(self, inputs: Flow) -> list[Border]:
        """What each stage returns for these inputs."""
        key = key_of(inputs)
        if key not in self._known:
            self._known[key] = self._computed(inputs)
        return self._known[key]

    def _computed(self, inputs: Flow) -> list[Border]:
        flow: Flow = on_tensors(emptied, inputs)
        borders = []
        for units, formats in zip(self._stages, self._formats, strict=True):
            with torch.no_grad():
                flow = applied(units, flow)
            found = (Passed(tuple(one.shape), f.dtype, f.grad) for one, f in zip(flow, formats, strict=True))
            borders.append(tuple(found))
        return borders


def key_of(inputs: Flow) -> tuple[tuple[int, ...], ...]:
    """The shapes of inputs."""
    return tuple(tuple(tensor.shape) for tensor in inputs)
