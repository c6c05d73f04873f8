"""A folder of JPEG files for each class, as ImageNet is laid out: `train/n00007/000123.jpeg`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from benchsuite.data import pictures, writers

UNIT = 50


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images by split, spread evenly over the classes; `sizes` are rows of width, height, share."""

    train: Annotated[int, Meta(gt=0)]
    val: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(gt=0)]
    classes: Annotated[int, Meta(gt=0)]
    sizes: Annotated[tuple[tuple[int, int, int], ...], Meta(min_length=1)]
    quality: Annotated[int, Meta(ge=1, le=100)]


def units(settings: Settings) -> int:
    """A unit is up to 50 images."""
    return -(-(settings.train + settings.val + settings.test) // UNIT)


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The images of one unit; each has a seed of its own, so that no image occurs twice."""
    total = settings.train + settings.val + settings.test
    for number in range(unit * UNIT, min((unit + 1) * UNIT, total)):
        split, index = "train", number
        for name, count in (("train", settings.train), ("val", settings.val), ("test", settings.test)):
            if index < count:
                split = name
                break
            index -= count
        rng = pictures.random(settings.seed, number)
        width, height = pictures.size(rng, settings.sizes)
        path = f"{split}/n{index % settings.classes:05d}/{index // settings.classes:06d}.jpeg"
        yield path, pictures.jpeg(rng, width, height, settings.quality)
