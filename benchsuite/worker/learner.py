"""How the parameters of one update learn from a loss: backward pass and optimiser step, apart."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchsuite.describe.training import Training
from benchsuite.models import Optimiser
from benchsuite.worker.precision import device_type

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Learner:
    """`clear` drops the last gradients, `backward` adds those of a loss, `update` is the optimiser's step.

    `scales` gives the loss scale where there is one. `notes` says what differs from what was asked.
    """

    clear: Callable[[], None]
    backward: Callable[[Tensor], None]
    update: Callable[[], None]
    scales: tuple[Callable[[], float], ...] = ()
    notes: tuple[str, ...] = ()


def learner(
    params: list[Tensor], spec: Optimiser, training: Training, device: str, only: list[Tensor] | None
) -> Learner:
    """The learner of `params`, where they are now: an optimiser is built after modules are placed and wrapped.

    Args:
        spec: the optimiser to build; gradients are clipped where it says so.
        training: its precision and compile mode decide on loss scaling and the optimiser's fused form.
        device: as torch calls it.
        only: the backward pass computes gradients for these parameters alone; None: for all that the loss depends on.
    """
    import torch

    scaled = training.precision == "amp-fp16"
    settings, notes = fused(spec, training, device)
    optimiser = spec.kind(params, **settings)
    if settings.get("fused"):
        _begin_momentum(optimiser)
    clip = partial(torch.nn.utils.clip_grad_norm_, params, spec.clip_norm) if spec.clip_norm is not None else None
    if scaled:
        return _scaled(optimiser, torch.amp.GradScaler(device_type(device)), clip, only, notes)

    def backward(loss: Tensor) -> None:
        loss.backward(inputs=only)

    def clipped() -> None:
        assert clip
        clip()
        optimiser.step()

    return Learner(optimiser.zero_grad, backward, clipped if clip else optimiser.step, notes=notes)


def _scaled(
    optimiser: Any, scaler: Any, clip: Callable[[], Any] | None, only: list[Tensor] | None, notes: tuple[str, ...]
) -> Learner:
    """Losses are scaled, so that small gradients do not vanish in fp16; all backward passes of a step alike."""

    def backward(loss: Tensor) -> None:
        scaler.scale(loss).backward(inputs=only)

    def update() -> None:
        if clip:
            scaler.unscale_(optimiser)
            clip()
        scaler.step(optimiser)
        scaler.update()

    return Learner(optimiser.zero_grad, backward, update, (scaler.get_scale,), notes)


def fused(spec: Optimiser, training: Training, device: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The optimiser's settings, fused where the model is compiled or losses are scaled, and notes.

    On a GPU the fused form updates all parameters with a few kernels. With a loss scale, each step syncs without it.
    """
    settings = dict(spec.settings)
    scaled = training.precision == "amp-fp16"
    if device_type(device) != "cuda" or not (scaled or training.compile != "none"):
        return settings, ()
    if "fused" in inspect.signature(spec.kind).parameters:
        settings.setdefault("fused", True)
        return settings, ()
    name = getattr(spec.kind, "__name__", spec.kind)
    return settings, ((f"amp-fp16: {name} has no fused form; each step syncs",) if scaled else ())


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
