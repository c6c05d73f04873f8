"""Running text, as WikiText has it: words separated by blanks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.models import Share
from benchsuite.models.readers import check_room, malformed, place

END = "<eos>"


def streams(share: Share, batch_size: int, bptt: int, vocabulary: int) -> Tensor:
    """The text to train with in `batch_size` streams of this rank, int64 [batch_size, words].

    The whole text is cut into as many streams of equal length as all ranks read together; what is left is left out.

    Raises:
        ModelError: no text, a larger vocabulary, or streams of no more than `bptt` words.
    """
    assert share.data
    text, different = words(share.data)
    check_room(share.data, different, "different words", "vocabulary", vocabulary)
    count = share.ranks * batch_size
    if len(text) // count <= bptt:
        few = f"{len(text):,} words are not over {bptt:,} (bptt) in each of {count:,} streams"
        remedy = "give a smaller batch_size or bptt, or bring a larger data set"
        raise ModelError(f"data set '{share.data.name}': its {few}; {remedy}")
    cut = text[: len(text) // count * count].view(count, -1)
    return cut[share.rank * batch_size : (share.rank + 1) * batch_size]


def words(data: DataFolder) -> tuple[Tensor, int]:
    """The text as numbers of words, int64 [words], and how many different ones there are.

    Words are numbered in order of their first appearance; the end of each line is one, too.

    Raises:
        ModelError: no text.
    """
    path = place(data, "train")
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    try:
        text = np.fromiter((numbers[word] for word in _read(path)), np.int64)
    except UnicodeDecodeError as error:
        raise malformed(data, path, f"no text in UTF-8: {error}") from None
    return torch.from_numpy(text), len(numbers)


def _read(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield from line.split()
            yield END
