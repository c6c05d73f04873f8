"""The slices of tasks as curves of rates over time."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchsuite.measurement import Slice
from benchsuite.report.format import count, number
from benchsuite.report.measure.clocks import streams_on_one_clock
from benchsuite.report.read.curves import Curve, Panel, Span
from benchsuite.report.read.load import Row

# The axis of rates ends at this multiple of the median rate: a slice whose batches were ready beforehand can be a
# hundred times as fast as the others, and would flatten every curve.
_TOP_PER_MEDIAN = 2.5


def rates_panels(rows: Iterable[Row]) -> list[Panel]:
    """One panel a job, with a curve for each task that has one."""
    by_job: dict[str, list[Curve]] = defaultdict(list)
    for row in rows:
        if curve := rates_curve(row):
            by_job[row.task.row].append(curve)
    return [
        Panel(job, curves[0].unit, tuple(curves), max(curve.end_s for curve in curves), *_axis(curves))
        for job, curves in by_job.items()
    ]


def rates_curve(row: Row) -> Curve | None:
    """Items/s of all ranks of a task together, at the middle of each measured slice, over seconds since `go`.

    None if the task recorded no slice, or numbers beyond any measurement.
    """
    streams = [s for s in streams_on_one_clock(row.result) if s.counts_items] if row.result else []
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
    hold = (held[0].start_s, held[-1].end_s) if held else None
    return Curve(row, row.task.device, f"{first.unit}/s", points, end_s, window_span(row, first.origin_s), hold)


def window_span(row: Row, start_s: float) -> Span | None:
    """The window of a task in seconds since `start_s` of CLOCK_MONOTONIC; None without a window."""
    window = row.window
    if window is None or window.start_s is None or window.end_s is None:
        return None
    return window.start_s - start_s, window.end_s - start_s


def _axis(curves: Sequence[Curve]) -> tuple[float, str]:
    """The end of the axis of rates, and in words the slices above it."""
    rates = [[rate for _, rate in curve.points] for curve in curves]
    top, largest = _TOP_PER_MEDIAN * max(map(statistics.median, rates)), max(map(max, rates))
    beyond = sum(rate > top > 0 for of_curve in rates for rate in of_curve)
    return (top, f"{count(beyond, 'slice')} above, up to {number(largest)}") if beyond else (largest, "")


def _point(ranks: Sequence[Slice]) -> tuple[float, float]:
    """The middle of the first rank's slice, and the sum of all ranks' rates. Ranks end slices at the same steps."""
    rate = math.fsum(s.items / s.elapsed_s if s.elapsed_s > 0 else math.nan for s in ranks)
    return (ranks[0].start_s + ranks[0].end_s) / 2, rate
