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


class Splitter:
    """Splits batches into micro-batches.

    A full batch has `count` parts. The last batch of a pass over a data set may be short: it has fewer parts, each at
    most as large as those of a full batch, and none of a single sample, which batch norm refuses. Where only one of the
    two is possible, a part has three samples instead of two. The largest batch so far counts as a full one, so that too
    many micro-batches are refused at the first step.

    Args:
        option: what asks for the parts, for messages.
    """

    def __init__(self, count: int, option: str = "accumulate") -> None:
        self._count, self._option = count, option
        self._largest = 0  # samples

    def split(self, batch: Batch) -> list[MicroBatch]:
        """Consecutive parts of a batch whose sizes differ by at most one. Tensors are views.

        Raises:
            ModelError: a full batch has fewer samples than parts, or the tensors differ in their first dimension.
        """
        samples = _samples(batch, self._option)
        self._largest = max(self._largest, samples)
        if self._largest < self._count:
            remedy = f"fewer than parts; lower it to {self._largest} or less"
            raise ModelError(f"{self._option} {self._count}: a batch has {self._largest} samples, {remedy}")
        count = self._count if samples == self._largest else self._parts(samples)
        parts, first = [], 0
        for index in range(count):
            last = first + samples // count + (index < samples % count)
            parts.append(MicroBatch(_rows(batch, first, last), last - first, (last - first) / samples))
            first = last
        return parts

    def _parts(self, samples: int) -> int:
        """The number of parts of a short batch."""
        most = -(-self._largest // self._count)
        count = max(1, -(-samples // most))
        alone = most > 1 and samples // count < 2
        return max(1, count - 1) if alone else count


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
