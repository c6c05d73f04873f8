"""Pairs of sentences as numbers of units, a sentence a line: one file a language, whose lines belong together.

The first four units are padding, unknown, begin and end. Sentences are without the first and the last two, other than
where the text happens to spell one, such as `<s>` in a page's markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from benchsuite.errors import ModelError
from benchsuite.models import Share
from benchsuite.models.readers import check_room, malformed, place
from benchsuite.tasks import DataFolder

Array: TypeAlias = "np.ndarray[Any, Any]"

ROLES = ("train_source", "train_target")
SPECIALS = 4
LINES = 1 << 14  # of each file, read at a time


@dataclass(frozen=True)
class Sentences(Sequence[Tensor]):
    """Sentences, each int64 [units], held as the units of all, one after another, and where each ends [sentences].

    Units `before` and `after` are put around every one.
    """

    units: Array
    ends: Array
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def lengths(self) -> Array:
        """Units of each sentence without `before` and `after`, int64 [sentences]."""
        return np.diff(self.ends, prepend=0)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: Any) -> Any:
        units = self.units[self.ends[row - 1] if row else 0 : self.ends[row]]
        return torch.tensor([*self.before, *units.tolist(), *self.after])


def pairs(share: Share, max_length: int, vocabulary: int, unknown: int) -> tuple[Sentences, Sentences]:
    """Sources and targets of this rank; units are numbered as in the files, but the special ones are `unknown`.

    Pairs with an empty side or one of over `max_length` units are left out; ranks take the others in turns, the same
    number each.

    Raises:
        ModelError: a file is not of this format, the two differ in lines, a unit is none of the vocabulary, or no pair
            is left for each rank.
    """
    assert share.data
    data, seen, most = share.data, 0, -1
    kept = [_Kept.open(place(data, role), np.min_scalar_type(vocabulary)) for role in ROLES]
    for both in _parts(data):
        fits = np.logical_and.reduce([(side.counts > 0) & (side.counts <= max_length) for side in both])
        mine = fits & ((np.cumsum(fits) + seen - 1) % share.ranks == share.rank)
        seen += int(fits.sum())
        most = max(most, *(int(side.units.max(initial=-1)) for side in both))
        check_room(data, most + 1, "units", "vocabulary", vocabulary)
        for side, lines in zip(kept, both, strict=True):
            units = lines.units[np.repeat(mine, lines.counts)]
            side.add(np.where(units < SPECIALS, unknown, units), lines.counts[mine])
    each = seen // share.ranks
    if not each:
        ranks = f" for each of {share.ranks} ranks" if share.ranks > 1 else ""
        remedy = "give a larger max_length, or bring a larger data set"
        raise ModelError(f"data set '{data.name}' holds no pair of 1 to {max_length} units a side{ranks}; {remedy}")
    return kept[0].sentences(each), kept[1].sentences(each)


# --- lines of one file ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lines:
    """Units of some lines [units], and how many there are in each line [lines]."""

    units: Array
    counts: Array


@dataclass
class _Kept:
    """The sentences of one side so far."""

    units: Array
    used: int = 0
    counts: list[Array] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, kind: np.dtype[Any]) -> _Kept:
        """With room for all that a file can hold, two bytes a unit: memory that is never written is never used."""
        return cls(np.empty(path.stat().st_size // 2 + 1, kind))

    def add(self, units: Array, counts: Array) -> None:
        self.units[self.used : self.used + len(units)] = units
        self.used += len(units)
        self.counts.append(counts.astype(np.int32))

    def sentences(self, count: int) -> Sentences:
        """The first so many."""
        return Sentences(self.units, np.cumsum(np.concatenate(self.counts)[:count], dtype=np.int64))


def _parts(data: DataFolder) -> Iterator[tuple[_Lines, _Lines]]:
    """The same lines of both files, some at a time."""
    source, target = (place(data, role) for role in ROLES)
    done = 0
    with source.open("rb") as one, target.open("rb") as two:
        while True:
            left, right = (list(islice(file, LINES)) for file in (one, two))
            if len(left) != len(right):
                raise malformed(data, target, f"{done + len(right):,} lines or more, not as many as {source.name} has")
            if not left:
                return
            yield _parsed(data, source, left, done), _parsed(data, target, right, done)
            done += len(left)


def _parsed(data: DataFolder, path: Path, lines: list[bytes], before: int) -> _Lines:
    text = b"".join(lines)
    if text.translate(None, b"0123456789 \n"):
        wrong = next(i for i, line in enumerate(lines) if line.translate(None, b"0123456789 \n"))
        raise malformed(data, path, f"line {before + wrong + 1:,} is not numbers separated by blanks")
    if not text.endswith(b"\n"):
        raise malformed(data, path, f"its last line, {before + len(lines):,}, is cut")
    letters = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(letters < ord("0"))
    ended = np.cumsum(np.diff(breaks, prepend=-1) > 1)  # units up to each blank or line's end
    counts = np.diff(ended[letters[breaks] == ord("\n")], prepend=0)
    return _Lines(np.fromstring(text, np.int64, sep=" "), counts)
