"""Rate, memory and use of the GPU over the batch size, with the knee and the sizes that do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchsuite.errors import ResultError
from benchsuite.report.format import few, one_line, percent
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.axes import GREY, LINE, Look, caption, looks, plain
from benchsuite.report.show.machine_name import plot_title, samples_words
from benchsuite.report.show.svg import short
from benchsuite.report.stats.sweeps import KNEE, Point, Sweep, sweeps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

# More lines cannot be told apart.
_MOST_SWEEPS = 24
_NAMED = 12
# Batch sizes with a smaller ratio have no room for both of their labels.
_LEAST_RATIO = 1.45


@dataclass(frozen=True)
class _Panel:
    """A figure over the batch size; `top` is the end of its axis, None: that of the data."""

    title: str
    of: Callable[[Point], float | None]
    top: float | None = None


_PANELS = (
    _Panel("rate, % of the sweep's best", lambda point: _hundred(point.of_best), 105),
    _Panel("peak memory, GiB", lambda point: None if point.memory_bytes is None else point.memory_bytes / 2**30),
    _Panel("time with a kernel, %", lambda point: point.use.gpu_percent, 105),
    _Panel("busy SMs, %", lambda point: point.use.sm_percent, 105),
    _Panel("tensor cores, % of peak", lambda point: point.use.tensor_percent, 105),
    _Panel("memory bandwidth, % of peak", lambda point: point.use.dram_percent, 105),
    _Panel("items per joule", lambda point: point.use.items_per_joule),
)


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share


def draw(source: Source) -> Figure:
    """Small multiples over one axis of batch sizes: one line for each sweep.

    With a single sweep the first panel shows its rate in items/s. Panels that no run records are left out.

    Raises:
        ResultError: no job sweeps the batch size with a rate.
    """
    summary = source.summary
    found = [sweep for sweep in sweeps(summary) if any(point.rate is not None for point in sweep.points)]
    if not found:
        raise ResultError(f"{summary.source}: no job with an axis batch_size has a number to plot")
    shown = found[:_MOST_SWEEPS]
    panels = [panel for panel in _panels(shown) if any(_line(sweep, panel) for sweep in shown)]
    places = len(panels) + (len(shown) > 1)  # one for the legend
    columns = min(2, places)
    lines = math.ceil(places / columns)
    figure = Figure(figsize=(5.4 * columns, 1.3 + 2.8 * lines), layout="constrained")
    look = looks(sweep.job for sweep in shown)
    every = list(figure.subplots(lines, columns, squeeze=False, sharex=True).flat)
    for axes, panel in zip(every, panels, strict=False):
        _draw(axes, panel, shown, look)
    for axes in every[len(panels) :]:
        axes.set_axis_off()
    for axes in every[max(0, len(panels) - columns) : len(panels)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("batch size")
    if len(shown) > 1:
        _legend(every[len(panels)], every[0])
    caption(figure, plot_title("Batch sizes", summary), list(_notes(summary, found, shown)))
    return figure


def _panels(shown: Sequence[Sweep]) -> Iterator[_Panel]:
    """The panels; rates of one sweep need not be relative to compare."""
    if len(shown) == 1:
        yield _Panel(f"{one_line(shown[0].unit, 40)}/s", lambda point: point.rate)
        yield from _PANELS[1:]
    else:
        yield from _PANELS


def _line(sweep: Sweep, panel: _Panel) -> list[tuple[int, float]]:
    return [(point.batch, value) for point in sweep.points if (value := panel.of(point)) is not None]


def _legend(axes: Axes, lines: Axes) -> None:
    """The names of the lines of a panel, in the place of another panel."""
    handles = lines.get_legend_handles_labels()[0]
    for text in axes.legend(handles=handles, loc="upper left", fontsize="small", title="job").get_texts():
        text.set_parse_math(False)


def _draw(axes: Axes, panel: _Panel, shown: Sequence[Sweep], look: dict[str, Look]) -> None:
    without = [sweep.job for sweep in shown if any(point.oom for point in sweep.points)]
    for sweep in shown:
        of, line = look[sweep.job], _line(sweep, panel)
        drawn: dict[str, Any] = {
            "linestyle": of.dash,
            "linewidth": LINE,
            "color": of.colour,
            "label": one_line(sweep.job, 40),
        }
        axes.plot([at for at, _ in line], [value for _, value in line], marker="o", markersize=3.5, **drawn)
        for at, value in line:
            if at == sweep.knee:
                axes.plot(at, value, "o", markersize=9, markerfacecolor="none", markeredgecolor=of.colour)
        for point in sweep.points:
            if point.oom:
                height = 0.03 + 0.05 * without.index(sweep.job)  # side by side: several jobs fail at one size
                axes.plot(point.batch, height, "x", color=of.colour, transform=axes.get_xaxis_transform())
    plain(axes, panel.title, loc="left", fontsize="medium")
    axes.set_ylim(0, panel.top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    _sizes(axes, sorted({point.batch for sweep in shown for point in sweep.points}))
    axes.grid(alpha=0.3, color=GREY)


def _sizes(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis with a tick at each batch size that is far enough from the next larger one."""
    ticks = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if ticks[-1] >= size * _LEAST_RATIO:
            ticks.append(size)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.set_xlim(sizes[0] / 1.15, sizes[-1] * 1.15)


def _notes(summary: Summary, found: Sequence[Sweep], shown: Sequence[Sweep]) -> Iterator[str]:
    yield (
        f"n: {samples_words(summary)}. Ring: the knee, the smallest batch with at least {percent(KNEE, 0)} of the best "
        "rate, if a larger one ran. Cross at the axis: out of memory."
    )
    knees = [f"{one_line(sweep.job, 40)} {sweep.knee}" for sweep in shown if sweep.knee is not None]
    if knees:
        yield f"Knees: {', '.join(few(knees, _NAMED))}."
    lost = [
        f"{one_line(sweep.job, 40)} {', '.join(str(point.batch) for point in sweep.points if point.oom)}"
        for sweep in shown
        if any(point.oom for point in sweep.points)
    ]
    if lost:
        yield f"Out of memory: {'; '.join(few(lost, _NAMED))}."
    other = [f"{one_line(s.job, 40)} {point.batch} ({point.state})" for s in shown for point in s.points if point.state]
    if other:
        yield f"Without a number: {', '.join(few(other, _NAMED))}."
    left = [one_line(sweep.job, 40) for sweep in found[len(shown) :]]
    if left:
        yield f"{len(shown)} of {len(found)} jobs; left out: {', '.join(few(left, _NAMED))}."
