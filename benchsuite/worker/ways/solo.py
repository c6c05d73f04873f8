"""One process trains on one device."""

from __future__ import annotations

from collections.abc import Callable

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Workload
from benchsuite.worker.checks import Learning
from benchsuite.worker.compiling import compiled
from benchsuite.worker.feed import feed
from benchsuite.worker.learner import learner
from benchsuite.worker.precision import MIXED
from benchsuite.worker.step import Part, Step, place, step_of, trainable


def make(workload: Workload, training: Training, device: str, ranks: None = None) -> Step:
    """The step of a workload; its check is that the parameters of every module to be trained have changed.

    Raises:
        ModelError: gradients cannot be accumulated.
    """
    place(workload, training, device)
    learning = Learning(workload)
    if not workload.updates:
        return without_updates(workload, training, device, learning.check)
    parts = []
    for update in workload.updates:
        params = trainable(workload.modules[update.trains])
        only = params if len(workload.updates) > 1 else None  # else other modules would gather gradients as well
        learns = learner(params, update.optimiser, training, device, only)
        parts.append(Part(compiled(update.loss, workload.modules, training), learns))
    return step_of(parts, workload, training, device, learning.check)


def without_updates(workload: Workload, training: Training, device: str, check: Callable[[], None]) -> Step:
    """The step of a model that steps by itself, or of one that loads data and trains nothing.

    Raises:
        ModelError: gradients are to be accumulated, which are not this program's to compute.
    """
    if training.accumulate > 1:
        why = "the model steps by itself" if workload.step else "the model trains nothing"
        raise ModelError(f"accumulate {training.accumulate}: {why}, so its batches cannot be split; leave it out")
    if workload.step:
        return Step(workload.step, workload.losses, notes=own_step_notes(training), check=check)
    return Step(workload.items, feed=feed(training, device))


def own_step_notes(training: Training) -> tuple[str, ...]:
    """What a model that steps by itself does without, of what was asked for."""
    asked = [f"precision {training.precision}"] if training.precision in MIXED else []
    asked += [f"compile {training.compile}"] if training.compile != "none" else []
    asked += ["channels_last"] if training.channels_last else []
    return (f"the model steps by itself, without {' and '.join(asked)}",) if asked else ()
