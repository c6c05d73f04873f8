"""Images in shards of TFRecord, as ImageNet's usual conversion lays them out: `train/train-00000-of-01024`.

Shards are read from begin to end. Ranks share the shards, and the reading processes of a rank share its own, so that no
two read the same. Each process takes its shards in a new order in each pass, and draws the next record from a buffer.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from benchsuite import tfrecord
from benchsuite.errors import ModelError, one_line, reason
from benchsuite.models import Share, seeded
from benchsuite.models.readers import images, malformed

# Records that a process holds, to draw the next one from: about 30 MB of ImageNet's images.
BUFFERED = 256
_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})")


class Shards(IterableDataset):
    """Endless batches of the records of shards: `transform(image, label)`, the label counting from 0.

    A damaged record becomes a Broken.
    """

    def __init__(self, files: Sequence[str], transform: Callable[..., Any], share: Share, batch_size: int) -> None:
        self.files, self.transform, self.batch_size = files, transform, batch_size
        self.seed, self.rank, self.ranks = share.seed, share.rank, share.ranks
        self.remedy = images.remedy(share)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, of = (worker.id, worker.num_workers) if worker else (0, 1)
        stream = self.rank + self.ranks * number  # each process of each rank has its own
        places = count(stream, self.ranks * of)
        records = self._drawn(self.files[number::of], seeded(self.seed, 1 + stream))
        while True:
            yield images.gathered([self._item(next(records), next(places)) for _ in range(self.batch_size)])

    def _drawn(self, files: Sequence[str], generator: torch.Generator) -> Iterator[tuple[str, int, bytes] | str]:
        """The records in random order: file, offset and data; at the end, if there is one, what is wrong."""
        buffer: list[tuple[str, int, bytes]] = []
        for record in self._passes(files, generator):
            if isinstance(record, str):
                yield record
            elif len(buffer) < BUFFERED:
                buffer.append(record)
            else:
                chosen = int(torch.randint(BUFFERED, (), generator=generator))
                yield buffer[chosen]
                buffer[chosen] = record

    def _passes(self, files: Sequence[str], generator: torch.Generator) -> Iterator[tuple[str, int, bytes] | str]:
        found = True
        while found:
            found = False
            for at in torch.randperm(len(files), generator=generator).tolist():
                try:
                    with open(files[at], "rb") as file:  # noqa: PTH123  names are handed to processes, not paths
                        for offset, data in tfrecord.records(file):
                            found = True
                            yield files[at], offset, data
                except (OSError, ValueError) as error:
                    yield f"{files[at]}: {reason(error) if isinstance(error, OSError) else error}"
        while True:
            yield f"{files[0]}: holds no record, nor do the other shards of this process"

    def _item(self, record: tuple[str, int, bytes] | str, at: int) -> Any:
        if isinstance(record, str):
            return images.Broken(one_line(f"{record}; {self.remedy}"))
        file, offset, data = record
        try:
            encoded, label = tfrecord.image_and_label(data)
            image = images.decoded(io.BytesIO(encoded))
        except (ModelError, ValueError) as error:
            return images.Broken(one_line(f"{file}: the record at byte {offset:,}: {error}; {self.remedy}"))
        try:
            with images.drawing(self.seed, at):
                return self.transform(image, label - 1)
        except ModelError as error:
            return images.Broken(one_line(f"{file}: the record at byte {offset:,}: {error}"))


class Labelled:
    """An image, transformed, and its label. Raises ModelError if the label is not below `classes`."""

    def __init__(self, transform: Callable[..., Tensor], classes: int) -> None:
        self.transform = transform
        self.classes = classes

    def __call__(self, image: Any, label: int) -> tuple[Tensor, int]:
        if not 0 <= label < self.classes:
            raise ModelError(f"its label is {label + 1:,}, not 1 to classes {self.classes:,}; give another classes")
        return self.transform(image), label


def labelled(
    share: Share, transform: Callable[..., Tensor], *, batch_size: int, workers: int, classes: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the training images and their labels, from 0. They depend on the number of workers.

    Raises:
        ModelError: shards are missing, or are fewer than the ranks; later, with a batch: a record is damaged, or its
            label is not below `classes`.
    """
    assert share.data is not None
    files = _shards(share)
    mine = files[share.rank :: share.ranks]
    if len(files) < share.ranks:
        few = f"{len(files):,} shards are fewer than the {share.ranks} ranks"
        raise ModelError(f"data set '{share.data.name}': {few}; give fewer ranks, or bring it in more shards")
    shards = Shards(mine, Labelled(transform, classes), share, batch_size)
    return images.stream(shards, min(workers, len(mine)))


def _shards(share: Share) -> list[str]:
    """The files of the training part, in the order of their numbers.

    Raises:
        ModelError: there are none, or some are missing.
    """
    assert share.data is not None
    folder = images.split(share, "train")
    found: dict[int, str] = {}
    totals = set()
    for path in images.files_of(folder, share, ("",)):
        if match := _NAME.fullmatch(Path(path).name):
            found[int(match[2])] = f"{folder}/{path}"
            totals.add(int(match[3]))
    if not found:
        raise ModelError(f"{folder}: there are no shards such as train-00000-of-01024; {images.remedy(share)}")
    (total,) = totals if len(totals) == 1 else (0,)
    if sorted(found) != list(range(total)):
        what = f"{len(found):,} shards are there, and their names give {' and '.join(f'{n:,}' for n in sorted(totals))}"
        raise malformed(share.data, folder, what)
    return [found[number] for number in sorted(found)]
