"""How the weights of B models learn from their losses, each with its own settings, by stock optimisers of torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, optim

from benchsuite.arrays.gradients import Gradients
from benchsuite.arrays.graphs import graphed
from benchsuite.arrays.rows import Rows
from benchsuite.arrays.scaling import LossScales
from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Optimiser
from benchsuite.worker import compiling
from benchsuite.worker.learner import Learner, begin_momentum, fused, learner
from benchsuite.worker.lr_schedule import Scheduled
from benchsuite.worker.precision import device_type

# Optimisers that treat each weight by itself: they do the same to a row of all weights as to each parameter.
ELEMENTWISE = (
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
    optim.Adagrad,
    optim.Adadelta,
    optim.Rprop,
    optim.ASGD,
)


def learner_of_each(
    params: Sequence[Tensor],
    specs: Sequence[Optimiser],
    training: Training,
    device: str,
    only: list[Tensor] | None,
    after: Callable[[], None] | None = None,
    alone: Sequence[Sequence[Tensor]] = (),
) -> Learner:
    """The learner of an array. Its `backward` takes the losses [B].

    Models with the same settings are one parameter group. If all have the same, no gradients are clipped and no loss is
    scaled, the optimiser trains the stacked weights as they are. Else it trains the rows of a matrix.

    Args:
        params: the stacked weights, each [B, ...].
        specs: the optimiser of each model.
        only: the tensors for which the backward pass computes gradients; None for all that the losses depend on.
        after: called after each of the optimiser's steps, without gradients; it changes stacked weights.
        alone: for each model the parameters that are not stacked; empty if all are.

    Raises:
        ModelError: the models differ in the kind of optimiser, or it does not treat each weight by itself.
    """
    check(specs)
    alike = all(spec == specs[0] for spec in specs)
    scaled = training.precision == "amp-fp16"
    if alike and not scaled and specs[0].clip_norm is None and not alone:
        whole = learner(list(params), specs[0], training, device, only, after)
        return replace(whole, backward=lambda losses: whole.backward(losses.sum()))
    return RowLearner(params, specs, training, device, only, after, alone).learner()


def check(specs: Sequence[Optimiser]) -> None:
    """Raises ModelError: one optimiser cannot treat all models of the array."""
    first = specs[0]
    same = all(
        (spec.kind, set(spec.settings), spec.clip_norm is None)
        == (first.kind, set(first.settings), first.clip_norm is None)
        for spec in specs
    )
    if not same:
        raise ModelError("array: the models have optimisers of different kinds; give them the same")
    if first.kind not in ELEMENTWISE:
        name = getattr(first.kind, "__name__", first.kind)
        raise ModelError(f"array: {name} does not treat each weight by itself, so it cannot train stacked weights")


class RowLearner:
    """Trains the rows of a matrix; see `learner_of_each`."""

    def __init__(
        self,
        params: Sequence[Tensor],
        specs: Sequence[Optimiser],
        training: Training,
        device: str,
        only: list[Tensor] | None,
        after: Callable[[], None] | None,
        alone: Sequence[Sequence[Tensor]],
    ) -> None:
        self._params, self._alone, self._only, self._after = params, alone, only, after
        self._rows = Rows(params)
        self._gradients = Gradients(self._rows.grads, alone)
        on_gpu = device_type(device) == "cuda"
        self._scales = LossScales(len(specs), device) if training.precision == "amp-fp16" else None
        self._limits = None
        if specs[0].clip_norm is not None:
            self._limits = torch.tensor([spec.clip_norm for spec in specs], dtype=torch.get_default_dtype()).to(device)
        replays = compiling.graphed(training, device)
        made = [settings_of(spec, training, device, capturable=replays) for spec in specs]
        self._notes = tuple(dict.fromkeys(note for _, notes in made for note in notes))
        self._optimisers = self._made(specs[0].kind, [settings for settings, _ in made])
        self._skips_on_device = on_gpu and bool(made[0][0].get("fused"))
        schedule = training.lr_schedule.factor if training.lr_schedule else specs[0].schedule
        self._advance = [Scheduled(one, schedule).advance for one in self._optimisers] if schedule else []
        # A graph keeps the learning rate with which it was captured.
        whole = replays and not alone and not schedule and (self._scales is None or self._skips_on_device)
        self._update = graphed(self._learnt) if whole else self._learnt

    def learner(self) -> Learner:
        """What a step calls."""
        scales = self._scales
        reads = tuple(partial(scales.of, model) for model in range(len(scales.scales))) if scales else ()
        return Learner(self.clear, self.backward, self.update, reads, self._notes)

    def _made(self, kind: Callable[..., Any], settings: Sequence[dict[str, Any]]) -> list[Any]:
        """One optimiser; with loss scales one for each model, since each is skipped on its own."""
        groups: list[dict[str, Any]] = []
        each = self._scales is not None or bool(self._alone)
        for _, of in groupby(range(len(settings)), key=lambda model: model if each else settings[model]):
            models = list(of)
            own = list(self._alone[models[0]]) if self._alone else []
            rows = self._rows.of(slice(models[0], models[-1] + 1))
            groups.append({"params": [*rows, *own], **settings[models[0]]})
        made = [kind([group]) for group in groups] if self._scales else [kind(groups)]
        for optimiser in made:
            if optimiser.param_groups[0].get("fused"):
                begin_momentum(optimiser)
        return made

    def clear(self) -> None:
        """Drop the gradients of the last step."""
        for param in self._params:
            param.grad = None
        for params in self._alone:
            for param in params:
                param.grad = None

    def backward(self, losses: Tensor) -> None:
        """Add the gradients of the losses [B], each of which depends on its own model only."""
        scaled = self._scales.scaled(losses) if self._scales else losses
        scaled.sum().backward(inputs=self._only)

    def update(self) -> None:
        """Take the optimisers' step."""
        self._rows.gather()
        self._update()
        for advance in self._advance:
            advance()
        if self._after:
            with torch.no_grad():
                self._after()
            self._rows.collect()

    def _learnt(self) -> None:
        overflowed = None
        if self._scales:
            overflowed = self._gradients.overflowed()
            self._gradients.multiply(self._scales.inverse())
        if self._limits is not None:
            self._gradients.clip(self._limits)
        if overflowed is None:
            self._optimisers[0].step()
        else:
            self._step_each(overflowed)
            assert self._scales
            self._scales.update(overflowed)
        self._rows.scatter()

    def _step_each(self, overflowed: Tensor) -> None:
        """Step the models whose gradients did not overflow."""
        if self._skips_on_device:
            for optimiser, one in zip(self._optimisers, overflowed.unbind(), strict=True):
                optimiser.found_inf = one.reshape(1)  # the fused kernels read it, and change nothing if it is 1
                optimiser.step()
            return
        for optimiser, skipped in zip(self._optimisers, overflowed.tolist(), strict=True):
            if not skipped:
                optimiser.step()


def settings_of(
    spec: Optimiser, training: Training, device: str, *, capturable: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The settings of an optimiser of rows, and notes. On a GPU it is fused, since each group has kernels of its own.

    Args:
        capturable: its step is captured as a CUDA graph.
    """
    settings, notes = fused(spec, training, device)
    forms = inspect.signature(spec.kind).parameters
    if device_type(device) == "cuda" and "fused" in forms and "foreach" not in settings:
        settings.setdefault("fused", True)
    if capturable and "capturable" in forms:
        settings["capturable"] = True
    return settings, notes
