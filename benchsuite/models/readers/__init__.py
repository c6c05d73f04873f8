"""What models read prepared data sets with: one file for each kind of them; a folder of `models` is no model.

A reader is given a `DataFolder`, whose files are known to be all there and of the right size, though not what is in
them: what it cannot make sense of is a ModelError that names the file. It opens everything before the first batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from benchsuite.errors import ModelError
from benchsuite.models import Share, seeded
from benchsuite.tasks import DataFolder


def place(data: DataFolder, role: str) -> Path:
    """The file or folder that has a role in the data set, such as `train_images`.

    Raises:
        ModelError: its descriptor gives none.
    """
    if role not in data.layout:
        raise ModelError(f"data set '{data.name}': its descriptor's layout has no '{role}'")
    return Path(data.path, data.layout[role])


def rows(count: int, batch_size: int, share: Share, item: str) -> Iterator[list[int]]:
    """Endless: which of `count` items make each batch of this rank.

    Each pass is a new order, which all ranks draw alike and take in turns, the same number each; the last batch of a
    pass may be short.

    Raises:
        ModelError: not even one whole batch can be made; at the call, not at the first batch.
    """
    each = count // share.ranks
    name = share.data.name if share.data else "generated"
    if not count:
        raise ModelError(f"data set '{name}' holds no {item}")
    if each < batch_size:
        shared = f" for each of {share.ranks} ranks" if share.ranks > 1 else ""
        remedy = f"give a batch_size of at most {each:,}, or bring a larger data set"
        raise ModelError(f"data set '{name}': batch_size {batch_size:,} is over its {each:,} {item}s{shared}; {remedy}")
    return _passes(count, each, batch_size, share)


def _passes(count: int, each: int, batch_size: int, share: Share) -> Iterator[list[int]]:
    generator = seeded(share.seed)
    while True:
        order = torch.randperm(count, generator=generator)[share.rank :: share.ranks][:each]
        for part in order.split(batch_size):
            yield part.tolist()
