"""Power, clock, temperature and utilisation over time (on a CPU: processors and memory), windows shaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchsuite.errors import ResultError
from benchsuite.report.read.load import Row
from benchsuite.report.read.samples import MEASURES, Sampled, read_samples, samples_panel
from benchsuite.report.show.axes import LINE, colours, paint
from benchsuite.report.show.format import one_line

if TYPE_CHECKING:
    from benchsuite.report.plots import Source

_MOST_TASKS = 500
_MOST_NAMES = 12
_SHADE = 0.12


def draw(source: Source) -> Figure:
    """A panel for each measure, a colour for each GPU (without GPUs: each task), over seconds since the first sample.

    Raises:
        ResultError: there is no folder, or it holds no samples of the tasks.
    """
    loaded = source.folder()
    rows = [row for row in loaded.rows if row.result and source.task in (None, row.task.id)]
    # The clock of another boot has another origin.
    boot = rows[0].result.timeline.clock.boot_id if rows and rows[0].result else ""
    seen: list[tuple[Row, Sampled]] = []
    for row in rows[:_MOST_TASKS]:
        if row.result and row.result.telemetry and row.result.timeline.clock.boot_id == boot:
            seen += [(row, of) for of in read_samples(loaded.path, row.result.telemetry.series)]
    kind = "device" if any(of.about.kind == "device" for _, of in seen) else "tenant"
    seen = [(row, of) for row, of in seen if of.about.kind == kind]
    measures = [m for m in MEASURES if m.kind == kind and any(m.points(of) for _, of in seen)]
    if not measures:
        what = f"task {source.task}" if source.task else "any task"
        raise ResultError(f"{loaded.path}: the folder holds no telemetry of {what}")
    start_s = min(of.samples[0].monotonic_s for _, of in seen)
    end_s = max(of.samples[-1].monotonic_s for _, of in seen)
    panels = [samples_panel(measure, seen, start_s, end_s) for measure in measures]
    figure = Figure(figsize=(9.0, 2.2 * len(panels)), layout="constrained")
    all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    colour_of = colours(panels)
    for axes, panel in zip(all_axes, panels, strict=True):
        windows = dict.fromkeys(curve.window for curve in panel.curves if curve.window)
        paint(axes, panel, colour_of, windows, _SHADE)
        axes.set_ylabel(f"{panel.title}, {panel.unit}" if panel.unit else panel.title)
    all_axes[-1].set_xlabel("seconds since the first sample")
    title = one_line(source.task or source.summary.source)
    if len(rows) > _MOST_TASKS:
        title += f", the first {_MOST_TASKS} of {len(rows):,} tasks"
    all_axes[0].set_title(title, loc="left", parse_math=False)
    if 1 < len(colour_of) <= _MOST_NAMES:
        handles = [Line2D([], [], color=colour, linewidth=LINE) for colour in colour_of.values()]
        figure.legend(handles, [one_line(name) for name in colour_of], loc="outside right upper", fontsize="small")
    return figure
