"""Modes of torch for counting FLOPs: a limit of time, the share of causal attention, and formulas that torch lacks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Operations with matrices of which torch's flop counter (2.11 to 2.14) has no formula.
_PRODUCTS = ("_scaled_mm_v2", "_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2")


class Limited(TorchDispatchMode):
    """Raises `error` at the first operation after `until_s`, on CLOCK_MONOTONIC."""

    def __init__(self, until_s: float, error: Exception) -> None:
        super().__init__()
        self._until_s, self._error = until_s, error

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if time.monotonic() > self._until_s:
            raise self._error
        return func(*args, **(kwargs or {}))


class CausalAttention(TorchFunctionMode):
    """Adds up the FLOPs that causal attention masks out.

    Attributes:
        hidden: half of the squares' FLOPs, forward and backward.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hidden = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and (kwargs.get("is_causal") or (len(args) > 5 and args[5])):
            names = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
            self.hidden += square_flops(names["query"], names["key"], names["value"]) / 2
        return func(*args, **kwargs)


def square_flops(query: Tensor, key: Tensor, value: Tensor) -> float:
    """The FLOPs of an attention's products: two forward, and backward those whose gradients are asked for.

    Args:
        query: [..., heads, queries, width]; its heads count, also where keys and values have fewer.
        key: [..., heads, keys, width].
        value: [..., heads, keys, width of the output].
    """
    square = 2.0 * math.prod(query.shape[:-1]) * key.shape[-2]
    scores, outputs = square * query.shape[-1], square * value.shape[-1]
    flops = scores + outputs
    if torch.is_grad_enabled():
        through = query.requires_grad or key.requires_grad
        flops += scores * (query.requires_grad + key.requires_grad) + outputs * (value.requires_grad + through)
    return float(flops)


def formulas() -> dict[Any, Callable[..., float]]:
    """The formulas of the products that this torch has and its flop counter lacks: operation -> FLOPs by shapes."""
    known = (getattr(torch.ops.aten, name, None) for name in _PRODUCTS)
    return {operation: product_flops for operation in known if operation is not None}


def product_flops(left: Any, right: Any, *arguments: Any, out_shape: Any = None, **named: Any) -> float:
    """The FLOPs of a product of matrices, or of groups of them.

    A group that is a range of rows or columns of one large matrix adds its part to the whole, so that the number of
    groups counts only if both sides are stacks.

    Args:
        left: shape [..., rows, inner].
        right: shape [..., inner, columns].
    """
    stacked = left[0] if len(left) == len(right) == 3 else 1
    return float(2 * stacked * left[-2] * left[-1] * right[-1])
