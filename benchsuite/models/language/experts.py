"""A layer of experts, of which each token uses a few."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchsuite.errors import ModelError
from benchsuite.models.language.mixed import autocast_dtype, computes
from benchsuite.models.language.shapes import Shape


def check_experts() -> None:
    """Raises ModelError: the GPU of this process has no grouped matrix product."""
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0):
        raise ModelError("experts need a GPU of compute capability 8.0 or higher, for grouped products in bf16")


class _Spread(torch.autograd.Function):
    """Tokens [n, width] -> a row for each use of a token, [n * k, width], in the `order` of the experts.

    The backward pass reads the rows by the inverse order. Indexing alone would add rows atomically.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.tokens = len(x)
        return x[order // (len(order) // len(x))]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradient[inverse].unflatten(0, (ctx.tokens, -1)).sum(dim=1), None, None


class _Reorder(torch.autograd.Function):
    """Rows [n, width] in the order of `inverse`, whose own inverse is `order`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x[inverse]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return gradient[order], None, None


class Experts(nn.Module):
    """[rows, tokens, width] -> the same shape: the weighted sum of `experts_per_token` SwiGLU MLPs for each token.

    The experts of a token are drawn at random, all with the same probability, as Megatron-Core does to measure
    throughput: with random weights a trained router would send most tokens to few experts. The weights of the sum are
    the router's probabilities of the drawn experts, made to sum to 1, so that the router is trained. No token is
    dropped.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.used = shape.experts_per_token
        self.router = nn.Linear(shape.width, shape.experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(shape.experts, 2 * shape.hidden, shape.width))
        self.down = nn.Parameter(torch.empty(shape.experts, shape.width, shape.hidden))

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.rand(*x.shape[:-1], len(self.gate_up), device=x.device).topk(self.used).indices
        return self.mixed(x, chosen)

    def mixed(self, x: Tensor, chosen: Tensor) -> Tensor:
        """The output with these experts, int64 [rows, tokens, experts_per_token]."""
        tokens, experts = x.flatten(0, -2), chosen.flatten(0, -2)
        shares = self.router(tokens).float().softmax(dim=-1).gather(1, experts)
        shares = shares / shares.sum(dim=-1, keepdim=True)
        ordered, order = experts.flatten().sort(stable=True)
        inverse = torch.zeros_like(order).scatter(0, order, torch.arange(len(order), device=x.device))
        ends = torch.searchsorted(ordered, torch.arange(len(self.gate_up), device=x.device), right=True).int()
        rows = self._through(_Spread.apply(tokens, order, inverse), ends)
        each = _Reorder.apply(rows, order, inverse).unflatten(0, experts.shape)
        return (each * shares.to(each.dtype)[..., None]).sum(dim=1).view_as(x).to(x.dtype)

    def _through(self, rows: Tensor, ends: Tensor) -> Tensor:
        """Rows in the order of their experts, each through its own; `ends` int32 [experts] are the ends of the groups.

        Raises:
            ModelError: a GPU would compute in another dtype than bf16, for which it has no grouped kernel.
        """
        device = rows.device.type
        dtype = autocast_dtype(device) or (rows.dtype if computes(device) else torch.bfloat16)
        if device == "cuda" and dtype != torch.bfloat16:
            raise ModelError("experts: a GPU multiplies groups in bf16 only; give the job the precision bf16")
        gate_up, down = (weight.to(dtype).transpose(1, 2) for weight in (self.gate_up, self.down))
        gate, up = F.grouped_mm(rows.to(dtype), gate_up, offs=ends).chunk(2, dim=-1)
        return F.grouped_mm(F.silu(gate) * up, down, offs=ends)
