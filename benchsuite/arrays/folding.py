"""Layers of B models as one call of torch's own: the models are folded into the channels, the batch, or one product.

vmap has rules for these layers, but on a GPU they fail under mixed precision or with masks: they split a layer into
parts that autocast does not see, and hand the kernels tensors of several dtypes. The rules here hand a kernel what it
gets for a single model, only larger:

- a convolution is a grouped convolution of [N, B C, ...], with B times the groups;
- batch norm and instance norm are those of [N, B C, ...];
- attention is that of [B N, heads, length, features];
- a linear layer is `torch.baddbmm`, or one product if all models have the same input.

Each is an operator of torch that is torch's own function, and has another rule for vmap. Autograd and torch.compile see
what the rule calls. The layouts are those of HFTA's fused operators (https://arxiv.org/abs/2102.02344).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _functorch as functorch

Dims: TypeAlias = "tuple[int | None, ...]"

BATCHED = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched)
VMAP_MODE = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchVmapMode)
SCHEMAS = {
    "convolution": "(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "
    "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
    "norm": "(Tensor x, Tensor(a!)? mean, Tensor(b!)? var, Tensor? weight, Tensor? bias, bool instance, "
    "bool of_batch, float momentum, float eps) -> Tensor",
    "attention": "(Tensor query, Tensor key, Tensor value, Tensor? mask, float dropout, bool causal, "
    "float? scale, bool gqa) -> Tensor",
    "linear": "(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
}


def lowered(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Tensors in autocast's dtype, as autocast casts the arguments of matrix products; as they are without autocast."""
    kind = next(tensor for tensor in tensors if tensor is not None).device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(
        tensor.to(dtype)
        if tensor is not None and tensor.is_floating_point() and tensor.dtype != torch.float64
        else tensor
        for tensor in tensors
    )


def at(dim: int, tensor: Tensor, batched: int | None, models: int) -> Tensor:
    """The tensor with its models in this dimension; repeated, without a copy, if all models have the same."""
    if batched is not None:
        return tensor.movedim(batched, dim)
    repeated = tensor.unsqueeze(dim)
    return repeated.expand(*repeated.shape[:dim], models, *repeated.shape[dim + 1 :])


def folded(dim: int, tensor: Tensor, batched: int | None, models: int) -> Tensor:
    """The models folded into the logical dimension `dim`: a view if the memory is laid out so, else a copy."""
    return at(dim, tensor, batched, models).flatten(dim, dim + 1)


def flat_or_none(tensor: Tensor | None, batched: int | None, models: int) -> Tensor | None:
    """Values of channels [C] of all models as [B C]."""
    return None if tensor is None else folded(0, tensor, batched, models)


