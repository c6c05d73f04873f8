"""Data parallel training: each rank has batches of its own, and gradients are averaged over the ranks."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Batch, Carry, Update, Workload
from benchsuite.worker import compiling
from benchsuite.worker.checks import Learning
from benchsuite.worker.learner import changes_after, learner
from benchsuite.worker.ranks import Ranks
from benchsuite.worker.step import Part, Step, place, step_of, trainable
from benchsuite.worker.ways import solo

Result = TypeVar("Result")


class UpdateLoss(nn.Module):
    """An update's loss as a module that DistributedDataParallel can wrap.

    Its only submodule is the one that the update trains. Gradients of other modules that the loss calls are not
    averaged.
    """

    def __init__(self, update: Update, workload: Workload) -> None:
        super().__init__()
        self.trained = workload.modules[update.trains]
        self._loss, self._nets = update.loss, dict(workload.modules)

    def forward(self, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        """The mean loss of the batch, a scalar tensor, and the carry."""
        return self._loss(self._nets, batch, carry)


def make(workload: Workload, training: Training, device: str, ranks: Ranks) -> Step:
    """The step of a workload. Its check: the weights have changed, and are the same on all ranks.

    Raises:
        ModelError: the model steps by itself, or cannot be wrapped.
    """
    if workload.step and workload.by_ranks:
        return by_itself(workload, training, device, ranks)
    if workload.step:
        raise ModelError("the model steps by itself and cannot be trained by several ranks; give placement per_gpu")
    place(workload, training, device)
    learning = Learning(workload)

    def check() -> None:
        learning.check()
        check_same(workload, ranks.ranks)

    if not workload.updates:
        return solo.without_updates(workload, training, device, check)
    parts = []
    for update in workload.updates:
        loss = UpdateLoss(update, workload)
        averaging = wrapped(loss, type(loss.trained).__name__)
        params = trainable(loss.trained)
        only = params if len(workload.updates) > 1 else None
        learns = learner(params, update.optimiser, training, device, only, changes_after(update, loss.trained))
        if training.compile != "none":
            loss.compile(**compiling.settings(training))  # inside the wrapper, whose own code Dynamo cannot trace
        learns = replace(learns, update=heard(learns.update, ranks.beat))
        parts.append(Part(heard(averaging, ranks.beat), learns, averaging.no_sync, update.times))
    return step_of(parts, workload, training, device, check)


def by_itself(workload: Workload, training: Training, device: str, ranks: Ranks) -> Step:
    """The step of a model that steps by itself and says in `by_ranks` what several ranks do with it."""
    if workload.by_ranks == "lead" and ranks.rank:
        return Step(heard(heard(idle, ranks.barrier), ranks.beat), feed=nothing_to_read)
    step = solo.make(workload, training, device)
    if workload.by_ranks == "lead":
        step = replace(step, run=heard(step.run, ranks.barrier))  # the others' slices are as long as those of rank 0
    return replace(step, run=heard(step.run, ranks.beat))


def idle(batch: Batch) -> int:
    """The step of a rank that only lends its device to rank 0."""
    return 0


def nothing_to_read(batches: Iterator[Batch]) -> Iterator[None]:
    """Empty batches without end, so that the model makes none."""
    return itertools.repeat(None)


def wrapped(loss: nn.Module, name: str) -> DistributedDataParallel:
    """The loss wrapped, so that gradients are averaged over the ranks.

    Args:
        name: the class of the trained module, for messages.

    Raises:
        ModelError: the module cannot be wrapped.
    """
    # Each rank keeps its own buffers: those of batch norm are statistics of its own batches. torch renamed the setting.
    names = inspect.signature(DistributedDataParallel).parameters
    own_buffers = {"forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers": False}
    try:
        return DistributedDataParallel(loss, gradient_as_bucket_view=True, **own_buffers)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"'{name}' cannot be trained by several ranks: {reason}") from None


def check_same(workload: Workload, ranks: int) -> None:
    """Raises ModelError: the weights differ between ranks, so not all gradients were averaged."""
    names = sorted({update.trains for update in workload.updates})
    mine = [[float(p.detach().double().norm()) for p in workload.modules[name].parameters()] for name in names]
    all_of: list[Any] = [None] * ranks
    dist.all_gather_object(all_of, mine)
    for name, norms in zip(names, zip(*all_of, strict=True), strict=True):
        if any(apart(norms[0], other) for other in norms[1:]):
            raise ModelError(f"the ranks' weights of '{name}' have drifted apart: not all gradients were averaged")


def apart(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two series of norms differ by more than rounding."""
    return any(abs(a - b) > 1e-6 * max(abs(a), abs(b), 1e-12) for a, b in zip(one, other, strict=True))


def heard(run: Callable[..., Result], beat: Callable[[], None]) -> Callable[..., Result]:
    """`run`, followed by a call of `beat`."""

    def beating(*arguments: Any) -> Result:
        result = run(*arguments)
        beat()
        return result

    return beating
