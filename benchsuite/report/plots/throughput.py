"""Throughput of every task over time, a panel a job, with the windows shaded that the figures rest on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from benchsuite.errors import ResultError
from benchsuite.report.read.load import Row
from benchsuite.report.read.rates import Rates, axis, task_rates
from benchsuite.report.show.axes import colours, paint
from benchsuite.report.show.format import count, one_line
from benchsuite.report.show.panel import rates_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

# More panels make a picture that nothing can show, more names one that nobody reads.
_MOST_PANELS = 40
_MOST_NAMES = 8


def draw(source: Source) -> Figure:
    """Rates of slices over seconds since `go`, a colour a GPU; what was trained on as `hold` is dotted.

    Raises:
        ResultError: no folder, or no task in it has a slice.
    """
    loaded = source.folder()
    by_job: dict[str, list[tuple[Row, Rates]]] = defaultdict(list)
    for row in loaded.rows:
        if source.task in (None, row.task.id) and (rates := task_rates(row)):
            by_job[row.job].append((row, rates))
    if not by_job:
        raise ResultError(f"{loaded.path}: no task has recorded a slice to plot")
    shown = list(by_job.items())[:_MOST_PANELS]
    columns = 1 if len(shown) < 4 else 2
    lines = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(7.0 * columns, 2.8 * lines), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, (job, tasks) in zip(panels, shown, strict=False):
        _panel(axes, job, tasks)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    if len(by_job) > len(shown):
        figure.suptitle(f"{len(shown)} of {count(len(by_job), 'job')}")
    return figure


def _panel(axes: Axes, job: str, tasks: Sequence[tuple[Row, Rates]]) -> None:
    every = [rates for _, rates in tasks]
    top, beyond = axis(every)
    panel = rates_panel(one_line(job), tasks, top, max(rates.end_s for rates in every))
    colour_of = colours([panel])
    paint(axes, panel, colour_of, max(0.01, 0.2 / len(tasks)))
    axes.set_title(panel.title, loc="left", parse_math=False)
    axes.set_title(beyond, loc="right", fontsize="small")
    axes.set(xlabel="seconds since the start of measuring", ylabel=one_line(panel.unit))
    if len(colour_of) <= _MOST_NAMES:
        axes.legend(fontsize="x-small", loc="lower right")
