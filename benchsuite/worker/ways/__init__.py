"""Ways of training: one file each, with `make(workload, training, device, ranks) -> Step`.

Each goes the same way: the workload's modules are placed on the device, wrapped or sharded, get an optimiser, and are
compiled with their losses. It brings the checks that fit it. The timed loop knows none of them.
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
    """The step of a workload in the way that its training and its ranks ask for.

    Args:
        device: as torch calls it; the workload's modules are moved there in place.
        ranks: this rank's place among those that train together; None: it trains alone.

    Raises:
        ModelError: the workload cannot be trained so.
    """
    if ranks is None:
        return solo.make(workload, training, device)
    from benchsuite.worker.ways import ddp

    return ddp.make(workload, training, device, ranks)
