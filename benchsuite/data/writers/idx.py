"""IDX files as MNIST has them: strokes of ten digits, 28 x 28, a fifth of the pixels inked."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from benchsuite.data import pictures, writers

if TYPE_CHECKING:
    import numpy as np

UNIT = 2000
_STYLES = 40
# Strokes of each digit in a square from 0 to 100, as rows of points.
_STROKES = (
    [[50, 5, 22, 20, 14, 50, 22, 82, 50, 95, 78, 82, 86, 50, 78, 20, 50, 5]],
    [[35, 22, 55, 5, 52, 95]],
    [[18, 25, 35, 7, 65, 7, 80, 28, 68, 52, 18, 94, 86, 92]],
    [[20, 10, 70, 8, 78, 28, 45, 46, 80, 62, 78, 85, 48, 96, 16, 86]],
    [[30, 5, 18, 55, 84, 52], [72, 8, 66, 96]],
    [[80, 7, 30, 8, 24, 45, 62, 42, 82, 62, 72, 88, 44, 96, 18, 86]],
    [[70, 6, 36, 30, 18, 66, 34, 93, 66, 92, 80, 70, 62, 54, 24, 64]],
    [[14, 10, 84, 8, 60, 50, 44, 96], [34, 52, 74, 50]],
    [[52, 48, 24, 32, 30, 10, 66, 6, 78, 26, 52, 48, 22, 70, 34, 94, 68, 94, 80, 72, 52, 48]],
    [[76, 34, 48, 48, 24, 32, 36, 8, 68, 10, 76, 34, 70, 66, 52, 96]],
)


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of training and test images."""

    train: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(gt=0)]


def _pieces(settings: Settings) -> list[tuple[str, int, int, int]]:
    """File prefix, number of all images, and the range of the piece: first, and one past the last."""
    return [
        (name, count, first, min(first + UNIT, count))
        for name, count in (("train", settings.train), ("t10k", settings.test))
        for first in range(0, count, UNIT)
    ]


def units(settings: Settings) -> int:
    """A unit is up to 2000 images."""
    return len(_pieces(settings))


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The images and labels of one unit; the first unit begins with the files' headers."""
    import numpy as np

    name, count, first, end = _pieces(settings)[unit]
    images, labels = f"MNIST/raw/{name}-images-idx3-ubyte", f"MNIST/raw/{name}-labels-idx1-ubyte"
    if first == 0:
        yield f"{images}.part-{-1:08d}", struct.pack(">IIII", 0x803, count, 28, 28)
        yield f"{labels}.part-{-1:08d}", struct.pack(">II", 0x801, count)
    rng = pictures.random(settings.seed, unit)
    digits = rng.integers(0, 10, end - first)
    drawn = _styles()[digits, rng.integers(0, _STYLES, end - first)].astype(np.int32)
    drawn = drawn * rng.integers(84, 101, (end - first, 1, 1)) // 100
    shifts = rng.integers(-2, 3, (end - first, 2))
    for image, (down, right) in zip(drawn, shifts, strict=True):
        image[:] = np.roll(image, (down, right), (0, 1))
    yield f"{images}.part-{first:08d}", drawn.astype(np.uint8).tobytes()
    yield f"{labels}.part-{first:08d}", digits.astype(np.uint8).tobytes()


@functools.lru_cache(maxsize=1)
def _styles() -> np.ndarray:
    """[digit, style, 28, 28]: each digit in many handwritings, in a box of 20 x 20 in the middle."""
    import numpy as np
    from PIL import Image, ImageDraw

    found = np.zeros((10, _STYLES, 28, 28), np.uint8)
    for digit, strokes in enumerate(_STROKES):
        for style in range(_STYLES):
            rng = pictures.random(4711, digit, style)
            canvas = Image.new("L", (160, 160))
            draw = ImageDraw.Draw(canvas)
            width, slant = int(rng.integers(13, 20)), int(rng.integers(-15, 26))
            for stroke in strokes:
                moved = np.array(stroke).reshape(-1, 2) + rng.integers(-5, 6, (len(stroke) // 2, 2))
                x = 30 + moved[:, 0] + slant * (50 - moved[:, 1]) // 100
                points = [(int(a), int(b)) for a, b in zip(x, 30 + moved[:, 1], strict=True)]
                draw.line(points, fill=255, width=width, joint="curve")
            small = canvas.resize((28, 28), Image.Resampling.BOX)
            found[digit, style] = np.minimum(np.asarray(small, np.int32) * 5 // 4, 255)
    return found
