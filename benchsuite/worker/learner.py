"""How the parameters of one update learn from a loss: the backward pass and the optimiser's step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from benchsuite.describe.training import Training
from benchsuite.models import Optimiser, Update
from benchsuite.worker.lr_schedule import Scheduled
from benchsuite.worker.precision import device_type

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Learner:
    """What trains the parameters of one update.

    Attributes:
        clear: drops the gradients of the last step.
        backward: adds the gradients of a loss.
        update: takes the optimiser's step.
        scales: read the loss scale of fp16; empty in other precisions.
        notes: how the learner differs from what the job asks for.
        optimiser, scaler: what keeps its state; the scaler is None unless losses are scaled.
        scheduled: what changes the learning rate; None if it is constant.
    """

    clear: Callable[[], None]
    backward: Callable[[Tensor], None]
    update: Callable[[], None]
    scales: tuple[Callable[[], float], ...] = ()
    notes: tuple[str, ...] = ()
    optimiser: Any = None
    scaler: Any = None
    scheduled: Scheduled | None = None


def learner(
    params: list[Tensor],
    spec: Optimiser,
    training: Training,
    device: str,
    only: list[Tensor] | None,
    after: Callable[[], None] | None = None,
    pace: Fraction = Fraction(1),
) -> Learner:
    """The learner of `params`. Place and wrap their modules first: the optimiser keeps references to the parameters.

    Args:
        spec: the optimiser to build; gradients are clipped if it has a `clip_norm`.
        training: precision and compile mode decide on loss scaling and the optimiser's fused form; the learning rate
            follows its `lr_schedule`, else that of `spec`.
        device: torch's name.
        only: the parameters for which the backward pass computes gradients; None for all that the loss depends on.
        after: called after each of the optimiser's steps, without gradients.
        pace: steps of the schedule for one step of the optimiser.
    """
    import torch

    scaled = training.precision == "amp-fp16"
    settings, notes = fused(spec, training, device)
    optimiser = spec.kind(params, **settings)
    if settings.get("fused"):
        begin_momentum(optimiser)
    schedule = training.lr_schedule.factor if training.lr_schedule else spec.schedule
    scheduled = Scheduled(optimiser, schedule, pace) if schedule else None
    clip = partial(torch.nn.utils.clip_grad_norm_, params, spec.clip_norm) if spec.clip_norm is not None else None
    if scaled:
        learns = _scaled(optimiser, torch.amp.GradScaler(device_type(device)), clip, only, notes)
    else:
        learns = _unscaled(optimiser, clip, only, notes)
    if not (scheduled or after):
        return learns
    advance = scheduled.advance if scheduled else None
    return replace(learns, update=_followed(learns.update, advance, after), scheduled=scheduled)


def changes_after(update: Update, module: nn.Module) -> Callable[[], None] | None:
    """What the update does with its module after each of the optimiser's steps; None if it does nothing."""
    return partial(update.after, module) if update.after else None


def _followed(
    update: Callable[[], None], advance: Callable[[], None] | None, after: Callable[[], None] | None
) -> Callable[[], None]:
    """The optimiser's step, then the next learning rate, then the change of the module without gradients."""
    import torch

    def all_of() -> None:
        update()
        if advance:
            advance()
        if after:
            with torch.no_grad():
                after()

    return all_of


def _unscaled(
    optimiser: Any, clip: Callable[[], Any] | None, only: list[Tensor] | None, notes: tuple[str, ...]
) -> Learner:
    def backward(loss: Tensor) -> None:
        loss.backward(inputs=only)

    def clipped() -> None:
        assert clip
        clip()
        optimiser.step()

    return Learner(optimiser.zero_grad, backward, clipped if clip else optimiser.step, notes=notes, optimiser=optimiser)


def _scaled(
    optimiser: Any, scaler: Any, clip: Callable[[], Any] | None, only: list[Tensor] | None, notes: tuple[str, ...]
) -> Learner:
    """A learner that scales losses, so that small gradients do not vanish in fp16.

    All backward passes of one step have the same scale.
    """

    def backward(loss: Tensor) -> None:
        scaler.scale(loss).backward(inputs=only)

    def update() -> None:
        if clip:
            scaler.unscale_(optimiser)
            clip()
        scaler.step(optimiser)
        scaler.update()

    return Learner(optimiser.zero_grad, backward, update, (scaler.get_scale,), notes, optimiser, scaler)


def fused(spec: Optimiser, training: Training, device: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The optimiser's settings, and notes. On a GPU it is fused if the job shards, compiles, or scales losses.

    The fused form updates all parameters with a few kernels. With a loss scale, the unfused form syncs at each step.
    For shards torch chooses no form by itself: without one, it would update them one by one.
    """
    settings = dict(spec.settings)
    scaled = training.precision == "amp-fp16"
    sharded = training.parallel.fsdp is not None
    if device_type(device) != "cuda" or not (scaled or sharded or training.compile != "none"):
        return settings, ()
    forms = inspect.signature(spec.kind).parameters
    if sharded and "fused" not in forms and "foreach" in forms:
        settings.setdefault("foreach", True)
    if "fused" in forms:
        settings.setdefault("fused", True)
        return settings, ()
    name = getattr(spec.kind, "__name__", spec.kind)
    return settings, ((f"amp-fp16: {name} has no fused form; each step syncs",) if scaled else ())


def begin_momentum(optimiser: Any) -> None:
    """Set the momentum of SGD to 0.

    torch's fused SGD leaves the momentum uninitialised until its first step. In fp16 that step often overflows and is
    skipped. The next step would then use the uninitialised values, and the weights diverge (torch 2.11 and 2.14).
    """
    import torch

    if isinstance(optimiser, torch.optim.SGD):
        for group in optimiser.param_groups:
            for param in group["params"] if group["momentum"] else ():
                optimiser.state[param]["momentum_buffer"] = torch.zeros_like(param)
