"""Functions of torch for layers, which call the operators of `folding`. Arguments and results are those of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchsuite.arrays import folding

assert folding.library  # its import defines the operators
OPS = torch.ops.benchsuite


def each(value: int | Sequence[int], count: int) -> list[int]:
    """A setting for each dimension."""
    return [value] * count if isinstance(value, int) else list(value) * (count if len(value) == 1 else 1)


def convolved(
    size: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution of `size` dimensions."""
    dilation = each(dilation, size)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        input, padding = padded(input, weight, dilation), 0
    fixed = (each(stride, size), each(padding, size), dilation, False, [0] * size, groups)
    return samples_first(size, input, weight, bias, fixed)


def padded(x: Tensor, weight: Tensor, dilation: Sequence[int]) -> Tensor:
    """The input with zeros at both ends of each dimension, so that a convolution keeps its size."""
    wide = [step * (length - 1) for step, length in zip(dilation, weight.shape[2:], strict=True)]
    return F.pad(x, [side for total in reversed(wide) for side in (total // 2, total - total // 2)])


def convolved_back(
    size: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """A transposed convolution of `size` dimensions."""
    fixed = (each(stride, size), each(padding, size), each(dilation, size), True, each(output_padding, size), groups)
    return samples_first(size, input, weight, bias, fixed)


def samples_first(size: int, x: Tensor, weight: Tensor, bias: Tensor | None, fixed: tuple[Any, ...]) -> Tensor:
    """The convolution of samples [N, C, ...], or of one sample [C, ...]."""
    if x.dim() == size + 1:
        found: Tensor = OPS.convolution(x.unsqueeze(0), weight, bias, *fixed).squeeze(0)
    else:
        found = OPS.convolution(x, weight, bias, *fixed)
    return found


def normed_by_batch(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch norm."""
    found: Tensor = OPS.norm(input, running_mean, running_var, weight, bias, False, training, momentum, eps)
    return found


def normed_by_instance(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Instance norm."""
    found: Tensor = OPS.norm(input, running_mean, running_var, weight, bias, True, use_input_stats, momentum, eps)
    return found


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention."""
    found: Tensor = OPS.attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return found


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer."""
    found: Tensor = OPS.linear(input, weight, bias)
    return found


RULES: dict[Any, Callable[..., Tensor]] = {
    F.conv1d: partial(convolved, 1),
    F.conv2d: partial(convolved, 2),
    F.conv3d: partial(convolved, 3),
    F.conv_transpose1d: partial(convolved_back, 1),
    F.conv_transpose2d: partial(convolved_back, 2),
    F.conv_transpose3d: partial(convolved_back, 3),
    F.batch_norm: normed_by_batch,
    F.instance_norm: normed_by_instance,
    F.scaled_dot_product_attention: attended,
    F.linear: linear,
}
