"""Gradients among the replicas of a stage, and one norm over the gradients of all stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


class FlatGradients:
    """Gradients that lie side by side in memory, so that one exchange averages all of them.

    Backward passes add to them in place.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self._flats = []
        for dtype in dict.fromkeys(param.dtype for param in params):
            alike = [param for param in params if param.dtype == dtype]
            flat = torch.zeros(sum(param.numel() for param in alike), dtype=dtype, device=alike[0].device)
            for param, part in zip(alike, flat.split([param.numel() for param in alike]), strict=True):
                param.grad = part.view_as(param)
            self._flats.append(flat)

    def clear(self) -> None:
        """Set all gradients to 0."""
        for flat in self._flats:
            flat.zero_()

    def average(self, group: Any, ranks: int) -> None:
        """Replace the gradients by their means over the ranks of a group."""
        for flat in self._flats:
            dist.all_reduce(flat, group=group)
            flat.div_(ranks)


def clipping(params: Sequence[Tensor], most: float, group: Any) -> Callable[[], None]:
    """The function that clips the gradients of this rank by the norm of those of all stages together.

    Args:
        most: the largest norm.
        group: one rank for each place of a pipeline.
    """

    def clip() -> None:
        square = get_total_norm([param.grad for param in params if param.grad is not None]).square()
        dist.all_reduce(square, group=group)
        clip_grads_with_norm_(params, most, square.sqrt())

    return clip
