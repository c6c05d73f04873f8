"""Ways of training: one file each, with `make(workload, training, device, ranks) -> Step`.

Each places the workload's modules on the device, wraps or shards them, makes their optimisers, and compiles them with
their losses. Each has checks of its own. The timed loop is the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchsuite.describe.training import Training
from benchsuite.models import Workload
from benchsuite.worker.step import Step
from benchsuite.worker.ways import solo

if TYPE_CHECKING:
    from benchsuite.worker.ranks import Ranks

PLAIN = Training()
NOT_SHARDED = "fsdp: a replica has one rank, so that its weights are not split"


def make_step(
    workload: Workload,
    training: Training = PLAIN,
    device: str = "cpu",
    ranks: Ranks | None = None,
    others: Sequence[Workload] = (),
) -> Step:
    """The step of a workload: trained by several ranks if `ranks` is given, else by this process alone.

    Args:
        device: torch's name; the workload's modules are moved there in place.
        ranks: this rank and its group.
        others: the further models of an array.

    Raises:
        ModelError: the workload cannot be trained in this way.
    """
    if others:
        from benchsuite.worker.ways import array

        return array.make([workload, *others], training, device)
    if ranks and training.parallel.pp:
        from benchsuite.worker.ways import stages

        return stages.make(workload, training, device, ranks)
    if ranks and training.parallel.shards(ranks.ranks) > 1:
        from benchsuite.worker.ways import fsdp

        return fsdp.make(workload, training, device, ranks)
    if ranks is None:
        step = solo.make(workload, training, device)
    else:
        from benchsuite.worker.ways import ddp

        step = ddp.make(workload, training, device, ranks)
    return step if training.parallel.fsdp is None else replace(step, notes=(*step.notes, NOT_SHARDED))
