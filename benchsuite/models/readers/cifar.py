"""CIFAR-10 in its binary version: records of a label and 32 x 32 pixels, red, green and blue one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from benchsuite.errors import ModelError, reason
from benchsuite.models import Share, seeded
from benchsuite.models.readers import check_room, images, malformed, pinned, place, rows

SIDE, CLASSES = 32, 10
RECORD_BYTES = 1 + 3 * SIDE * SIDE
BORDER = 4  # pixels around an image, of which a crop takes its part


def labelled(share: Share, *, batch_size: int, classes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the training images [images, 3, 32, 32], cropped and flipped at random, and their labels [images].

    The whole set is held in memory as bytes, and the training process makes the batches.

    Raises:
        ModelError: the files cannot be read, or there are more classes than `classes`.
    """
    assert share.data is not None
    check_room(share.data, CLASSES, "classes of images", "classes", classes)
    pixels, labels = _images(share)
    order = rows(len(labels), batch_size, share, "image")
    return pinned(_batches(pixels, labels, order, share))


def _images(share: Share) -> tuple[Tensor, Tensor]:
    """All training images with a border of 0, bytes [images, 3, 40, 40], and their labels, int64 [images]."""
    assert share.data is not None
    folder = place(share.data, "train")
    found = []
    for number in range(1, 6):
        file = folder / f"data_batch_{number}.bin"
        try:
            content = np.fromfile(file, np.uint8)
        except OSError as error:
            raise ModelError(f"{file}: cannot be read: {reason(error)}; {images.remedy(share)}") from None
        if not len(content) or len(content) % RECORD_BYTES:
            raise malformed(share.data, file, f"{len(content):,} bytes are no whole records of {RECORD_BYTES:,}")
        table = content.reshape(-1, RECORD_BYTES)
        if int(table[:, 0].max()) >= CLASSES:
            row = int((table[:, 0] >= CLASSES).argmax())
            raise malformed(share.data, file, f"the label at byte {row * RECORD_BYTES:,} is {table[row, 0]}, over 9")
        found.append(table)
    table = np.concatenate(found)
    squares = torch.from_numpy(table[:, 1:].reshape(-1, 3, SIDE, SIDE))
    return torch.nn.functional.pad(squares, (BORDER,) * 4), torch.from_numpy(table[:, 0].astype(np.int64))


def _batches(
    pixels: Tensor, labels: Tensor, order: Iterator[list[int]], share: Share
) -> Iterator[tuple[Tensor, Tensor]]:
    generator = seeded(share.seed, 1 + share.rank)
    mean, deviation = (torch.tensor(of).view(3, 1, 1) * 255 for of in (images.MEAN, images.DEVIATION))
    side = torch.arange(SIDE)
    for row in order:
        chosen = torch.tensor(row)
        top, left = torch.randint(2 * BORDER + 1, (2, len(row), 1), generator=generator)
        across = torch.where(torch.rand(len(row), 1, generator=generator) < 0.5, side, side.flip(0))
        down, across = (top + side)[:, None, :, None], (left + across)[:, None, None, :]
        crops = pixels[chosen[:, None, None, None], torch.arange(3)[:, None, None], down, across]
        yield (crops - mean) / deviation, labels[chosen]
