"""Linear layers that multiply in fp8 with one scale a tensor, chosen anew at each use."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchsuite.errors import ModelError
from benchsuite.models.language.mixed import autocast_dtype

LEAST = 1e-12  # a tensor of zeros has a scale as well


def check_fp8() -> None:
    """Raises ModelError: this process has no GPU that multiplies in fp8, or torch has no function for it."""
    if not hasattr(torch, "_scaled_mm"):
        raise ModelError(f"fp8: torch {torch.__version__} has no _scaled_mm; leave fp8 out")
    if not torch.cuda.is_available():
        raise ModelError("fp8 needs a GPU of compute capability 8.9 or higher; this task has none; leave fp8 out")
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) < (8, 9):
        raise ModelError(f"fp8 needs a GPU of compute capability 8.9 or higher, found {major}.{minor}; leave fp8 out")


def quantised(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A tensor in fp8, and the fp32 scale by which to multiply it again.

    The largest value of the tensor becomes the largest of the dtype.
    """
    scale = x.abs().amax().float().clamp(min=LEAST) / torch.finfo(dtype).max
    largest = torch.finfo(dtype).max
    return (x.float() / scale).clamp(-largest, largest).to(dtype), scale


def product(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, dtype: torch.dtype, *, fast: bool) -> Tensor:
    """The product of a [n, k] and b [k, m]; `a` has contiguous rows and `b` contiguous columns, as the GPU needs them.

    Args:
        fast: sum with fewer bits than fp32 within the tensor core.
    """
    # Dynamo of torch 2.11 breaks the graph at the public F.scaled_mm, once for each layer.
    out: Tensor = torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=dtype, use_fast_accum=fast)
    return out


def columns(x: Tensor) -> Tensor:
    """The matrix with contiguous columns."""
    return x.t().contiguous().t()


class _Fp8Product(torch.autograd.Function):
    """x [n, inputs] times the transpose of weight [outputs, inputs].

    Activations and weights are in e4m3. Gradients are in e5m2, which has a wider range, and sum in fp32.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x8, x_scale = quantised(x, torch.float8_e4m3fn)
        weight8, weight_scale = quantised(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x8, x_scale, weight8, weight_scale)
        ctx.dtype = weight.dtype
        return product(x8, x_scale, weight8.t(), weight_scale, x.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x8, x_scale, weight8, weight_scale = ctx.saved_tensors
        gradient8, scale = quantised(gradient, torch.float8_e5m2)
        of_x = product(gradient8, scale, columns(weight8), weight_scale, gradient.dtype, fast=False)
        of_weight = product(gradient8.t().contiguous(), scale, columns(x8), x_scale, gradient.dtype, fast=False)
        return of_x, of_weight.to(ctx.dtype)


class Fp8Linear(nn.Linear):
    """A linear layer whose three matrix products, one forward and two backward, are in fp8."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(autocast_dtype(x.device.type) or x.dtype)
        out: Tensor = _Fp8Product.apply(x.flatten(0, -2), self.weight)
        if self.bias is not None:
            out = out + self.bias.to(out.dtype)
        return out.unflatten(0, x.shape[:-1])
