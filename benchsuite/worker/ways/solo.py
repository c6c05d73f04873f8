"""Training by one process on one device."""

from __future__ import annotations

from collections.abc import Callable

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Workload
from benchsuite.worker.checks import Learning
from benchsuite.worker.compiling import compiled
from benchsuite.worker.feed import feed
from benchsuite.worker.learner import changes_after, learner
from benchsuite.worker.precision import MIXED
from benchsuite.worker.step import Part, Step, place, step_of, trainable


def make(workload: Workload, training: Training, device: str, ranks: None = None) -> Step:
    """The step of a workload. Its check: the parameters of every trained module have changed.

    Raises:
        ModelError: the training accumulates gradients, and the model steps by itself or trains nothing.
    """
    place(workload, training, device)
    learning = Learning(workload)
    if not workload.updates:
        return without_updates(workload, training, device, learning.check)
    parts = []
    for update in workload.updates:
        trained = workload.modules[update.trains]
        params = trainable(trained)
        only = params if len(workload.updates) > 1 else None  # other modules would accumulate gradients
        learns = learner(params, update.optimiser, training, device, only, changes_after(update, trained))
        parts.append(Part(compiled(update.loss, workload.modules, training), learns, times=update.times))
    return step_of(parts, workload, training, device, learning.check)


def without_updates(workload: Workload, training: Training, device: str, check: Callable[[], None]) -> Step:
    """The step of a model that steps by itself, or of one that loads data and trains nothing.

    Raises:
        ModelError: the training accumulates gradients, which such a model does not leave to benchsuite.
    """
    if training.accumulate > 1:
        why = "the model steps by itself" if workload.step else "the model trains nothing"
        raise ModelError(f"accumulate {training.accumulate}: {why}, so its batches cannot be split; leave it out")
    if workload.step:
        return Step(workload.step, workload.losses, notes=own_step_notes(training), check=check)
    return Step(workload.items, feed=feed(training, device))


def own_step_notes(training: Training) -> tuple[str, ...]:
    """A note on the options of the training that a model with a step of its own ignores."""
    asked = [f"precision {training.precision}"] if training.precision in MIXED else []
    asked += [f"compile {training.compile}"] if training.compile != "none" else []
    asked += ["channels_last"] if training.channels_last else []
    return (f"the model steps by itself, without {' and '.join(asked)}",) if asked else ()
