"""Sine waves with random phases, one a row: `waves.npy`, float64."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from benchsuite.data import pictures, writers


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Number of waves, points of a wave, and points per radian."""

    waves: Annotated[int, Meta(gt=0)]
    points: Annotated[int, Meta(gt=0)]
    period: Annotated[int, Meta(gt=0)]


def units(settings: Settings) -> int:
    """One file, one unit."""
    return 1


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """All waves."""
    import numpy as np

    rng = pictures.random(settings.seed)
    shift = rng.integers(-4 * settings.period, 4 * settings.period, (settings.waves, 1))
    waves = np.sin((np.arange(settings.points) + shift) / settings.period)
    kept = io.BytesIO()
    np.save(kept, waves)
    yield "waves.npy", kept.getvalue()
