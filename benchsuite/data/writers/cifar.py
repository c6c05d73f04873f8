"""CIFAR-10's binary version: `cifar-10-batches-bin/data_batch_1.bin`, records of a label and 32 x 32 pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from benchsuite.data import pictures, writers

FOLDER, SIDE, CLASSES = "cifar-10-batches-bin", 32, 10
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images of each of the five training files, and of the test file."""

    batch: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(gt=0)]


def units(settings: Settings) -> int:
    """A unit is one file."""
    return 6


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """One file; the last unit also writes the names of the classes."""
    import numpy as np

    rng = pictures.random(settings.seed, unit)
    count = settings.batch if unit < 5 else settings.test
    records = np.empty((count, 1 + 3 * SIDE * SIDE), np.uint8)
    records[:, 0] = rng.permutation(np.arange(count) % CLASSES)
    for record in records:
        picture = np.asarray(pictures.drawn(rng, 4 * SIDE, 4 * SIDE).resize((SIDE, SIDE)))
        record[1:] = picture.transpose(2, 0, 1).ravel()
    yield f"{FOLDER}/{f'data_batch_{unit + 1}' if unit < 5 else 'test_batch'}.bin", records.tobytes()
    if unit == 5:
        yield f"{FOLDER}/batches.meta.txt", "".join(f"{name}\n" for name in (*NAMES, "")).encode()
