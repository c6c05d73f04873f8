"""Readers of prepared data sets, one file for each kind. (A folder of `models` is not a model.)

A reader receives a `DataFolder`: all files exist and have the right size, but their content is not checked. A reader
that cannot read a file raises a ModelError that names it. It opens all files before the first batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError, one_line
from benchsuite.models import Batch, Share, on_tensors, seeded


def place(data: DataFolder, role: str) -> Path:
    """The file or folder that has a role in the data set, such as `train_images`.

    Raises:
        ModelError: its descriptor gives none.
    """
    if role not in data.layout:
        raise ModelError(f"data set '{data.name}': its descriptor's layout has no '{role}'")
    return Path(data.path, data.layout[role])


def malformed(data: DataFolder, path: Path, what: str) -> ModelError:
    """The error for a complete file that cannot be read; `what` may quote its content."""
    remedy = f"see whether it was changed with benchsuite prepare {data.name} --verify, or bring it anew"
    return ModelError(f"data set '{data.name}': {path}: {one_line(what)}; {remedy}")


def check_room(data: DataFolder, found: int, what: str, parameter: str, room: int) -> None:
    """Raises ModelError: the data set has more of something, such as words, than the model's parameter allows."""
    if found > room:
        few = f"{found:,} {what}, over {parameter} {room:,}"
        raise ModelError(f"data set '{data.name}' has {few}; give {parameter} of at least {found}")


def pinned(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, in pinned memory if a GPU will read them."""
    if not torch.cuda.is_available():
        return batches
    return (on_tensors(torch.Tensor.pin_memory, batch) for batch in batches)


def rows(count: int, batch_size: int, share: Share, item: str, parameter: str = "batch_size") -> Iterator[list[int]]:
    """Endless: the items, of `count`, of each batch of this rank. `parameter` is the model's name for `batch_size`.

    Each pass has a new order. All ranks draw the same order and take turns; each takes the same number. The last batch
    of a pass may be short, but is left out if a single item would remain: a batch norm refuses a batch of one.

    Raises:
        ModelError: there are too few items for one batch; raised at the call, not at the first batch.
    """
    each = count // share.ranks
    name = share.data.name if share.data else "generated"
    if not count:
        raise ModelError(f"data set '{name}' holds no {item}; bring a larger data set")
    if each < batch_size:
        shared = f" for each of {share.ranks} ranks" if share.ranks > 1 else ""
        remedy = f"lower {parameter} to {each:,} or less, or bring a larger data set"
        raise ModelError(
            f"data set '{name}': {parameter} {batch_size:,} is over its {each:,} {item}s{shared}; {remedy}"
        )
    return _passes(count, each, batch_size, share)


def _passes(count: int, each: int, batch_size: int, share: Share) -> Iterator[list[int]]:
    generator = seeded(share.seed)
    while True:
        order = torch.randperm(count, generator=generator)[share.rank :: share.ranks][:each]
        for part in order.split(batch_size):
            if len(part) > 1 or batch_size == 1:
                yield part.tolist()
