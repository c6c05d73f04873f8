"""Shards of TFRecord as ImageNet's usual conversion names them: `train/train-00000-of-01024`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from benchsuite import tfrecord
from benchsuite.data import pictures, writers

_Shards = Annotated[int, Meta(gt=0, le=99_999)]


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images and shards by split; images are spread evenly over shards and classes. `sizes`: width, height, share."""

    train: Annotated[int, Meta(gt=0)]
    val: Annotated[int, Meta(gt=0)]
    train_shards: _Shards
    val_shards: _Shards
    classes: Annotated[int, Meta(gt=0)]
    sizes: Annotated[tuple[tuple[int, int, int], ...], Meta(min_length=1)]
    quality: Annotated[int, Meta(ge=1, le=100)]


def name(split: str, shard: int, of: int) -> str:
    """The path of a shard, such as `train/train-00000-of-01024`."""
    return f"{split}/{split}-{shard:05d}-of-{of:05d}"


def units(settings: Settings) -> int:
    """A unit is one shard."""
    return settings.train_shards + settings.val_shards


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """One shard."""
    split, images, shards, first = "train", settings.train, settings.train_shards, 0
    if unit >= shards:
        split, images, shards, first, unit = "validation", settings.val, settings.val_shards, images, unit - shards
    found = []
    for number in range(unit, images, shards):
        rng = pictures.random(settings.seed, first + number)
        width, height = pictures.size(rng, settings.sizes)
        image = pictures.jpeg(rng, width, height, settings.quality)
        found.append(tfrecord.framed(tfrecord.example(image, 1 + number // shards % settings.classes)))
    yield name(split, unit, shards), b"".join(found)
