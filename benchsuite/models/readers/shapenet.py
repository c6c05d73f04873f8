"""Clouds of points with a part for each point, as the ShapeNet part annotation lays them out.

A folder for each category, such as `02691156`, holds a text file for each shape: lines of x, y, z, the three parts of
the normal, and the number of the part, which is unique over all categories. Lists in JSON give the shapes of each
split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from benchsuite.errors import ModelError, one_line, reason
from benchsuite.models import Share
from benchsuite.models.readers import images, malformed, place, rows

# The folders of WordNet's synsets, in the order of the data set's own list; a category's label is its place here.
CATEGORIES = (
    "02691156",  # airplane
    "02773838",  # bag
    "02954340",  # cap
    "02958343",  # car
    "03001627",  # chair
    "03261776",  # earphone
    "03467517",  # guitar
    "03624134",  # knife
    "03636649",  # lamp
    "03642806",  # laptop
    "03790512",  # motorbike
    "03797390",  # mug
    "03948459",  # pistol
    "04099429",  # rocket
    "04225987",  # skateboard
    "04379243",  # table
)
PARTS = 50
COLUMNS = 7  # x, y, z, the normal, the part


class Clouds(Dataset):
    """Clouds of files: [3, points] and the category, or the part of each point [points]. A key is as for `Images`.

    Points are drawn with replacement, moved so that their mean is 0, and scaled into the unit ball.
    """

    def __init__(self, files: Sequence[str], labels: Sequence[int], points: int, of_points: bool, share: Share) -> None:
        self.files, self.labels = files, labels
        self.points, self.of_points = points, of_points
        self.seed, self.remedy = share.seed, images.remedy(share)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        at, index = key
        try:
            table = _table(self.files[index])
        except ModelError as error:
            return images.Broken(one_line(f"{self.files[index]}: {error}; {self.remedy}"))
        with images.drawing(self.seed, at):
            chosen = table[torch.randint(len(table), (self.points,))]
        where = chosen[:, :3] - chosen[:, :3].mean(0)
        where = where / where.norm(dim=1).amax().clamp(min=1e-6)
        return where.T.contiguous(), chosen[:, -1].long() if self.of_points else self.labels[index]


def _table(file: str) -> Tensor:
    """The lines of a file, float32 [points, 7].

    Raises:
        ModelError: it cannot be read; the file is not named.
    """
    try:
        with open(file, encoding="ascii") as text:  # noqa: PTH123  a Path for each file would cost more
            lines = text.readlines()
        found = np.loadtxt(lines, np.float32, comments=None, ndmin=2) if lines else np.empty((0, COLUMNS))
    except OSError as error:
        raise ModelError(f"cannot be read: {reason(error)}") from None
    except ValueError as error:  # UnicodeDecodeError is one
        raise ModelError(f"no lines of {COLUMNS} numbers: {error}") from None
    if found.shape[1] != COLUMNS or not len(found):
        raise ModelError(f"{len(found)} lines of {found.shape[1]} numbers; {COLUMNS} are expected in each")
    part = found[:, -1]
    if not np.isfinite(found).all() or part.min() < 0 or part.max() >= PARTS:
        raise ModelError(f"a number is not finite, or a part is none of 0 to {PARTS - 1}")
    return torch.from_numpy(found)


def clouds(
    share: Share, *, points: int, of_points: bool, batch_size: int, workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the training shapes: [clouds, 3, points], and categories [clouds] or parts [clouds, points].

    Args:
        of_points: give the part of each point, not the category of each cloud.

    Raises:
        ModelError: the data set cannot be read; later, with a batch: a file of a shape is broken.
    """
    files, labels = _listed(share)
    order = rows(len(files), batch_size, share, "cloud")
    places = iter(range(share.rank, 1 << 62, share.ranks))  # no two ranks have one in common
    keys = ([(next(places), index) for index in row] for row in order)
    return images.load(Clouds(files, labels, points, of_points, share), keys, workers)


def _listed(share: Share) -> tuple[list[str], list[int]]:
    """The files of the training shapes and their categories.

    Raises:
        ModelError: the list cannot be read, or names what cannot be a shape.
    """
    assert share.data is not None
    file, folder = place(share.data, "train_list"), place(share.data, "shapes")
    try:
        names = msgspec.json.decode(file.read_bytes(), type=list[str])
    except OSError as error:
        raise ModelError(f"{file}: {reason(error)}; {images.remedy(share)}") from None
    except msgspec.MsgspecError as error:
        raise malformed(share.data, file, f"no list of names: {error}") from None
    files, labels = [], []
    for name in names:  # such as shape_data/02691156/1a04e3eab45ca15dd86060f189eb133
        category, shape = PurePosixPath(name).parts[-2:] if "/" in name else ("", name)
        if category not in CATEGORIES or shape == "..":
            raise malformed(share.data, file, f"'{name}' is no shape of a known category")
        files.append(f"{folder}/{category}/{shape}.txt")
        labels.append(CATEGORIES.index(category))
    return files, labels
