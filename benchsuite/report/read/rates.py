"""A task's slices as a curve of rates, with its window and the time it was held: what timelines are drawn from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchsuite.records import Slice
from benchsuite.report.read.load import Row
from benchsuite.report.show.format import count, number

Span = tuple[float, float]
# So many times the usual rate are drawn; a slice for which batches lay ready may be a hundred times as fast.
_ROOM = 2.5


@dataclass(frozen=True)
class Rates:
    """Points at the middle of each measured slice: seconds since `go`, items/s of all ranks together.

    `window` and `hold` are spans in the same seconds, None where there is none; `end_s` is where the last slice ends.
    """

    times_s: tuple[float, ...]
    rates: tuple[float, ...]
    end_s: float
    unit: str
    window: Span | None
    hold: Span | None


def task_rates(row: Row) -> Rates | None:
    """The curve of a task; None where it recorded no slice, or numbers beyond any measurement."""
    streams = [s for s in row.result.measurement.streams if s.counts_items] if row.result else []
    if not streams:
        return None
    measured = [[s for s in stream.slices if s.phase == "measure"] for stream in streams]
    try:
        points = [_point(ranks) for ranks in zip(*measured, strict=False)]
    except OverflowError:
        return None
    points = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    first = streams[0]
    end_s = max((s.end_s for s in first.slices), default=0.0)
    if not points or not 0 < end_s < math.inf:
        return None
    held = [s for s in first.slices if s.phase == "hold"]
    window = None
    if row.window and row.window.start_s is not None and row.window.end_s is not None:
        window = (row.window.start_s - first.origin_s, row.window.end_s - first.origin_s)
    times, rates = zip(*points, strict=True)
    hold = (held[0].start_s, held[-1].end_s) if held else None
    return Rates(tuple(times), tuple(rates), end_s, first.unit, window, hold)


def axis(curves: Sequence[Rates]) -> tuple[float, str]:
    """Where the axis of several curves ends, so that what is usual can be seen; and, in words, what lies beyond it."""
    every = [rate for curve in curves for rate in curve.rates]
    top = _ROOM * max(statistics.median(curve.rates) for curve in curves)
    beyond = [rate for rate in every if rate > top > 0]
    if not beyond:
        return max(every), ""
    return top, f"{count(len(beyond), 'slice')} above, up to {number(max(beyond))}"


def _point(ranks: Sequence[Slice]) -> tuple[float, float]:
    """The middle of the first rank's slice, and the rates of all added up; ranks close slices at the same steps."""
    rate = math.fsum(s.items / s.elapsed_s if s.elapsed_s > 0 else math.nan for s in ranks)
    return (ranks[0].start_s + ranks[0].end_s) / 2, rate
