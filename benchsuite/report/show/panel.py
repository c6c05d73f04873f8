"""A picture of curves over time as data, which `svg` paints for the page and `axes` for `benchsuite plot`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchsuite.report.read.load import Row
from benchsuite.report.read.rates import Rates
from benchsuite.report.read.samples import Measure, Points, Sampled

Span = tuple[float, float]
# More points than pixels add bytes and nothing to see.
_POINTS = 240


@dataclass(frozen=True)
class Curve:
    """`points` are (seconds, value); curves of one `name` have one colour. In `hold` the task trained on, untimed."""

    name: str
    points: Points
    hold: Span | None = None


@dataclass(frozen=True)
class Panel:
    """Curves on one pair of axes.

    `windows` are the spans on which throughputs rest. `unit` is that of the values. The axis of time runs from 0 to
    `end_s` seconds, that of values from 0 to `top`; without a `top`, to the largest value.
    """

    title: str
    unit: str
    curves: tuple[Curve, ...]
    windows: tuple[Span, ...]
    end_s: float
    top: float | None = None


def rates_panel(title: str, tasks: Sequence[tuple[Row, Rates]], top: float, end_s: float) -> Panel:
    """Rates of tasks of one job over seconds since `go`; the curves have their devices' names."""
    curves = tuple(Curve(row.task.device, list(zip(of.times_s, of.rates, strict=True)), of.hold) for row, of in tasks)
    windows = tuple(of.window for _, of in tasks if of.window)
    return Panel(title, f"{tasks[0][1].unit}/s", curves, windows, end_s, top)


def samples_panel(measure: Measure, series: Sequence[tuple[Row, Sampled]], start_s: float, end_s: float) -> Panel:
    """One measure of several series over seconds since `start_s`; the curves have the names of GPUs, or of tasks.

    Args:
        start_s, end_s: seconds of CLOCK_MONOTONIC.
    """
    curves = tuple(
        Curve(
            row.task.id if of.about.kind == "tenant" else of.name,
            [(at - start_s, value) for at, value in measure.points(of)],
        )
        for row, of in series
    )
    windows = [row.window for row, _ in series if row.window]
    spans = dict.fromkeys(
        (window.start_s - start_s, window.end_s - start_s)
        for window in windows
        if window.start_s is not None and window.end_s is not None
    )
    top = 100.0 if measure.unit == "%" else None
    return Panel(measure.name, measure.unit, curves, tuple(spans), end_s - start_s, top)


def thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most `_POINTS` points: of each stretch its lowest and highest, so that no dip is lost."""
    if len(points) <= _POINTS:
        return points
    size = math.ceil(len(points) / (_POINTS / 2))
    kept: list[tuple[float, float]] = []
    for at in range(0, len(points), size):
        part = points[at : at + size]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept
