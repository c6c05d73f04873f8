"""Pictures with the sizes, edges and bytes per pixel of photographs. Integer arithmetic: the same on every CPU.

Each process adds up smooth noise, each layer twice as fine as the last, to fields of colour. A picture is a window of a
field with its own colours and a few shapes, as JPEG. Decoding it costs as much as decoding a photograph of its size.
"""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from PIL import Image

SIDE = 1024
_FIELDS = 3


def random(*seed: int) -> np.random.Generator:
    """The random generator of one item."""
    import numpy as np

    return np.random.default_rng(seed)


@functools.lru_cache(maxsize=4)
def _field(number: int) -> Image.Image:
    """Noise of octaves 4, 8 ... SIDE pixels; the amplitude of each is proportional to its grain."""
    import numpy as np
    from PIL import Image

    rng = random(77, number)
    total = np.zeros((SIDE, SIDE, 3), np.int32)
    side, weight = 4, 150
    while side <= SIDE:
        grain = rng.integers(0, 256, (side, side, 3), np.uint8)
        # Fine detail is grey, as in photographs.
        if side > 40:
            grain[:, :, 1:] = grain[:, :, :1]
        smooth = Image.fromarray(grain).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        total += (np.asarray(smooth, np.int32) - 128) * weight
        side, weight = side * 2, max(weight * 3 // 4, 1)
    return Image.fromarray(np.clip(total // 280 + 128, 0, 255).astype(np.uint8))


def size(rng: np.random.Generator, sizes: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Draw one of the rows [width, height, share] by its share; at most SIDE."""
    shares = [row[2] for row in sizes]
    ticket = int(rng.integers(0, sum(shares)))
    for width, height, share in sizes:
        ticket -= share
        if ticket < 0:
            return min(width, SIDE), min(height, SIDE)
    raise AssertionError


def jpeg(rng: np.random.Generator, width: int, height: int, quality: int) -> bytes:
    """One picture, as JPEG."""
    kept = io.BytesIO()
    drawn(rng, width, height).save(kept, "JPEG", quality=quality)
    return kept.getvalue()


def drawn(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """One picture in RGB."""
    from PIL import Image, ImageDraw

    x, y = int(rng.integers(0, SIDE - width + 1)), int(rng.integers(0, SIDE - height + 1))
    picture = _field(int(rng.integers(0, _FIELDS))).crop((x, y, x + width, y + height))
    if rng.integers(0, 2):
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    table = []
    for _ in range(3):
        gain, lift = int(rng.integers(30, 160)), int(rng.integers(-40, 41))
        table += [max(0, min(255, (value - 128) * gain // 100 + 128 + lift)) for value in range(256)]
    picture = picture.point(table)
    draw = ImageDraw.Draw(picture)
    for _ in range(int(rng.integers(1, 6))):
        left, top = int(rng.integers(0, width)), int(rng.integers(0, height))
        box = (left, top, left + int(rng.integers(8, width)), top + int(rng.integers(8, height)))
        colour = tuple(int(c) for c in rng.integers(0, 256, 3))
        shape = draw.ellipse if rng.integers(0, 2) else draw.rectangle
        shape(box, outline=colour, width=int(rng.integers(1, 4)))
    return picture
