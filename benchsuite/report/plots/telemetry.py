"""Power, clock, temperature and use of each GPU, CPUs and memory of each task, over time; windows are shaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchsuite.errors import ResultError
from benchsuite.report.format import count, few, one_line
from benchsuite.report.read.curves import Curve, Panel, Span
from benchsuite.report.read.load import Loaded, Row
from benchsuite.report.read.samples import MEASURES, Sampled, samples_of, samples_panel
from benchsuite.report.show.axes import FAINT, LINE, MOST_NAMES, Look, caption, looks, paint, plain
from benchsuite.report.show.machine_name import plot_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

_MOST_TASKS = 500
_MOST_LANES = 60
_NAMED = 20
_LANE_INCHES = 0.19
_Series = list[tuple[Row, Sampled]]


def draw(source: Source) -> Figure:
    """A lane for each job with its tasks, and a panel for each measure, over seconds since the first sample.

    A colour is a GPU in the panels of GPUs, and a task, or else a job, in the others.

    Raises:
        ResultError: there is no folder, or it holds no samples of the tasks.
    """
    loaded = source.folder()
    rows = [row for row in loaded.rows if row.result and source.task in (None, row.task.id)]
    series, notes = _read(loaded, rows)
    measures = [m for m in MEASURES if any(of.about.kind == m.kind and m.points(of) for _, of in series)]
    if not measures:
        what = f"task {source.task}" if source.task else "any task"
        raise ResultError(f"{loaded.path}: the folder holds no telemetry of {what}")
    start_s = min(of.samples[0].monotonic_s for _, of in series)
    end_s = max(of.samples[-1].monotonic_s for _, of in series)
    of_kind = {kind: [(row, of) for row, of in series if of.about.kind == kind] for kind in ("device", "tenant")}
    panels = [(measure.kind, samples_panel(measure, of_kind[measure.kind], start_s, end_s)) for measure in measures]
    lanes = _lanes(series, start_s) if len({row.task.id for row, _ in series}) > 1 else {}
    heights = [*([0.35 + _LANE_INCHES * min(len(lanes), _MOST_LANES)] if lanes else []), *[1.9] * len(panels)]
    figure = Figure(figsize=(11.0, 1.0 + sum(heights)), layout="constrained")
    all_axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    gpus, tasks = _gpu_looks(of_kind["device"], notes), _task_looks(of_kind["tenant"], notes)
    if lanes:
        _paint_lanes(all_axes[0], lanes, notes)
    for axes, (kind, panel) in zip(all_axes[len(heights) - len(panels) :], panels, strict=True):
        _panel(axes, panel, (gpus if kind == "device" else tasks)[0])
    all_axes[-1].set_xlabel("seconds since the first sample")
    _legends(figure, gpus[1] if of_kind["device"] else {}, tasks[1] if of_kind["tenant"] else {})
    caption(figure, plot_title(f"Telemetry of {one_line(source.task or 'all tasks')}", source.summary), notes)
    return figure


def _read(loaded: Loaded, rows: Sequence[Row]) -> tuple[_Series, list[str]]:
    """The series of the tasks, and notes on the tasks without any."""
    # The clock of another boot has another origin.
    boot = rows[0].result.timeline.clock.boot_id if rows and rows[0].result else ""
    other = [row for row in rows if row.result and row.result.timeline.clock.boot_id != boot]
    own = [row for row in rows if row not in other]
    series, without = [], []
    for row in own[:_MOST_TASKS]:
        found = samples_of(loaded.path, row.result) if row.result else []
        series += [(row, of) for of in found]
        without += [] if found else [row]
    notes = [f"n: {count(len(own[:_MOST_TASKS]) - len(without), 'task')} with samples."]
    reasons = (
        ("without samples", without),
        ("measured after another start of the machine", other),
        (f"beyond the first {_MOST_TASKS} tasks", own[_MOST_TASKS:]),
    )
    notes += [f"Left out, {why}: {', '.join(few((r.task.id for r in of), _NAMED))}." for why, of in reasons if of]
    return series, notes


_Lane = list[tuple[Span, Span | None]]


def _lanes(series: _Series, start_s: float) -> dict[str, _Lane]:
    """Job -> the time of the samples and the window of each of its tasks."""
    found: dict[str, dict[str, tuple[Span, Span | None]]] = defaultdict(dict)
    for row, of in series:
        window = row.window
        span = (of.samples[0].monotonic_s - start_s, of.samples[-1].monotonic_s - start_s)
        inner = None
        if window and window.start_s is not None and window.end_s is not None:
            inner = (window.start_s - start_s, window.end_s - start_s)
        found[row.task.row].setdefault(row.task.id, (span, inner))
    return {job: list(tasks.values()) for job, tasks in found.items()}


def _paint_lanes(axes: Axes, lanes: dict[str, _Lane], notes: list[str]) -> None:
    shown = list(lanes.items())[:_MOST_LANES]
    for place, (_, tasks) in enumerate(shown):
        outer = [(start, max(end - start, 0.01)) for (start, end), _ in tasks]
        inner = [(window[0], window[1] - window[0]) for _, window in tasks if window]
        axes.broken_barh(outer, (place - 0.3, 0.6), color="0.82", linewidth=0)
        axes.broken_barh(inner, (place - 0.3, 0.6), color="0.35", linewidth=0)
    axes.set_yticks(range(len(shown)), [one_line(job, 30) for job, _ in shown], fontsize="x-small")
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
    plain(axes, "when the tasks of each job ran (dark: the window)", loc="left", fontsize="small")
    if left := list(lanes)[_MOST_LANES:]:
        notes.append(f"Jobs without a lane of their own: {', '.join(few(left, _NAMED))}.")


def _panel(axes: Axes, panel: Panel, look_of: Callable[[Curve], Look]) -> None:
    paint(axes, panel, look_of, [curve.window for curve in panel.curves if curve.window])
    unit = panel.unit or ("CPUs" if panel.title.startswith("CPUs") else "")
    plain(axes, panel.title, loc="left", fontsize="small")
    axes.set_ylabel(unit)


_Looks = tuple[Callable[[Curve], Look], dict[str, Look]]


def _gpu_looks(series: _Series, notes: list[str]) -> _Looks:
    rows: dict[str, list[Row]] = defaultdict(list)
    for row, of in series:
        rows[of.name].append(row)
    by_name = _worst(rows, "GPUs", notes)
    return lambda curve: by_name.get(curve.name, FAINT), _named(by_name, len(rows), "GPUs")


def _task_looks(series: _Series, notes: list[str]) -> _Looks:
    """A look for each task; for each job if there are many tasks."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row, _ in series:
        rows[row.task.id].append(row)
    if len(rows) <= MOST_NAMES:
        by_task = looks(rows)
        return lambda curve: by_task.get(curve.row.task.id, FAINT), by_task
    jobs: dict[str, list[Row]] = defaultdict(list)
    for row, _ in series:
        jobs[row.task.row].append(row)
    by_job = _worst(jobs, "jobs", notes)
    notes.append("In the panels of CPUs and memory, the tasks of a job share its colour.")
    return lambda curve: by_job.get(curve.row.task.row, FAINT), _named(by_job, len(jobs), "jobs")


