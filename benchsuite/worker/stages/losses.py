"""The loss of a pipeline, on all its ranks: only the last stage computes it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from benchsuite.worker.stages.prepared import Prepared


class Losses:
    """Passes on losses at the end of slices, through gloo. All ranks wait for it.

    Each rank of a pipeline reads the loss of its own pipeline. With replicas of different numbers (`pipedream`) all
    ranks read the mean over those of the last stage.
    """

    def __init__(self, model: Prepared) -> None:
        layout, rank = model.layout, model.ranks.rank
        self._place = layout.replica(rank)
        self._last = model.last
        self._alike = len({len(ranks) for ranks in layout.ranks}) == 1
        self._width = len(layout.of_stage(layout.stages - 1))

    def reader(self, losses: list[Tensor]) -> Callable[[], list[float]]:
        """The function that reads the losses, of which this rank may hold none."""

        def read() -> list[float]:
            found = torch.zeros(self._width, dtype=torch.float64)
            if self._last and losses:
                found[self._place] = float(losses[0])
            dist.all_reduce(found)
            return [float(found[self._place] if self._alike else found.mean())]

        return read
