"""Training by epochs. Checkpoints and BLEU come between two epochs, so that no slice holds their time.

An epoch is a function of the weights and optimisers before it, the seed, the rank and its number: the batches begin
anew, the carry is empty, and random numbers get a seed of the epoch. So a training that continues from a checkpoint
equals one that was never interrupted, and a checkpoint holds no state of a generator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from benchsuite.errors import ModelError
from benchsuite.events import Assignment, EpochClosed
from benchsuite.measurement import Epoch
from benchsuite.models import Batch, Share
from benchsuite.schema import finite
from benchsuite.worker.measuring import Measuring
from benchsuite.worker.ranks import Ranks
from benchsuite.worker.state import Content, State
from benchsuite.worker.step import Step

if TYPE_CHECKING:
    from torch import Tensor

    from benchsuite.describe.tasks import Job

Ended: TypeAlias = Literal["epochs", "target", "max_time", "stop"]


class MeanLoss:
    """A step that also adds up its losses, on the device."""

    def __init__(self, step: Step) -> None:
        self._step, self._steps = step, 0
        self._total: Tensor | None = None

    def run(self, batch: Batch) -> int:
        """Take the step."""
        items = self._step.run(batch)
        for loss in self._step.losses:
            one = loss.detach().double()
            self._total = one if self._total is None else self._total + one
        self._steps += 1
        return items

    def taken(self, ranks: Ranks | None) -> float | None:
        """The mean since the last call, over the steps of all ranks that have losses; None if no rank has. A sync."""
        total, steps = self._total, self._steps
        self._total, self._steps = None, 0
        sums = [float(total), float(steps)] if total is not None else [0.0, 0.0]
        if ranks:
            sums = ranks.total(sums)
        return finite(sums[0] / sums[1]) if sums[1] else None


@dataclass(frozen=True)
class Begin:
    """The state in which the first epoch begins, and the number of epochs before it."""

    content: Content
    epochs: int


class Epochs:
    """The epochs of one task.

    Args:
        step: its state is read at once, since the warm-up changes it.
        batches: makes the batches of an epoch from a share.
        share: that of this rank.

    Raises:
        ModelError: the model steps by itself or trains nothing, or the checkpoint to continue from does not fit.
    """

    def __init__(
        self,
        assignment: Assignment,
        step: Step,
        batches: Callable[[Share], Iterator[Batch]],
        share: Share,
        ranks: Ranks | None = None,
    ) -> None:
        job = assignment.task.job
        if step.state is None or not step.state.learners:
            raise ModelError("max_epochs and target need a model whose weights benchsuite trains; leave them out")
        self.job: Job = job
        self.state: State = step.state
        self.step, self.share, self.ranks = step, share, ranks
        self._batches = batches
        self._prefix = assignment.checkpoints
        self._begin = self._begun()
        self._mean = MeanLoss(step)

    def _begun(self) -> Begin:
        """The state of a new training, or that of the checkpoint."""
        if self.job.resume_from is None:
            return Begin(self.state.read(), 0)
        from benchsuite.worker import saved

        found = saved.read(self.job.resume_from)
        if found.model != (self.job.model or self.job.entry):
            raise ModelError(f"{found.prefix}: a checkpoint of '{found.model}'; continue with that model")
        if self.job.max_epochs is not None and found.epoch >= self.job.max_epochs:
            raise ModelError(f"{found.prefix}: {found.epoch} epochs are trained; give a larger max_epochs")
        return Begin(found.content, found.epoch)

    @property
    def counted(self) -> Step:
        """The step to measure: it adds up its losses."""
        return replace(self.step, run=self._mean.run)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the result must know."""
        if self.job.resume_from is None:
            return ()
        return (f"continued from {self.job.resume_from} after {self._begin.epochs} epochs",)

    def run(self, measuring: Measuring) -> Ended:
        """Train epoch after epoch, from the state before the warm-up.

        Raises:
            ModelError: an epoch has no batch, or a checkpoint cannot be written.
        """
        self.step.finish()
        self.state.set(self._begin.content)
        number, self._begin = self._begin.epochs, Begin({}, self._begin.epochs)
        measuring.begin()
        while self.job.max_epochs is None or number < self.job.max_epochs:
            number += 1
            began = measuring.steps, measuring.items, measuring.trained_s
            self._open(number)
            with ExitStack() as ends:
                batches = self._batches(replace(self.share, seed=self._order(number)))
                if hasattr(batches, "close"):
                    ends.callback(batches.close)  # ends what reads ahead
                stopped_by = measuring.epoch(batches, self.job.epoch_items or 0)
            if stopped_by in ("max_time", "stop"):
                return "max_time" if stopped_by == "max_time" else "stop"
            steps, items = measuring.steps - began[0], measuring.items - began[1]
            if not steps:
                raise ModelError(f"the data of epoch {number} held no batch; bring a larger data set")
            epoch = Epoch(
                epoch=number,
                end_s=measuring.end_s,
                trained_s=round(measuring.trained_s - began[2], 6),
                steps=steps,
                items=items,
                loss=self._mean.taken(self.ranks),
            )
            if self._close(epoch, measuring):
                return "target"
        return "epochs"

    def _order(self, number: int) -> int:
        """The seed of an epoch's batches. Generated batches stay the same; those of files get a new order."""
        return self.share.seed if self.share.data is None else self.share.seed + 7_919 * (number - 1)

    def _open(self, number: int) -> None:
        import torch

        self.step.forget()
        seed = ((self.share.seed * 1_000_003 + number) * 1_000_003 + self.share.rank) % (1 << 63)
        torch.manual_seed(seed)

    def _close(self, epoch: Epoch, measuring: Measuring) -> bool:
        """Write the checkpoint, measure BLEU, and report the epoch; True if the target is met."""
        import msgspec

        began = time.monotonic()
        self.step.finish()
        bleu = None
        if self._prefix is not None:
            self._save(epoch)
            if self.job.target and self.job.target.bleu is not None:
                bleu = self._bleu(epoch.epoch)
        target = self.job.target
        met = target is not None and target.met(epoch.loss, bleu)
        if self.ranks:
            met = bool(self.ranks.agree([int(met)])[0])
        kept = None
        if self._prefix is not None:
            place = Path(f"{self._prefix}.epoch{epoch.epoch}")
            kept = f"{place.parent.name}/{place.name}"
        pause_s = round(time.monotonic() - began, 6)
        whole = msgspec.structs.replace(epoch, bleu=bleu, checkpoint=kept, pause_s=pause_s)
        events = measuring.events
        events.write(EpochClosed(n=events.count, at_s=time.monotonic(), epoch=whole))
        return met

    def _save(self, epoch: Epoch) -> None:
        """Write this rank's stage, if it is the one that does; all ranks return once every stage is written."""
        from benchsuite.worker import saved

        assert self._prefix
        content, state = self.state.read(), self.state
        writes = state.writes if state.writes is not None else self.share.rank == 0
        if writes:
            head = {
                "format": saved.FORMAT,
                "epoch": epoch.epoch,
                "stage": state.stage,
                "stages": state.stages,
                "model": self.job.model or self.job.entry,
                "params": self.job.params,
                "loss": epoch.loss,
            }
            saved.write(saved.file_of(self._prefix, epoch.epoch, state.stage), {**head, **content})
        if self.ranks:
            self.ranks.barrier()
        if writes and self.job.checkpoints == "last":
            saved.file_of(self._prefix, epoch.epoch - 1, state.stage).unlink(missing_ok=True)

    def _bleu(self, number: int) -> float | None:
        """The BLEU of the checkpoint of this epoch, on rank 0; None on the others, which do not wait here."""
        if self.share.rank or self.share.data is None:
            return None
        from benchsuite.models.translation.corpus import test_set
        from benchsuite.models.translation.evaluation import evaluated
        from benchsuite.worker import saved

        found = saved.read(f"{self._prefix}.epoch{number}")
        scored = evaluated(
            found.model, found.params, found.content["modules"], test_set(self.share.data), self.share.device
        )
        return scored.bleu
