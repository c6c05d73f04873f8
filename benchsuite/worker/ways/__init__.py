"""Ways of training: one file each, with `make(workload, training, device, ranks) -> Step`.

Each places the workload's modules on the device, wraps or shards them, makes their optimisers, and compiles them with
their losses. Each has checks of its own. The timed loop is the same for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchsuite.describe.training import Training
from benchsuite.models import Workload
from benchsuite.worker.step import Step
from benchsuite.worker.ways import solo

if TYPE_CHECKING:
    from benchsuite.worker.ranks import Ranks

PLAIN = Training()


def make_step(workload: Workload, training: Training = PLAIN, device: str = "cpu", ranks: Ranks | None = None) -> Step:
    """The step of a workload: trained by several ranks if `ranks` is given, else by this process alone.

    Args:
        device: torch's name; the workload's modules are moved there in place.
        ranks: this rank and its group.

    Raises:
        ModelError: the workload cannot be trained in this way.
    """
    if ranks is None:
        return solo.make(workload, training, device)
    from benchsuite.worker.ways import ddp

    return ddp.make(workload, training, device, ranks)
