"""Gradient accumulation: a batch is split into micro-batches, whose gradients add up to that of the whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Carry, on_tensors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MicroBatch:
    """Consecutive samples of a batch.

    Attributes:
        samples: the number of samples.
        weight: their share of the batch's samples. The loss of a batch is the weighted sum of those of its parts.
    """

    batch: Batch
    samples: int
    weight: float


def split(batch: Batch, count: int, option: str = "accumulate") -> list[MicroBatch]:
    """Split a batch into `count` parts whose sizes differ by at most one. Tensors are views.

    Args:
        option: what asks for the parts, for messages.

    Raises:
        ModelError: the batch has fewer samples than parts, or its tensors differ in their first dimension.
    """
    samples = _samples(batch, option)
    if samples < count:
        raise ModelError(f"{option} {count}: a batch has {samples} samples, fewer than parts; lower it")
    parts, first = [], 0
    for index in range(count):
        last = first + samples // count + (index < samples % count)
        parts.append(MicroBatch(_rows(batch, first, last), last - first, (last - first) / samples))
        first = last
    return parts


def check_carry(carry: Carry, samples: int) -> None:
    """Raises ModelError: a tensor of the carry does not have one row a sample, so that the carry cannot be split."""
    if any(size != samples for size in _first_dimensions(carry)):
        raise ModelError("accumulate: what the model carries on does not lie sample by sample; leave accumulate out")


def _samples(batch: Batch, option: str) -> int:
    sizes = set(_first_dimensions(batch))
    if len(sizes) != 1 or None in sizes:
        raise ModelError(f"{option}: samples are not the first dimension of every tensor of a batch; leave it out")
    (size,) = sizes
    assert size is not None
    return size


def _first_dimensions(tree: Batch | Carry) -> list[int | None]:
    sizes: list[int | None] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(len(tensor) if tensor.dim() else None)
        return tensor

    on_tensors(note, tree)
    return sizes


def _rows(batch: Batch, first: int, last: int) -> Batch:
    return on_tensors(lambda tensor: tensor[first:last], batch)
