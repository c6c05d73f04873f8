"""Loss scales for fp16, one for each model of an array: an overflow in one model skips no step of another."""

from __future__ import annotations

import torch
from torch import Tensor

# Those of torch.amp.GradScaler.
FIRST, GROWTH, BACKOFF, INTERVAL = 2.0**16, 2.0, 0.5, 2000


class LossScales:
    """The scales [B] of the losses, and how they change.

    A scale is halved when its model's gradients overflow, and doubled after `INTERVAL` steps without an overflow.
    """

    def __init__(self, models: int, device: str) -> None:
        self.scales = torch.full((models,), FIRST, device=device)
        self._good = torch.zeros(models, device=device)  # steps without an overflow

    def scaled(self, losses: Tensor) -> Tensor:
        """The losses [B], multiplied by their scales."""
        return losses * self.scales

    def inverse(self) -> Tensor:
        """What gradients are multiplied by, [B]."""
        return 1 / self.scales

    def update(self, overflowed: Tensor) -> None:
        """Adapt the scales in place.

        Args:
            overflowed: [B], 1 for a model with a gradient that is not finite, else 0.
        """
        # Sums instead of torch.where, which copies its numbers from the host: a CUDA graph cannot hold such a copy.
        grown = (self._good + 1 >= INTERVAL).float() * (1 - overflowed)
        self.scales.mul_(1 + (GROWTH - 1) * grown + (BACKOFF - 1) * overflowed)
        self._good.add_(1).mul_((1 - overflowed) * (1 - grown))

    def of(self, model: int) -> float:
        """The scale of one model. This is a sync."""
        return float(self.scales[model])
