"""Ratios of two runs, job by job, on a logarithmic axis, with 95 % intervals where both have three repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchsuite.errors import ResultError, UsageError
from benchsuite.report.show.format import count, one_line, ratio
from benchsuite.report.stats.compare import compare
from benchsuite.report.stats.ratios import JobRatio
from benchsuite.report.stats.weights import weigh, weights_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

_MOST_JOBS = 120


def draw(source: Source) -> Figure:
    """One line for each job; right of 1 this run is faster than the base.

    Raises:
        UsageError: there is no base.
        ResultError: no job has a ratio.
    """
    if source.base is None:
        raise UsageError("--kind compare: needs --base, a baseline, a summary file or another results folder")
    weighing = weigh(weights_for(source.summary.profile, None), source.summary)
    comparison = compare(source.summary, source.base, weighing, source.base_name)
    jobs = [job for job in comparison.jobs if job.ratio and not job.excluded]
    if not jobs:
        raise ResultError(f"{source.summary.source}: no job has a ratio to {one_line(source.base_name)} to plot")
    shown = jobs[:_MOST_JOBS]
    figure = Figure(figsize=(7.5, 1.4 + 0.32 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for place, job in enumerate(shown):
        _job(axes, place, job)
    of_all = f" ({len(shown)} of {count(len(jobs), 'job')})" if len(jobs) > len(shown) else ""
    base = source.base.source if source.base.sessions else PurePath(source.base_name).name
    title = f"{one_line(source.summary.source)} against {one_line(base)}{of_all}"
    axes.set_title(title, loc="left", parse_math=False)
    axes.axvline(1.0, color="0.4", linewidth=1)
    axes.set_yticks(range(len(shown)), [one_line(job.name) for job in shown])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    _scale(axes, [end for job in shown for end in (job.ratio, job.verdict.low, job.verdict.high) if end])
    return figure


def _job(axes: Axes, place: int, job: JobRatio) -> None:
    value = job.ratio or 0.0
    low, high = job.verdict.low, job.verdict.high
    if low is not None and high is not None:
        axes.plot([low, high], [place, place], color="C0", linewidth=2, solid_capstyle="butt")
    axes.plot([value], [place], "o", color="C0", markersize=5)
    axes.annotate(ratio(value), (1.0, place), xycoords=("axes fraction", "data"), xytext=(6, 0),
                  textcoords="offset points", va="center", fontsize="small")  # fmt: skip


def _scale(axes: Axes, ends: Sequence[float]) -> None:
    """A logarithmic axis with 1 in its middle, at least 5 % wide on each side."""
    reach = max(1.05, math.exp(1.05 * max(abs(math.log(end)) for end in ends)))
    axes.set_xscale("log")
    axes.set_xlim(1 / reach, reach)
    axes.set_xlabel("ratio of speed, above 1 faster than the base (logarithmic)")
    if reach < 2:
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    elif reach < 100:  # decades alone would leave the axis almost without numbers
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}" if math.isfinite(value) else ""))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", alpha=0.3)
