"""Pairs of sentences as numbers of units: one file for each language; equal line numbers are a pair.

The first four units are padding, unknown, begin and end. Sentences do not contain padding, begin and end, unless the
text happens to spell one of them, such as `<s>` in the markup of a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.models import Share
from benchsuite.models.readers import check_room, malformed, place

Array: TypeAlias = "np.ndarray[Any, Any]"

ROLES = ("train_source", "train_target")
SPECIALS = 4
BLOCK_BYTES = 1 << 22  # of a file, made into numbers at a time
LINES = 1 << 18  # of both files, chosen from at a time
DIGITS = 9  # more are no number of a unit


@dataclass(frozen=True)
class Sentences(Sequence[Tensor]):
    """Sentences, each int64 [units]. Stored are the units of all, one after another, and the end of each [sentences].

    Every sentence is enclosed by the units `before` and `after`.
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

    def padded(self, rows: Array, padding: int) -> Tensor:
        """The sentences of some rows, filled with `padding` to the longest of them, int64 [rows, units]."""
        ends = self.ends[rows]
        lengths = ends - np.where(rows > 0, self.ends[rows - 1], 0)
        first, width = len(self.before), int(lengths.max())
        found = np.full((len(rows), first + width + len(self.after)), padding, np.int64)
        found[:, :first] = self.before
        inside = np.arange(width) < lengths[:, None]
        places = (ends - lengths)[:, None] + np.arange(width)
        found[:, first : first + width][inside] = self.units[places[inside]]
        for place_after, unit in enumerate(self.after):
            found[np.arange(len(rows)), first + lengths + place_after] = unit
        return torch.from_numpy(found)


def pairs(share: Share, max_length: int, vocabulary: int, unknown: int) -> tuple[Sentences, Sentences]:
    """Sources and targets of this rank. Units have the numbers of the files; special units become `unknown`.

    Pairs with an empty side, or a side of over `max_length` units, are left out. Ranks take turns with the others; each
    takes the same number.

    Raises:
        ModelError: a file has another format, the two differ in their number of lines, a unit is not in the
            vocabulary, or too few pairs are left for all ranks.
    """
    assert share.data
    data = share.data
    with ThreadPoolExecutor(len(ROLES)) as both:  # numpy releases the interpreter lock while it computes
        source, target = both.map(partial(_read, data, vocabulary=vocabulary), ROLES)
    if len(source.counts) != len(target.counts):
        lines = f"{len(target.counts):,} lines, not the {len(source.counts):,} that {source.path.name} has"
        raise malformed(data, target.path, lines)
    check_room(data, max(source.highest, target.highest) + 1, "units", "vocabulary", vocabulary)
    fits = np.logical_and.reduce([(side.counts > 0) & (side.counts <= max_length) for side in (source, target)])
    each = int(fits.sum()) // share.ranks
    if not each:
        ranks = f" for each of {share.ranks} ranks" if share.ranks > 1 else ""
        remedy = "give a larger max_length, or bring a larger data set"
        raise ModelError(f"data set '{data.name}' holds no pair of 1 to {max_length} units a side{ranks}; {remedy}")
    mine = np.zeros(len(fits), bool)
    mine[np.flatnonzero(fits)[share.rank :: share.ranks][:each]] = True
    return source.chosen(mine, unknown), target.chosen(mine, unknown)


def equally_long(lengths: Array, count: Callable[[int], int], generator: torch.Generator) -> Iterator[Array]:
    """Endless: the rows of each batch, `count(length)` sentences of one length, in a new order each pass.

    The sentences of a length that fill no batch are left out of a pass.
    """
    groups = {int(length): np.flatnonzero(lengths == length) for length in np.unique(lengths)}
    while True:
        batches: list[Array] = []
        for length, rows in groups.items():
            size = count(length)
            order = torch.randperm(len(rows), generator=generator).numpy()[: len(rows) // size * size]
            batches += [*rows[order].reshape(-1, size)]
        yield from (batches[index] for index in torch.randperm(len(batches), generator=generator).tolist())


# --- one file ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """All units of a file [units], the number of units of each line [lines], and the highest number of a unit."""

    path: Path
    units: Array
    counts: Array
    highest: int

    def chosen(self, lines: Array, unknown: int) -> Sentences:
        """The lines for which [lines] is true, moved to the front of the memory. Special units become `unknown`."""
        first = used = 0
        for start in range(0, len(lines), LINES):
            counts, taken = self.counts[start : start + LINES], lines[start : start + LINES]
            size = int(counts.sum())
            units = self.units[first : first + size][np.repeat(taken, counts)]
            units[units < SPECIALS] = unknown
            self.units[used : used + len(units)] = units
            first, used = first + size, used + len(units)
        return Sentences(self.units, np.cumsum(self.counts[lines], dtype=np.int64))


def _read(data: DataFolder, role: str, vocabulary: int) -> _Side:
    """Allocates for all units that the file can hold, two bytes each: memory that is never written is never used."""
    path = place(data, role)
    units = np.empty(path.stat().st_size // 2 + 1, np.min_scalar_type(vocabulary))
    counts: list[Array] = [np.empty(0, np.int32)]
    used, lines, highest = 0, 0, -1
    for text in _blocks(path):
        wrong = text.translate(None, b"0123456789 \n")
        if wrong:
            line = lines + text.count(b"\n", 0, min(text.index(letter) for letter in set(wrong))) + 1
            raise malformed(data, path, f"line {line:,} is not numbers separated by blanks")
        if not text.endswith(b"\n"):
            last = lines + text.count(b"\n") + 1
            raise malformed(data, path, f"its last line, {last:,}, is cut")
        found, of_lines = _numbers(text)
        highest = max(highest, int(found.max(initial=-1)))
        units[used : used + len(found)] = found
        used, lines = used + len(found), lines + len(of_lines)
        counts.append(of_lines)
    return _Side(path, units, np.concatenate(counts), highest)


def _blocks(path: Path) -> Iterator[bytes]:
    """The file's lines, some megabytes at a time."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block if block.endswith(b"\n") else block + file.readline()


def _numbers(text: bytes) -> tuple[Array, Array]:
    """The numbers of some whole lines, int32 [units], and the number of units of each line, int32 [lines].

    The last digits of all numbers are taken at once, then the last but one, and so on.
    """
    letters = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(letters < ord("0")).astype(np.int32)
    widths = np.diff(breaks, prepend=np.int32(-1)) - 1  # 0 between two adjacent blanks or line ends
    ended = np.cumsum(widths > 0, dtype=np.int32)
    counts = np.diff(ended[letters[breaks] == ord("\n")], prepend=np.int32(0))
    ends, widths = breaks[widths > 0], widths[widths > 0]
    digits = letters - ord("0")
    units = np.zeros(len(ends), np.int32)
    for place_of in range(1, min(int(widths.max(initial=0)), DIGITS) + 1):
        units += np.multiply(digits[ends - place_of] * (widths >= place_of), 10 ** (place_of - 1), dtype=np.int32)
    units[widths > DIGITS] = np.iinfo(np.int32).max
    return units, counts