def _worst(rows: dict[str, list[Row]], what: str, notes: list[str]) -> dict[str, Look]:
    """A look for each name; of many names, for those with most tasks that are not ok or not steady."""
    if len(rows) <= MOST_NAMES:
        return looks(rows)

    def rank(name: str) -> tuple[int, int]:
        of = rows[name]
        return -sum(row.status != "ok" for row in of), -sum(not (row.window and row.window.steady) for row in of)

    chosen = set(sorted(rows, key=rank)[: MOST_NAMES - 1])
    others = [one_line(name, 40) for name in rows if name not in chosen]
    notes.append(
        f"{len(chosen)} of {len(rows)} {what} have a colour: those with most tasks that are not ok or not steady. "
        f"Grey: {', '.join(few(others, _NAMED))}."
    )
    return looks(name for name in rows if name in chosen)


def _named(look_of: dict[str, Look], number: int, what: str) -> dict[str, Look]:
    others = number - len(look_of)
    return {**look_of, **({f"{others} other {what}": FAINT} if others else {})}


def _legends(figure: Figure, gpus: dict[str, Look], tasks: dict[str, Look]) -> None:
    """One legend: the GPUs, then the tasks or jobs, then the window."""
    handles: list[Line2D | Patch] = list(_handles(gpus))
    if gpus and tasks:
        handles.append(Line2D([], [], linestyle="none", label="CPUs and memory:"))
    handles += _handles(tasks)
    handles.append(Patch(color="0.5", alpha=0.2, linewidth=0, label="window"))
    legend = figure.legend(handles=handles, loc="outside right upper", fontsize="small", frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _handles(look_of: dict[str, Look]) -> Iterator[Line2D]:
    for name, look in look_of.items():
        yield Line2D([], [], color=look.colour, linestyle=look.dash, linewidth=LINE, label=one_line(name, 30))
