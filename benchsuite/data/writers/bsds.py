"""Photographs as the Berkeley Segmentation Data Set lays them out: `BSR/BSDS500/data/images/train/100007.jpg`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from benchsuite.data import pictures, writers

UNIT = 20


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images by split; `sizes` are rows of width, height, share."""

    train: Annotated[int, Meta(gt=0)]
    val: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(gt=0)]
    sizes: Annotated[tuple[tuple[int, int, int], ...], Meta(min_length=1)]
    quality: Annotated[int, Meta(ge=1, le=100)]


def _splits(settings: Settings) -> list[str]:
    return ["train"] * settings.train + ["val"] * settings.val + ["test"] * settings.test


def units(settings: Settings) -> int:
    """A unit is up to 20 images."""
    return -(-len(_splits(settings)) // UNIT)


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The images of one unit."""
    splits = _splits(settings)
    for number in range(unit * UNIT, min((unit + 1) * UNIT, len(splits))):
        rng = pictures.random(settings.seed, number)
        width, height = pictures.size(rng, settings.sizes)
        path = f"BSR/BSDS500/data/images/{splits[number]}/{100_000 + number}.jpg"
        yield path, pictures.jpeg(rng, width, height, settings.quality)
