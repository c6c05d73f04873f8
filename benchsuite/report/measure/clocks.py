"""The times of a task over nodes on one clock. The CLOCK_MONOTONIC of each host counts from its own boot."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from benchsuite.measurement import Stream
from benchsuite.records import Result


def streams_on_one_clock(result: Result) -> tuple[Stream, ...]:
    """The streams of a result. Their `origin_s` is on the clock of `timeline`, that of the host that recorded it."""
    streams = result.measurement.streams
    if not result.parts:
        return streams
    ends = list(itertools.accumulate(share.ranks for share in result.task.nodes))
    offsets_s = [part.offset_s for part in result.parts]
    return tuple(
        replace(stream, origin_s=stream.origin_s - _of_rank(stream.rank, ends, offsets_s)) for stream in streams
    )


def _of_rank(rank: int, ends: list[int], offsets_s: list[float]) -> float:
    """The offset of the clock of a rank's host. A file may hold any rank.

    Args:
        ends: for each node, the number of ranks on it and on the nodes before it.
    """
    return next((offset_s for end, offset_s in zip(ends, offsets_s, strict=False) if rank < end), 0.0)
