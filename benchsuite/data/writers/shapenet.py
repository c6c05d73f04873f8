"""Clouds of points with normals and parts, as the ShapeNet part annotation has them: `FOLDER/02691156/NAME.txt`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from benchsuite.data import pictures, writers

if TYPE_CHECKING:
    import numpy as np

UNIT = 100
FOLDER = "shapenetcore_partanno_segmentation_benchmark_v0_normal"
# Name, folder, parts, and shapes in the real data set. Parts are numbered through, from 0 to 49.
CATEGORIES = (
    ("Airplane", "02691156", 4, 2690),
    ("Bag", "02773838", 2, 76),
    ("Cap", "02954340", 2, 55),
    ("Car", "02958343", 4, 898),
    ("Chair", "03001627", 4, 3758),
    ("Earphone", "03261776", 3, 69),
    ("Guitar", "03467517", 3, 787),
    ("Knife", "03624134", 2, 392),
    ("Lamp", "03636649", 4, 1547),
    ("Laptop", "03642806", 2, 451),
    ("Motorbike", "03790512", 6, 202),
    ("Mug", "03797390", 2, 184),
    ("Pistol", "03948459", 3, 283),
    ("Rocket", "04099429", 3, 66),
    ("Skateboard", "04225987", 3, 152),
    ("Table", "04379243", 3, 5271),
)
_LINE = "%.5f %.5f %.5f %.4f %.4f %.4f %.6f\n"


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shapes by split, and the mean number of points of one."""

    train: Annotated[int, Meta(gt=0)]
    val: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(gt=0)]
    points: Annotated[int, Meta(ge=16)]


def units(settings: Settings) -> int:
    """A unit is up to 100 shapes."""
    return -(-(settings.train + settings.val + settings.test) // UNIT)


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The shapes of one unit; the first unit also writes the lists."""
    kinds = _kinds(settings)
    if unit == 0:
        yield from _lists(settings, kinds)
    for number in range(unit * UNIT, min((unit + 1) * UNIT, len(kinds))):
        rng = pictures.random(settings.seed, number)
        yield f"{FOLDER}/{_shape(number, kinds[number])}.txt", _cloud(rng, kinds[number], settings.points)


def _kinds(settings: Settings) -> list[int]:
    """The category of each shape, drawn with the shares of the real data set."""
    import numpy as np

    edges = np.cumsum([count for *_, count in CATEGORIES])
    total = settings.train + settings.val + settings.test
    tickets = pictures.random(settings.seed, 0, 1).integers(0, edges[-1], total)
    found: list[int] = np.searchsorted(edges, tickets, side="right").tolist()
    return found


def _shape(number: int, kind: int) -> str:
    return f"{CATEGORIES[kind][1]}/{number:032x}"


def _lists(settings: Settings, kinds: list[int]) -> Iterator[tuple[str, bytes]]:
    names = "".join(f"{name}\t{folder}\n" for name, folder, *_ in CATEGORIES)
    yield f"{FOLDER}/synsetoffset2category.txt", names.encode()
    first = 0
    for split, count in (("train", settings.train), ("val", settings.val), ("test", settings.test)):
        shapes = [f"shape_data/{_shape(number, kinds[number])}" for number in range(first, first + count)]
        yield f"{FOLDER}/train_test_split/shuffled_{split}_file_list.json", json.dumps(shapes).encode()
        first += count


def _cloud(rng: np.random.Generator, kind: int, mean: int) -> bytes:
    """The lines of one shape: each part is the surface of an ellipsoid."""
    import numpy as np

    first = sum(parts for _, _, parts, _ in CATEGORIES[:kind])
    parts = CATEGORIES[kind][2]
    total = int(rng.integers(mean * 4 // 5, mean * 6 // 5))
    part = np.sort(np.concatenate([np.arange(parts), rng.integers(0, parts, max(0, total - parts))]))
    direction = rng.standard_normal((len(part), 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    centre, radius = rng.uniform(-0.3, 0.3, (parts, 3)), rng.uniform(0.03, 0.2, (parts, 3))
    normal = direction / radius[part]
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    where = centre[part] + radius[part] * direction
    table = np.concatenate([where, normal, (first + part)[:, None]], 1)
    return (_LINE * len(part) % tuple(table.ravel().tolist())).encode()
