"""The two parts of an update: a loss that is computed, and parameters that learn from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from benchsuite.models import Batch, Carry, Optimiser
from benchsuite.worker.training import MIXED, How, autocast

if TYPE_CHECKING:
    from torch import Tensor

LossOf: TypeAlias = "Callable[[Batch, Carry], tuple[Tensor, Carry]]"
Learn: TypeAlias = "Callable[[Tensor], None]"


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
    if settings.get("fused"):
        _begin_momentum(optimiser)
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


def _begin_momentum(optimiser: Any) -> None:
    """Momentum of 0, where torch's fused SGD takes memory as it finds it and fills it in its first step.

    In fp16 that step often overflows and is skipped; the next one would go on from whatever lay there, and the weights
    run away (seen with torch 2.11 and 2.14).
    """
    import torch

    if isinstance(optimiser, torch.optim.SGD):
        for group in optimiser.param_groups:
            for param in group["params"] if group["momentum"] else ():
                optimiser.state[param]["momentum_buffer"] = torch.zeros_like(param)
