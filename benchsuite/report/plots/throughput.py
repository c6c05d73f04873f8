"""Throughput of every task over time, one panel for each job, with the measured windows shaded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from benchsuite.errors import ResultError
from benchsuite.report.read.curves import Panel
from benchsuite.report.read.rates import rates_panels
from benchsuite.report.show.axes import colours, paint
from benchsuite.report.show.format import count, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

# More panels are too large to show, and more names too small to read.
_MOST_PANELS = 40
_MOST_NAMES = 8


def draw(source: Source) -> Figure:
    """Rates of slices over seconds since `go`, a colour for each GPU; `hold` is dotted.

    Raises:
        ResultError: there is no folder, or no task in it has a slice.
    """
    loaded = source.folder()
    drawn = rates_panels(row for row in loaded.rows if source.task in (None, row.task.id))
    if not drawn:
        raise ResultError(f"{loaded.path}: no task has recorded a slice to plot")
    shown = drawn[:_MOST_PANELS]
    columns = 1 if len(shown) < 4 else 2
    lines = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(7.0 * columns, 2.8 * lines), layout="constrained")
    all_axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, panel in zip(all_axes, shown, strict=False):
        _panel(axes, panel)
    for axes in all_axes[len(shown) :]:
        axes.set_axis_off()
    if len(drawn) > len(shown):
        figure.suptitle(f"{len(shown)} of {count(len(drawn), 'job')}")
    return figure


def _panel(axes: Axes, panel: Panel) -> None:
    colour_of = colours([panel])
    windows = [curve.window for curve in panel.curves if curve.window]
    paint(axes, panel, colour_of, windows, max(0.01, 0.2 / len(panel.curves)))
    axes.set_title(one_line(panel.title), loc="left", parse_math=False)
    axes.set_title(panel.beyond, loc="right", fontsize="small")
    axes.set(xlabel="seconds since the start of measuring", ylabel=one_line(panel.unit))
    if len(colour_of) <= _MOST_NAMES:
        axes.legend(fontsize="x-small", loc="lower right")
