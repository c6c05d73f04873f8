"""Running text in the format of WikiText: words separated by blanks."""

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
    """The training text in `batch_size` streams of this rank, int64 [batch_size, words].

    The text is cut into streams of equal length, `batch_size` for each rank. The rest is left out.

    Raises:
        ModelError: there is no text, its vocabulary is too large, or the streams have no more than `bptt` words.
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
    """The text as numbers of words, int64 [words], and the number of different words.

    Words are numbered in the order of their first appearance. The end of a line is a word, too.

    Raises:
        ModelError: there is no text.
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
