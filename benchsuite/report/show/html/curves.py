"""The page's curves over time: one panel a job with a line for each task, and one for each measure of its telemetry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from benchsuite.report.format import number, one_line
from benchsuite.report.read.curves import Curve, Panel
from benchsuite.report.read.load import Row
from benchsuite.report.read.rates import rates_curve, rates_panels
from benchsuite.report.read.samples import MEASURES, Measure, Sampled, samples_of, samples_panel
from benchsuite.report.show.html.legend import Key, looks_of
from benchsuite.report.show.svg import paint

# A curve takes a kilobyte or two.
MOST_TIMELINES = 200
MOST_TELEMETRY = 64
# The points of all curves of a section together, and the fewest and most of one curve.
_MOST_POINTS, _FEWEST, _FULL = 24_000, 60, 240


@dataclass(frozen=True)
class Figure:
    """A picture with its caption and its legend."""

    name: str
    note: str
    svg: Markup
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Group:
    """Pictures under one name; `calm`: their tasks are ok and steady, so the page may fold them."""

    name: str
    figures: tuple[Figure, ...]
    calm: bool = False


@dataclass(frozen=True)
class Figures:
    """Groups of pictures, and the number of tasks left out to keep the page small."""

    groups: tuple[Group, ...]
    left_out: int = 0


def timelines(rows: Sequence[Row]) -> Figures:
    """Rates over time, one panel a job with one line for each task. If there are too many tasks, those that are not ok
    or not steady come first."""
    drawn = [row for row in rows if rates_curve(row)]
    chosen = {id(row) for row in sorted(drawn, key=_calm)[:MOST_TIMELINES]}
    panels = rates_panels(row for row in drawn if id(row) in chosen)
    points = _points(sum(len(panel.curves) for panel in panels))
    figures = tuple(_timeline(panel, points) for panel in panels)
    return Figures((Group("", figures),) if figures else (), len(drawn) - len(chosen))


def telemetry(folder: Path, rows: Sequence[Row]) -> Figures:
    """The samples of each job, one panel for each measure; tasks that are not ok or not steady come first."""
    kept = [row for row in rows if row.result and row.result.telemetry and row.result.telemetry.series]
    by_need = sorted(kept, key=_calm)[:MOST_TELEMETRY]
    chosen = {id(row) for row in by_need}
    by_job: dict[str, list[tuple[Row, list[Sampled]]]] = defaultdict(list)
    for row in kept:
        if id(row) in chosen and (series := _series(folder, row)):
            by_job[row.task.row].append((row, series))
    points = _points(len(MEASURES) * len(chosen))
    groups = []
    for job, found in by_job.items():
        figures = tuple(figure for measure in MEASURES for figure in _sampled(job, measure, found, points))
        if figures:
            groups.append(Group(one_line(job), figures, all(_calm(row) for row, _ in found)))
    return Figures(tuple(sorted(groups, key=lambda group: group.calm)), len(kept) - len(by_need))


def _calm(row: Row) -> bool:
    return row.status == "ok" and row.window is not None and row.window.steady


def _points(curves: int) -> int:
    """The most points of each of so many curves."""
    return max(_FEWEST, min(_FULL, _MOST_POINTS // max(1, curves)))


def _series(folder: Path, row: Row) -> list[Sampled]:
    assert row.result is not None
    return samples_of(folder, row.result)


def _timeline(panel: Panel, points: int) -> Figure:
    note = panel.unit + (f" ({panel.beyond})" if panel.beyond else "")
    bad = sum(curve.row.status != "ok" for curve in panel.curves)
    unsteady = sum(curve.row.status == "ok" and not _calm(curve.row) for curve in panel.curves)
    remarks = [f"{bad} not ok"] if bad else []
    remarks += [f"{unsteady} not steady"] if unsteady else []
    caption = ", ".join([note, *remarks])
    return _figure(panel.title, caption, panel, lambda curve: _outcome(curve, panel.unit), points)


def _outcome(curve: Curve, unit: str) -> str:
    """The rate of a task, or why it has none."""
    row = curve.row
    if row.window and row.window.perf is not None and row.status == "ok":
        return f"{number(row.window.perf)} {unit}{'' if row.window.steady else ', not steady'}"
    reason = one_line(row.reason, 80)
    return reason if reason.startswith(row.status) else f"{row.status}: {reason}"


def _sampled(job: str, measure: Measure, found: Sequence[tuple[Row, list[Sampled]]], points: int) -> Iterator[Figure]:
    """The panel of a measure over all tasks of a job, each from its own first sample on; none without two values."""
    curves: list[Curve] = []
    end_s = 0.0
    for row, series in found:
        start_s = min(of.samples[0].monotonic_s for of in series)
        until_s = max(of.samples[-1].monotonic_s for of in series)
        for of in series:
            if of.about.kind == measure.kind:
                (curve,) = samples_panel(measure, [(row, of)], start_s, until_s).curves
                if len(curve.points) > 1:
                    curves.append(replace(curve, name=of.name if measure.kind == "device" else row.task.device))
        end_s = max(end_s, until_s - start_s)
    values = [value for curve in curves for _, value in curve.points]
    if values:
        top = 100.0 if measure.unit == "%" else None
        panel = Panel(measure.name, measure.unit, tuple(curves), end_s, top)
        note = _range(values, measure.unit)
        yield _figure(
            measure.name, note, panel, lambda curve: _range([y for _, y in curve.points], measure.unit), points, job
        )


def _range(values: Sequence[float], unit: str) -> str:
    low, high = (f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in (min(values), max(values)))
    return f"{low} to {high} {unit}".rstrip()


def _figure(
    name: str, note: str, panel: Panel, outcome: Callable[[Curve], str], points: int, job: str | None = None
) -> Figure:
    drawn, keys = looks_of(panel.curves)
    tips = [f"{_named(curve)}: {outcome(curve)}" for curve in panel.curves]
    looks = [replace(of, tip=tip) for of, tip in zip(drawn, tips, strict=True)]
    label = f"{name} of {job}" if job else name
    svg = paint(panel, f"{label} over {panel.end_s:.1f} s, {len(tips)} lines; {note}", looks, points)
    return Figure(one_line(name), note, Markup(svg), keys)  # noqa: S704 - paint escapes


def _named(curve: Curve) -> str:
    copy = f", copy {curve.row.task.copy}" if curve.row.task.copy else ""
    return f"{curve.name}, repeat {curve.row.task.repeat}{copy}"
