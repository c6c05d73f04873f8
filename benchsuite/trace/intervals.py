"""Sets of time, as sorted arrays of intervals that do not overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals in order. `starts` and `ends` have one unit, the caller's."""

    starts: Times
    ends: Times

    @property
    def length(self) -> float:
        """The total length."""
        return float((self.ends - self.starts).sum())

    def __len__(self) -> int:
        return len(self.starts)


def union(starts: Times, ends: Times) -> Intervals:
    """The union of intervals that may overlap, in any order. Empty and negative ones are left out."""
    kept = ends > starts
    starts, ends = starts[kept], ends[kept]
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    if not len(starts):
        return Intervals(starts, ends)
    reached = np.maximum.accumulate(ends)
    first = np.concatenate(([True], starts[1:] > reached[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Intervals(starts[first], reached[last])


def both(one: Intervals, other: Intervals) -> Intervals:
    """The time that lies in both."""
    low = np.searchsorted(other.ends, one.starts, side="right")
    high = np.searchsorted(other.starts, one.ends, side="left")
    counts = np.maximum(high - low, 0)
    mine = np.repeat(np.arange(len(one)), counts)
    theirs = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    starts = np.maximum(one.starts[mine], other.starts[theirs])
    ends = np.minimum(one.ends[mine], other.ends[theirs])
    return union(starts, ends)


def outside(one: Intervals, start: float, end: float) -> Intervals:
    """The time from `start` to `end` that lies in none of the intervals."""
    inner = clipped(one, start, end)
    starts = np.concatenate(([start], inner.ends))
    ends = np.concatenate((inner.starts, [end]))
    return union(starts, ends)


def clipped(one: Intervals, start: float, end: float) -> Intervals:
    """The part from `start` to `end`."""
    return union(np.maximum(one.starts, start), np.minimum(one.ends, end))


def holds(one: Intervals, moments: Times) -> NDArray[np.bool_]:
    """Whether each moment lies in one of the intervals, the start included and the end as well."""
    place = np.searchsorted(one.starts, moments, side="right") - 1
    found = place >= 0
    found[found] = moments[found] <= one.ends[place[found]]
    return found
