"""Collective operations of torch.distributed, with the bandwidth that each needs of the links."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import torch
import torch.distributed as dist

Operation: TypeAlias = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


def bus_bytes(operation: Operation, size_bytes: int, ranks: int) -> int:
    """The bytes that each rank must send over its links at least, whatever the algorithm.

    Bandwidth computed from it does not depend on the number of ranks. Source: PERFORMANCE.md of NVIDIA's nccl-tests:
    2 (n - 1) / n of the size for an all-reduce, (n - 1) / n for the others.
    """
    return (2 if operation == "all_reduce" else 1) * size_bytes * (ranks - 1) // ranks


class Buffers:
    """The tensors of the largest size; smaller operations use their beginning.

    The size of an operation is that of the whole: what each rank has in the end of an all-gather, and in the beginning
    of all others.

    Args:
        size_bytes: the largest size.
    """

    def __init__(self, operation: Operation, size_bytes: int, ranks: int, device: str) -> None:
        self._operation, self._ranks = operation, ranks
        count = rounded(size_bytes, ranks) // 4
        # Sums of zeros stay zeros, however often an all-reduce adds them up in place.
        self._whole = torch.zeros(count, device=device)
        self._parts = torch.zeros(count if operation == "all_to_all" else count // ranks, device=device)

    def call(self, size_bytes: int) -> Callable[[], object]:
        """The function that does the operation once, with this size in bytes."""
        count = rounded(size_bytes, self._ranks) // 4
        whole, part = self._whole[:count], self._parts[: count // self._ranks]
        if self._operation == "all_reduce":
            return partial(dist.all_reduce, whole)
        if self._operation == "all_gather":
            return partial(_named("all_gather_single", "all_gather_into_tensor"), whole, part)
        if self._operation == "reduce_scatter":
            return partial(_named("reduce_scatter_single", "reduce_scatter_tensor"), part, whole)
        return partial(dist.all_to_all_single, self._parts[:count], whole)


def _named(name: str, before: str) -> Callable[..., object]:
    """A function of torch.distributed by its name of today, or by that of torch before 2.14."""
    found: Callable[..., object] = getattr(dist, name, None) or getattr(dist, before)
    return found


def rounded(size_bytes: int, ranks: int) -> int:
    """The size in bytes that all ranks can divide into fp32 values, at most `size_bytes`; at least one value each."""
    return max(size_bytes // (4 * ranks), 1) * 4 * ranks