def convolution(
    models: int,
    dims: Dims,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> tuple[Tensor, int]:
    """Vmap's rule for convolutions; it returns [N, B, C, ...]."""
    x, weight, bias = lowered(x, weight, bias)
    if dims[0] is None and groups == 1:  # one input: the models are more output channels
        weight = folded(1 if transposed else 0, weight, dims[1], models)
    else:
        x, weight, groups = folded(1, x, dims[0], models), folded(0, weight, dims[1], models), groups * models
    bias = flat_or_none(bias, dims[2], models)
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    return torch.convolution(x, weight, bias, *settings).unflatten(1, (models, -1)), 1


def norm(
    models: int,
    dims: Dims,
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    instance: bool,
    of_batch: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, int]:
    """Vmap's rule for batch norm and instance norm; it returns [N, B, C, ...], and updates running statistics in place.

    Raises:
        RuntimeError: running statistics are those of no single model.
    """
    if of_batch and mean is not None and dims[1] is None:
        raise RuntimeError("vmap: the models share running statistics, which each would update")
    x = folded(1, x, dims[0], models)
    mean, var = flat_or_none(mean, dims[1], models), flat_or_none(var, dims[2], models)
    weight, bias = flat_or_none(weight, dims[3], models), flat_or_none(bias, dims[4], models)
    if mean is not None and weight is None and mean.dtype != x.dtype:
        # CUDA's kernels take statistics of another dtype than the input's only beside weights of that dtype.
        weight, bias = torch.ones_like(mean), torch.zeros_like(mean)
    of = F.instance_norm if instance else F.batch_norm
    return of(x, mean, var, weight, bias, of_batch, momentum, eps).unflatten(1, (models, -1)), 1


def attention(
    models: int,
    dims: Dims,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> tuple[Tensor, int]:
    """Vmap's rule for attention; it returns [B, ...]. The kernel sees 4 dimensions, as for a single model."""
    given = zip(lowered(query, key, value), dims[:3], strict=True)
    query, key, value = (at(0, tensor, dim, models) for tensor, dim in given)
    (mask,) = lowered(mask) if mask is not None else (None,)
    shapes = [tensor.shape for tensor in (query, key, value)]
    samples = shapes[0][1] if len(shapes[0]) == 5 and all(shape[:2] == shapes[0][:2] for shape in shapes) else None
    if samples is not None:
        query, key, value = (tensor.flatten(0, 1) for tensor in (query, key, value))
    if mask is not None:
        mask = mask_of_all(mask, dims[3], models, samples, query.dim())
    with ordinary_noise() if dropout else nullcontext():
        found = F.scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale=scale, enable_gqa=gqa)
    return (found if samples is None else found.unflatten(0, (models, samples))), 0


def ordinary_noise() -> AbstractContextManager[Any]:
    """A context in which noise has the shape that is asked for. It is that of all models already.

    Without it, vmap would draw the noise of one model, and refuse to, since the tensors hold all models. torch has no
    public name for this; its `register_vmap` hides vmap's other key in the same way.
    """
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(VMAP_MODE)
    return guard


def mask_of_all(mask: Tensor, batched: int | None, models: int, samples: int | None, rank: int) -> Tensor:
    """A mask for attention of all models: one that models and samples share stays small.

    Args:
        samples: the samples of a model if models and samples are one dimension; None if they are not.
        rank: the dimensions of the query of all models.
    """
    if batched is None and (mask.dim() <= rank - (samples is None) - 1 or (mask.shape[0] == 1 and samples)):
        return mask
    mask = at(0, mask, batched, models)
    own = rank if samples else rank - 1  # dimensions of one model's mask, were it whole
    mask = mask.reshape(models, *[1] * (own - (mask.dim() - 1)), *mask.shape[1:])
    if not samples:
        return mask
    return mask.expand(models, samples, *mask.shape[2:]).flatten(0, 1)


def linear(models: int, dims: Dims, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, int]:
    """Vmap's rule for linear layers; it returns [B, ..., outputs] or, if the input has no models, [..., B, outputs]."""
    x, weight, bias = lowered(x, weight, bias)
    if dims[0] is None:
        found = F.linear(x, folded(0, weight, dims[1], models), flat_or_none(bias, dims[2], models))
        return found.unflatten(-1, (models, -1)), found.dim() - 1
    x, weight = at(0, x, dims[0], models), at(0, weight, dims[1], models)
    rows = x.reshape(models, -1, x.shape[-1])
    if bias is None:
        found = torch.bmm(rows, weight.mT)
    else:
        found = torch.baddbmm(at(0, bias, dims[2], models).unsqueeze(1), rows, weight.mT)
    return found.view(*x.shape[:-1], weight.shape[1]), 0


def norm_of_one(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    instance: bool,
    of_batch: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Batch norm or instance norm of torch."""
    return (F.instance_norm if instance else F.batch_norm)(x, mean, var, weight, bias, of_batch, momentum, eps)


def attention_of_one(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> Tensor:
    """Attention of torch."""
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale=scale, enable_gqa=gqa)


def register(name: str, of_one: Callable[..., Tensor], rule: Callable[..., tuple[Tensor, int]]) -> None:
    """Define an operator that computes `of_one`, and has this rule for vmap.

    `torch.library.register_vmap` does the same, but takes 0.2 ms more of the host's time at each call.
    """

    def batched(keyset: torch._C.DispatchKeySet, *args: Any) -> Tensor:
        level = functorch.maybe_current_level() or 0  # vmap is on, so that there is one
        pairs = [functorch._unwrap_batched(arg, level) if isinstance(arg, Tensor) else (arg, None) for arg in args]
        models = next(arg.shape[dim] for arg, dim in pairs if dim is not None)
        with torch._C._ExcludeDispatchKeyGuard(BATCHED):
            found, at_dim = rule(models, tuple(dim for _, dim in pairs), *(arg for arg, _ in pairs))
        return functorch._add_batch_dim(found, at_dim, level)

    library.define(name + SCHEMAS[name])
    library.impl(name, of_one, "CompositeImplicitAutograd")
    library.impl(name, batched, "FuncTorchBatched", with_keyset=True)


library = torch.library.Library("benchsuite", "FRAGMENT")
register("convolution", torch.convolution, convolution)
register("norm", norm_of_one, norm)
register("attention", attention_of_one, attention)
register("linear", F.linear, linear)
