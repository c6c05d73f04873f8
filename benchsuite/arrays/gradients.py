"""The gradients of B models, model by model: overflows, unscaling and clipping."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Gradients:
    """The gradients of an array.

    Args:
        rows: matrices [B, N], whose rows are gradients of one model.
        alone: for each model the parameters that it does not share with the stacked ones; empty if there are none.
    """

    def __init__(self, rows: Sequence[Tensor], alone: Sequence[Sequence[Tensor]] = ()) -> None:
        self._rows, self._alone = rows, alone

    def overflowed(self) -> Tensor:
        """[B]: 1 for a model with a gradient that is not finite, else 0."""
        finite = [torch.isfinite(rows).all(dim=1) for rows in self._rows]
        if self._alone:
            finite.append(torch.stack([torch.isfinite(norm) for norm in self._norms_alone()]))
        return 1 - torch.stack(finite).all(dim=0).float()

    def multiply(self, factors: Tensor) -> None:
        """Multiply all gradients of each model by its factor [B], in place."""
        for rows in self._rows:
            rows.mul_(factors.to(rows.dtype)[:, None])
        for model, params in enumerate(self._alone):
            torch._foreach_mul_([param.grad for param in params], factors[model])

    def clip(self, limits: Tensor) -> None:
        """Scale the gradients of each model to a norm of at most its limit [B]; the formula is torch's."""
        squares = [rows.square().sum(dim=1).to(limits.dtype) for rows in self._rows]
        if self._alone:
            squares.append(torch.stack(self._norms_alone()).square().to(limits.dtype))
        norms = torch.stack(squares).sum(dim=0).sqrt()
        self.multiply((limits / (norms + 1e-6)).clamp(max=1.0))

    def _norms_alone(self) -> list[Tensor]:
        each = (torch._foreach_norm([param.grad for param in params]) for params in self._alone)
        return [torch.linalg.vector_norm(torch.stack(norms)) for norms in each]
