"""The weights of B models as rows of one matrix, so that a stock optimiser can treat each model by its own settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Block:
    """The weights of one dtype.

    Attributes:
        params: the stacked weights, each [B, ...], with which the models compute.
        sizes: the weights of one model in each of them.
        weights: all of them as [B, N]. The optimiser trains these, and `scatter` copies them to `params`.
        grads: the gradients [B, N], which `gather` copies from `params`.
    """

    params: tuple[Tensor, ...]
    sizes: tuple[int, ...]
    weights: Tensor
    grads: Tensor


class Rows:
    """The stacked weights of an array as matrices [B, N], one for each dtype.

    The stacked weights stay contiguous, so that no layer copies them; one copy a step brings them up to date.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.blocks: list[Block] = []
        for dtype in dict.fromkeys(param.dtype for param in params):
            of = tuple(param for param in params if param.dtype == dtype)
            weights = torch.cat([flat(param.detach()) for param in of], dim=1)
            sizes = tuple(flat(param).shape[1] for param in of)
            self.blocks.append(Block(of, sizes, weights, torch.zeros_like(weights)))

    def gather(self) -> None:
        """Copy the gradients into the rows, and drop those of the stacked weights."""
        for block in self.blocks:
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in block.params]
            torch.cat([flat(grad) for grad in grads], dim=1, out=block.grads)
            for param in block.params:
                param.grad = None

    def scatter(self) -> None:
        """Copy the rows into the stacked weights."""
        for block in self.blocks:
            into = [flat(param.detach()) for param in block.params]
            torch.split_with_sizes_copy(block.weights, block.sizes, dim=1, out=into)

    def collect(self) -> None:
        """Copy the stacked weights into the rows."""
        for block in self.blocks:
            torch.cat([flat(param.detach()) for param in block.params], dim=1, out=block.weights)

    def of(self, models: slice) -> list[Tensor]:
        """The rows of some models as parameters, whose gradients are the rows of `grads`."""
        found = []
        for block in self.blocks:
            row = torch.nn.Parameter(block.weights[models])
            row.grad = block.grads[models]
            found.append(row)
        return found

    @property
    def grads(self) -> list[Tensor]:
        """The gradients [B, N], one matrix for each dtype."""
        return [block.grads for block in self.blocks]


def flat(tensor: Tensor) -> Tensor:
    """[B, ...] -> [B, N]; a view if the tensor is contiguous."""
    return tensor.reshape(len(tensor), -1)
