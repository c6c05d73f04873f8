"""Causal attention with rotary positions, grouped queries, packed documents, and a cache for decoding."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchsuite.models.language.linears import linear
from benchsuite.models.language.shapes import Shape

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


class Packed(NamedTuple):
    """Where tokens are in their documents: `positions` int64 [rows, tokens], and who sees whom."""

    positions: Tensor
    mask: Tensor | BlockMask


class Cache(NamedTuple):
    """Keys and values of one layer, each [rows, kv_heads, length, head_width], and the `places` int64 [tokens].

    The tokens of a forward pass are written at `places`. There are several only at the begin, from place 0 on.
    """

    keys: Tensor
    values: Tensor
    places: Tensor


def packed(starts: Tensor, *, blocks: bool) -> Packed:
    """The packing of rows whose token t belongs to the document that begins at `starts[row, t]`, int64 [rows, tokens].

    Args:
        blocks: the mask is one of flex attention, which skips blocks of tokens that do not see each other.
    """
    tokens = starts.shape[1]
    order = torch.arange(tokens, device=starts.device)

    def seen(row: Tensor, head: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (starts[row, query] == starts[row, key])

    if blocks:
        from torch.nn.attention.flex_attention import create_block_mask  # its import takes seconds

        mask: Any = create_block_mask(seen, len(starts), None, tokens, tokens, device=starts.device)
    else:
        rows = torch.arange(len(starts), device=starts.device)
        mask = seen(rows[:, None, None], None, order[:, None], order)[:, None]
    return Packed(order - starts, mask)


def rotary_table(tokens: int, width: int, theta: float, device: Any = None) -> Tensor:
    """Cosines and sines of the angles of each position, fp32 [2, tokens, width / 2] (Su et al., RoFormer, 2021)."""
    frequencies = theta ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    angles = torch.arange(tokens, device=device, dtype=torch.float32)[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()))


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """Heads [rows, tokens, heads, width] turned by their positions.

    Args:
        table: cosines and sines, [2, tokens, width / 2] or [2, rows, tokens, width / 2].
    """
    cos, sin = table.unsqueeze(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


class HeadNorm(nn.Module):
    """RMSNorm over the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        # The weight has the input's dtype: torch has no fused kernel for two dtypes.
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), 1e-5)


class Attention(nn.Module):
    """[rows, tokens, width] -> the same shape. Queries, keys and values come from one linear layer.

    The rotary table is a buffer of each layer: loaded from memory, it costs less than its sines computed again in each
    kernel.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = (shape.heads, shape.kv_heads, shape.kv_heads)
        self.head_width, self.kernels = shape.head_width, shape.attention
        bias = shape.family == "gpt2"
        self.qkv = linear(shape, shape.width, sum(self.heads) * shape.head_width, bias=bias)
        self.out = linear(shape, shape.heads * shape.head_width, shape.width, bias=bias)
        self.query_norm = HeadNorm(shape.head_width) if shape.qk_norm else None
        self.key_norm = HeadNorm(shape.head_width) if shape.qk_norm else None
        if shape.family == "llama":
            table = torch.empty(2, shape.sequence, shape.head_width // 2, dtype=torch.float32)
            self.register_buffer("rotary", table, persistent=False)
        else:
            self.rotary = None

    def forward(self, x: Tensor, packing: Packed | None = None, cache: Cache | None = None) -> Tensor:
        queries, keys, values = self._projected(x, packing, cache)
        if cache is not None:
            mixed = attended_cached(queries, keys, values, cache)
        elif packing is not None:
            mixed = attended_packed(queries, keys, values, packing.mask)
        else:
            with self._chosen(x):
                mixed = F.scaled_dot_product_attention(
                    queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1]
                )
        mixed = mixed.transpose(1, 2).flatten(2)
        return self.out(mixed)

    def _projected(self, x: Tensor, packing: Packed | None, cache: Cache | None) -> Sequence[Tensor]:
        """Queries, keys and values, each [rows, heads, tokens, head_width]."""
        parts: Sequence[Tensor] = self.qkv(x).unflatten(-1, (-1, self.head_width)).split(self.heads, dim=2)
        queries, keys, values = parts
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = self.query_norm(queries), self.key_norm(keys)
        if self.rotary is not None:
            if packing is not None:
                table = self.rotary[:, packing.positions]
            elif cache is not None:
                table = self.rotary.index_select(1, cache.places)
            else:
                table = self.rotary[:, : x.shape[1]]
            queries, keys = rotated(queries, table), rotated(keys, table)
        return [part.transpose(1, 2) for part in (queries, keys, values)]

    def _chosen(self, x: Tensor) -> AbstractContextManager[Any]:
        if self.kernels == "auto" or x.device.type == "cpu":  # a CPU has kernels of its own
            return nullcontext()
        chosen: AbstractContextManager[Any] = sdpa_kernel(KERNELS[self.kernels])
        return chosen


def attended_packed(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | BlockMask) -> Tensor:
    """Attention within documents; flex attention if the mask is one of blocks."""
    grouped = queries.shape[1] != keys.shape[1]
    if isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=grouped)
    from torch.nn.attention.flex_attention import flex_attention

    mixed: Any = flex_attention(
        queries, keys.to(queries.dtype), values.to(queries.dtype), block_mask=mask, enable_gqa=grouped
    )
    return mixed


def attended_cached(queries: Tensor, keys: Tensor, values: Tensor, cache: Cache) -> Tensor:
    """Write keys and values into the cache, and attend: several tokens to each other, one token to the cache.

    The cache is read whole, because the shapes of a CUDA graph are static. The queries of a group are the rows of one
    matrix, so that its keys and values are read once.
    """
    cache.keys.index_copy_(2, cache.places, keys.to(cache.keys.dtype))
    cache.values.index_copy_(2, cache.places, values.to(cache.values.dtype))
    if len(cache.places) > 1:
        grouped = queries.shape[1] != keys.shape[1]
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=grouped)
    rows, heads, _, width = queries.shape
    groups = queries.reshape(rows, keys.shape[1], -1, width)
    written = torch.arange(cache.keys.shape[2], device=queries.device) <= cache.places
    mixed = F.scaled_dot_product_attention(groups, cache.keys, cache.values, attn_mask=written[None, None, None])
    return mixed.reshape(rows, heads, 1, width)
