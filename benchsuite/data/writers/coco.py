"""Images and their annotations as COCO 2017 has them: `train2017/*.jpg`, `annotations/instances_train2017.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from benchsuite.data import pictures, words, writers

if TYPE_CHECKING:
    import numpy as np

UNIT = 25
_MOST_OBJECTS = 93
# COCO's 80 category numbers run from 1 to 90 with these gaps.
_GAPS = frozenset({12, 26, 29, 30, 45, 66, 68, 69, 71, 83})
CATEGORIES = tuple(number for number in range(1, 91) if number not in _GAPS)
_ANGLES = 20


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images by split; `sizes` are rows of width, height, share; `objects`: mean number of objects of an image."""

    train: Annotated[int, Meta(gt=0)]
    val: Annotated[int, Meta(gt=0)]
    sizes: Annotated[tuple[tuple[int, int, int], ...], Meta(min_length=1)]
    quality: Annotated[int, Meta(ge=1, le=100)]
    objects: Annotated[float, Meta(gt=0)]


def _pieces(settings: Settings) -> list[tuple[str, int, int]]:
    return [
        (split, first, min(first + UNIT, count))
        for split, count in (("train2017", settings.train), ("val2017", settings.val))
        for first in range(0, count, UNIT)
    ]


def units(settings: Settings) -> int:
    """A unit is up to 25 images."""
    return len(_pieces(settings))


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The images of one unit, and its pieces of the JSON file."""
    split, first, end = _pieces(settings)[unit]
    images: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    for index in range(first, end):
        number = index + 1 + (0 if split == "train2017" else 600_000)
        rng = pictures.random(settings.seed, number)
        width, height = pictures.size(rng, settings.sizes)
        file = f"{number:012d}.jpg"
        yield f"{split}/{file}", pictures.jpeg(rng, width, height, settings.quality)
        images.append({"license": 1, "file_name": file, "height": height, "width": width, "id": number})
        objects += _objects(rng, settings.objects, number, width, height, bare_allowed=index > first)
    yield from _json(split, first, images, objects)


def _json(split: str, first: int, images: list[Any], objects: list[Any]) -> Iterator[tuple[str, bytes]]:
    """The pieces in order: 0 head, 1 images, 2 between, 3 annotations, 4 end. No unit has an empty list."""
    part = f"annotations/instances_{split}.json.part"
    if first == 0:
        categories = [{"supercategory": "thing", "id": n, "name": f"thing {n}"} for n in CATEGORIES]
        head = json.dumps({"info": {"description": "synthetic"}, "licenses": [{"id": 1}], "categories": categories})
        yield f"{part}-0", (head[:-1] + ', "images": [').encode()
        yield f"{part}-2", b'], "annotations": ['
        yield f"{part}-4", b"]}\n"
    yield f"{part}-1-{first:08d}", _rows(images, first == 0)
    yield f"{part}-3-{first:08d}", _rows(objects, first == 0)


def _rows(rows: list[Any], is_first: bool) -> bytes:
    text = ", ".join(json.dumps(row) for row in rows)
    return (text if is_first or not text else ", " + text).encode()


def _objects(
    rng: np.random.Generator, mean: float, image: int, width: int, height: int, *, bare_allowed: bool
) -> list[dict[str, Any]]:
    """A skewed number of objects: 1 % of the images have none, and 40 % of the objects are below 32 x 32 pixels."""
    import numpy as np

    count = 0 if rng.random() < 0.01 and bare_allowed else min(_MOST_OBJECTS, int(rng.gamma(0.95, mean)) + 1)
    kinds = words.ranks(rng, count, len(CATEGORIES), 1.15, 0.0)
    found = []
    for number, kind in enumerate(kinds):
        side = float(np.exp(rng.normal(3.8, 1.25)))
        ratio = float(np.exp(rng.normal(0.0, 0.4)))
        w = max(4.0, min(width - 1.0, side * ratio))
        h = max(4.0, min(height - 1.0, side / ratio))
        x, y = float(rng.random()) * (width - w), float(rng.random()) * (height - h)
        angles = np.linspace(0, 2 * np.pi, _ANGLES, endpoint=False)
        outline = np.stack([x + w / 2 * (1 + np.cos(angles)), y + h / 2 * (1 + np.sin(angles))], 1).round(2)
        found.append(
            {
                "segmentation": [outline.ravel().tolist()],
                "area": round(w * h * np.pi / 4, 2),
                "iscrowd": int(rng.random() < 0.01),
                "image_id": image,
                "bbox": [round(x, 2), round(y, 2), round(w, 2), round(h, 2)],
                "category_id": CATEGORIES[kind],
                "id": image * 100 + number,
            }
        )
    return found
