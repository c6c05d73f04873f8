"""Power, clock, temperature and utilisation over time (of tasks on a CPU: processors and memory), windows shaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchsuite.errors import ResultError
from benchsuite.report.read.load import Row
from benchsuite.report.read.samples import MEASURES, Measure, Sampled, read_samples
from benchsuite.report.show.format import one_line
from benchsuite.report.show.svg import thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

_MOST_TASKS = 500
_MOST_NAMES = 12


def draw(source: Source) -> Figure:
    """A panel a measure, a colour a GPU (of tasks without one: a task), seconds since the first sample.

    Raises:
        ResultError: no folder, or no samples were kept of what is asked for.
    """
    loaded = source.folder()
    rows = [row for row in loaded.rows if row.result and source.task in (None, row.task.id)]
    # Another boot's clock starts elsewhere.
    boot = rows[0].result.anchor.boot_id if rows and rows[0].result else ""
    seen: list[tuple[Row, Sampled]] = []
    for row in rows[:_MOST_TASKS]:
        if row.result and row.result.telemetry and row.result.anchor.boot_id == boot:
            seen += [(row, of) for of in read_samples(loaded.path, row.result.telemetry.series)]
    kind = "device" if any(of.about.kind == "device" for _, of in seen) else "tenant"
    seen = [(row, of) for row, of in seen if of.about.kind == kind]
    measures = [m for m in MEASURES if m.kind == kind and any(m.points(of) for _, of in seen)]
    if not measures:
        what = f"task {source.task}" if source.task else "any task"
        raise ResultError(f"{loaded.path}: no telemetry of {what} was kept")
    start_s = min(of.samples[0].monotonic_s for _, of in seen)
    figure = Figure(figsize=(9.0, 2.2 * len(measures)), layout="constrained")
    panels = figure.subplots(len(measures), 1, sharex=True, squeeze=False)[:, 0]
    names = list(dict.fromkeys(_name(row, of) for row, of in seen))
    colours = {name: f"C{place % 10}" for place, name in enumerate(names)}
    for axes, measure in zip(panels, measures, strict=True):
        _panel(axes, measure, seen, start_s, colours)
    panels[-1].set_xlabel("seconds since the first sample")
    title = one_line(source.task or source.summary.source)
    if len(rows) > _MOST_TASKS:
        title += f", the first {_MOST_TASKS} of {len(rows):,} tasks"
    panels[0].set_title(title, loc="left", parse_math=False)
    if 1 < len(names) <= _MOST_NAMES:
        handles = [Line2D([], [], color=colours[name], linewidth=1.1) for name in names]
        figure.legend(handles, [one_line(name) for name in names], loc="outside right upper", fontsize="small")
    return figure


def _name(row: Row, of: Sampled) -> str:
    return of.name if of.about.kind == "device" else row.task.id


def _panel(
    axes: Axes,
    measure: Measure,
    seen: Sequence[tuple[Row, Sampled]],
    start_s: float,
    colours: Mapping[str, str],
) -> None:
    for row, of in seen:
        points = thinned([(at - start_s, value) for at, value in measure.points(of)])
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), color=colours[_name(row, of)], linewidth=1.1)
    for start, end in sorted({_window(row, start_s) for row, _ in seen} - {None}, key=str):  # type: ignore[misc]
        axes.axvspan(start, end, color="0.5", alpha=0.12, linewidth=0)
    axes.set_ylabel(f"{measure.name}, {measure.unit}" if measure.unit else measure.name)
    axes.set_ylim(0, 105 if measure.unit == "%" else None)
    axes.grid(alpha=0.3)


def _window(row: Row, start_s: float) -> tuple[float, float] | None:
    window = row.window
    if window is None or window.start_s is None or window.end_s is None:
        return None
    return window.start_s - start_s, window.end_s - start_s
