"""Training of B models by one process as one: a fused array.

The weights of the models are stacked, and vmap computes all losses at once from the same batch. Each model has its own
weights, random numbers, batch statistics, optimiser settings and loss scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchsuite.arrays.changes import LearningOfEach
from benchsuite.arrays.learning import learner_of_each
from benchsuite.arrays.losses import change_each, keep_in_place, losses_of, state_of
from benchsuite.arrays.stacking import Stacked, stack
from benchsuite.arrays.units import Fused, make_units
from benchsuite.describe.training import Training
from benchsuite.errors import ModelError, one_line
from benchsuite.models import Batch, Carry, Update, Workload
from benchsuite.worker import compiling
from benchsuite.worker.precision import MIXED
from benchsuite.worker.step import Part, Step, step_of

# The begin of vmap's warning at each use of an operation for which it has no rule.
NO_RULE = "There is a performance drop because we have not yet implemented the batching rule for "


def make(workloads: Sequence[Workload], training: Training, device: str) -> Step:
    """The step of an array; its items are those of all models, its losses have a value for each model.

    The modules of the workloads are consumed: those of the first become the template, the others are emptied. Its
    check: the parameters of each trained module of each model have changed.

    Args:
        workloads: the models, which differ in weights and in settings of their optimisers only.

    Raises:
        ModelError: the models cannot be fused.
    """
    return fuse(workloads, training, device)[0]


def fuse(workloads: Sequence[Workload], training: Training, device: str) -> tuple[Step, Fused]:
    """As `make`, with the stacked weights.

    Raises:
        ModelError: the models cannot be fused.
    """
    first, count = workloads[0], len(workloads)
    check_fusible(first)
    zeros = torch.zeros(count, dtype=torch.int64, device=device)
    notes: list[str] = []
    fused = (make_units if training.unfused_units else make_whole)(workloads, training, device, zeros)
    parts = [replace(part, loss=watched(part.loss, notes, training.compile != "none")) for part in fused.parts]
    whole = replace(first, items=lambda batch: count * first.items(batch))
    step = step_of(parts, whole, training, device, fused.learning.check)
    return replace(step, found=notes, modules=fused.modules()), fused


def check_fusible(workload: Workload) -> None:
    """Raises ModelError: the model has no loss that benchsuite computes, or modules that share a parameter."""
    if workload.step:
        raise ModelError("array: the model steps by itself, so that its copies cannot be fused")
    if not workload.updates:
        raise ModelError("array: the model trains nothing")
    held = [id(param) for module in workload.modules.values() for param in module.parameters()]
    if len(set(held)) < len(held):
        raise ModelError("array: two modules of the model share a parameter, which stacking would separate")


def make_whole(workloads: Sequence[Workload], training: Training, device: str, zeros: Tensor) -> Fused:
    """An array whose modules are all fused."""
    first = workloads[0]
    nets = {name: stack(name, workloads, device) for name in first.modules}
    learning = LearningOfEach({update.trains: nets[update.trains].trainable for update in first.updates})
    if training.compile != "none":
        keep_in_place(nets)
    state = state_of(nets)
    carry_dim = 1 if training.accumulate > 1 else 0  # micro-batches of a carry lie sample by sample
    parts = []
    for index, update in enumerate(first.updates):
        stacked = nets[update.trains]
        only = stacked.trainable if len(first.updates) > 1 else None
        specs = [workload.updates[index].optimiser for workload in workloads]
        after = changes_of_each(update, stacked, zeros)
        learns = learner_of_each(stacked.trainable, specs, training, device, only, after)
        losses = losses_of(update.loss, nets, zeros, carry_dim, mixed=training.precision in MIXED)
        if training.compile != "none":
            losses = torch.compile(losses, **compiling.settings(training))
        parts.append(Part(partial(losses, state), learns, times=update.times))
    return Fused(parts, learning, nets)


def changes_of_each(update: Update, stacked: Stacked, zeros: Tensor) -> Callable[[], None] | None:
    """What the update does with the weights of each model after a step of the optimiser; None if it does nothing."""
    return partial(change_each, stacked, update.after, zeros) if update.after else None


def watched(loss: Callable[..., Any], notes: list[str], compiled: bool) -> Callable[[Batch, Carry], Any]:
    """The losses; the first call notes the operations for which vmap has no rule, and says why a model cannot be fused.

    Raises:
        ModelError: vmap cannot compute the loss.
    """
    called = False

    def first(batch: Batch, carry: Carry) -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = loss(batch, carry)
        warnings.filterwarnings("ignore", message=NO_RULE)
        for one in seen:
            text = str(one.message)
            if text.startswith(NO_RULE):
                name = text.removeprefix(NO_RULE).partition(".")[0]
                note = f"array: vmap has no rule for {name}, which computes model by model"
                if note not in notes:
                    notes.append(note)
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return found

    def run(batch: Batch, carry: Carry) -> Any:
        nonlocal called
        try:
            found = loss(batch, carry) if called or compiled else first(batch, carry)
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
            reason = one_line(str(error)).partition(" Please file")[0].partition(". If you")[0]
            raise ModelError(f"array: the model cannot be fused: {reason}") from error
        called = True
        return found

    return run
