"""Throughput over the number of GPUs, beside the throughput of a single GPU times their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchsuite.errors import ResultError
from benchsuite.report.show.format import percent
from benchsuite.report.stats.scaling import Curve, Point, curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source


def draw(source: Source) -> Figure:
    """One panel for each progression: the total of a group, with the interval of its efficiency, and ideal scaling.

    Raises:
        ResultError: no progression has a figure.
    """
    summary = source.summary
    shown = [curve for curve in curves(summary) if any(p.total is not None for p in curve.points)]
    if not shown:
        raise ResultError(f"{summary.source}: no job with placement gpu_progression has a figure to plot")
    figure = Figure(figsize=(6.4, 4.4 * len(shown)), layout="constrained")
    what = "GPUs" if summary.gpus_used else "ranks on the CPU"
    for axes, curve in zip(figure.subplots(len(shown), 1, squeeze=False)[:, 0], shown, strict=True):
        _panel(axes, curve, what)
    return figure


def _panel(axes: Axes, curve: Curve, what: str) -> None:
    points = [p for p in curve.points if p.total is not None]
    counts, totals = [p.gpus for p in points], [p.total or 0.0 for p in points]
    single = next((p.total for p in points if p.gpus == 1), None)
    if single:
        top = max(counts)
        axes.plot([1, top], [single, single * top], "--", color="0.6", label="one, times their number")
    errors = list(zip(*(_error(p) for p in points), strict=True))
    axes.errorbar(counts, totals, yerr=errors, fmt="o-", capsize=4, label="measured")
    for point in points:
        if point.efficiency is not None and point.gpus > 1:
            place = (point.gpus, point.total or 0.0)
            axes.annotate(percent(point.efficiency, 0), place, xytext=(6, -14), textcoords="offset points")
    axes.set(title=curve.job, xlabel=what, ylabel=f"{curve.unit}/s, all together", ylim=(0, None))
    axes.margins(x=0.12)  # room for the last point's label
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")


def _error(point: Point) -> tuple[float, float]:
    """The distances from the total to both ends of its interval; 0 without an interval."""
    if point.interval is None or not point.efficiency or point.total is None:
        return 0.0, 0.0
    scale = point.total / point.efficiency
    return point.total - point.interval.low * scale, point.interval.high * scale - point.total
