"""Ratings in the format of MovieLens: a header line, then lines of userId,movieId,rating,timestamp."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchsuite.describe.tasks import DataFolder
from benchsuite.models.readers import check_room, malformed, place

HEADER = "userId,movieId,rating,timestamp\n"
COLUMNS = np.dtype([("user", np.uint32), ("movie", np.uint32), ("rating", np.float32), ("time", np.int64)])
LINES = 1 << 18  # lines that are read at a time, so that only two columns are held as a whole


def interactions(data: DataFolder, users: int, items: int) -> tuple[Tensor, Tensor]:
    """The ratings in the order of the file: users and items, each int32 [ratings].

    Both are numbered from 0 in the order of their ids, without gaps.

    Raises:
        ModelError: the file is not of this format, or has more users or items than given.
    """
    path = place(data, "ratings")
    parts = list(_parts(data, path))
    found = []
    for column, what, parameter, room in (("user", "users", "users", users), ("movie", "movies", "items", items)):
        ids = np.concatenate([part[column] for part in parts] or [np.empty(0, np.uint32)])
        known = np.unique(ids)
        check_room(data, len(known), what, parameter, room)
        numbers = np.zeros(int(known.max(initial=0)) + 1, np.int32)
        numbers[known] = np.arange(len(known))
        found.append(torch.from_numpy(numbers[ids]))
    return found[0], found[1]


def _parts(data: DataFolder, path: Path) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Users and movies of LINES lines at a time."""
    _check_end(data, path)
    with path.open(encoding="utf-8") as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "loadtxt: input contained no data")
        done = 1
        try:
            if file.readline() != HEADER:
                raise malformed(data, path, f"its first line is not {HEADER}")
            while len(part := np.loadtxt(file, COLUMNS, comments=None, delimiter=",", max_rows=LINES, ndmin=1)):
                yield {name: part[name].copy() for name in ("user", "movie")}
                done += len(part)
        except ValueError as error:
            raise malformed(data, path, f"below line {done:,}: {error}") from None


def _check_end(data: DataFolder, path: Path) -> None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1))
        if file.read() != b"\n":
            raise malformed(data, path, "empty, or its last line is cut")
