"""Throughput over the number of GPUs, beside ideal (linear) scaling from a single GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from benchsuite.describe.tasks import PLACE_AXES
from benchsuite.errors import ResultError
from benchsuite.report.format import count, few, one_line, percent
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.axes import GREY, PALETTE, caption, plain
from benchsuite.report.show.machine_name import plot_title, samples_words
from benchsuite.report.show.svg import short
from benchsuite.report.stats.samples import repeat_rates
from benchsuite.report.stats.scaling import Curve, Point, curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

_MOST_PANELS = 60
_NAMED = 20
# A label's background, which keeps a line from crossing its text.
_BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}


def draw(source: Source) -> Figure:
    """One panel for each progression: each repeat, the mean with the interval of its efficiency, and ideal scaling.

    Raises:
        ResultError: no progression has a figure.
    """
    summary = source.summary
    found = curves(summary)
    shown = [curve for curve in found if any(p.total is not None for p in curve.points)]
    if not shown:
        raise ResultError(f"{summary.source}: no job with placement gpu_progression has a number to plot")
    shown = shown[:_MOST_PANELS]
    columns = next(columns for columns, most in ((1, 1), (2, 8), (3, 24), (4, math.inf)) if len(shown) <= most)
    lines = math.ceil(len(shown) / columns)
    width = {1: 7.5, 2: 5.2}.get(columns, 4.4)
    figure = Figure(figsize=(width * columns, 1.0 + (4.4 if columns == 1 else 3.4) * lines), layout="constrained")
    what = "GPUs" if summary.gpus_used else "ranks on the CPU"
    all_axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, curve in zip(all_axes, shown, strict=False):
        _panel(axes, curve, what, _rates(summary, curve))
    for axes in all_axes[len(shown) :]:
        axes.set_axis_off()
    caption(figure, plot_title("Scaling", summary), list(_notes(summary, found, shown)))
    return figure


def _rates(summary: Summary, curve: Curve) -> dict[int, list[float]]:
    """Number of GPUs -> the total of each repeat."""
    gpus = {point.gpus for point in curve.points}
    jobs = (job for job in _jobs(summary) if curve.job in (job.job, job.name.rpartition(".")[0]) and job.per in gpus)
    return {job.per: [rate * job.per for rate in repeat_rates(job).values()] for job in jobs}


def _jobs(summary: Summary) -> list[JobSummary]:
    return [job for job in summary.jobs if any(axis in job.axes for axis in PLACE_AXES)]


def _panel(axes: Axes, curve: Curve, what: str, rates: dict[int, list[float]]) -> None:
    points = [p for p in curve.points if p.total is not None]
    counts, totals = [p.gpus for p in points], [p.total or 0.0 for p in points]
    single = next((p.total for p in points if p.gpus == 1), None)
    if single:
        top = max(counts)
        axes.plot([1, top], [single, single * top], "--", color="0.55", label="ideal (linear)")
    several = {gpus: repeats for gpus, repeats in sorted(rates.items()) if len(repeats) > 1}
    for place, (gpus, repeats) in enumerate(several.items()):
        label = None if place else "each repeat"
        axes.plot([gpus] * len(repeats), repeats, "_", color=PALETTE[1], markersize=14, alpha=0.7, label=label)
    errors = list(zip(*(_error(p) for p in points), strict=True))
    mean = "mean, 95 % interval" if any(p.interval for p in points) else "mean"
    axes.errorbar(counts, totals, yerr=errors, fmt="o-", color=PALETTE[0], capsize=4, label=mean)
    for point in points:
        if point.efficiency is not None and point.gpus > 1:
            place_of = (point.gpus, point.total or 0.0)
            text = percent(point.efficiency, 0)
            axes.annotate(
                text, place_of, xytext=(0, -16), textcoords="offset points", ha="center", fontsize="small", bbox=_BEHIND
            )
    plain(axes, one_line(curve.job, 50), loc="left")
    axes.set(xlabel=what, ylim=(0, None))
    axes.set_ylabel(f"{one_line(curve.unit, 40)}/s, all together").set_parse_math(False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.margins(x=0.12)  # room for the last point's label
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3, color=GREY)
    axes.legend(loc="upper left", fontsize="small")


def _error(point: Point) -> tuple[float, float]:
    """The distances from the total to both ends of its interval; 0 without an interval."""
    if point.interval is None or not point.efficiency or point.total is None:
        return 0.0, 0.0
    scale = point.total / point.efficiency
    return point.total - point.interval.low * scale, point.interval.high * scale - point.total


def _notes(summary: Summary, found: Sequence[Curve], shown: Sequence[Curve]) -> Iterator[str]:
    kept = any(job.repeats for job in _jobs(summary))
    yield (
        f"n: {samples_words(summary)}. Percentages: the rate of a GPU against that of one GPU alone (efficiency). "
        f"{'Its interval needs three repeats.' if kept else 'It has no interval: single repeats are not kept.'}"
    )
    missing = [job for job in _jobs(summary) if job.perf is None]
    if missing:
        failed = (f"{one_line(job.name, 40)} ({job.fail} of {count(job.n, 'task')} not ok)" for job in missing)
        yield f"Without a number: {', '.join(few(failed, _NAMED))}."
    left = [curve.job for curve in found if curve not in shown and any(p.total is not None for p in curve.points)]
    if left:
        yield f"{len(shown)} of {count(len(shown) + len(left), 'job')}; left out: {', '.join(few(left, _NAMED))}."
