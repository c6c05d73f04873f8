"""The page's curves: throughput and telemetry of each task, up to a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from benchsuite.report.read.curves import Curve, Panel
from benchsuite.report.read.load import Row
from benchsuite.report.read.rates import rates_curve, rates_panels
from benchsuite.report.read.samples import MEASURES, read_samples, samples_panel
from benchsuite.report.show.format import number, one_line
from benchsuite.report.show.svg import paint

# A curve takes a kilobyte or two.
MOST_TIMELINES = 200
MOST_TELEMETRY = 64


@dataclass(frozen=True)
class Figure:
    """A picture with its caption."""

    name: str
    note: str
    svg: Markup


@dataclass(frozen=True)
class Group:
    """Pictures under one name; `calm`: their task is ok and steady, so the page may fold them."""

    name: str
    figures: tuple[Figure, ...]
    calm: bool = False


@dataclass(frozen=True)
class Figures:
    """Groups of pictures, and the number of tasks left out to keep the page small."""

    groups: tuple[Group, ...]
    left_out: int = 0


def timelines(rows: Sequence[Row]) -> Figures:
    """Rates over time of each task, by job, on one scale for each job. If there are too many tasks, those that are not
    ok or not steady come first."""
    drawn = [row for row in rows if rates_curve(row)]
    chosen = {id(row) for row in sorted(drawn, key=_calm)[:MOST_TIMELINES]}
    panels = rates_panels(row for row in drawn if id(row) in chosen)
    alone = all(len(panel.curves) == 1 for panel in panels)
    groups = []
    for panel in panels:
        unit = panel.unit + (f" ({panel.beyond})" if panel.beyond else "")
        pictures = tuple(_timeline(panel, curve, f" {unit}" if alone else "") for curve in panel.curves)
        groups.append(Group(f"{panel.title}, {unit}", pictures))
    if alone:  # a heading over each single picture would leave the page empty beside it
        groups = [Group("", tuple(figure for group in groups for figure in group.figures))] if groups else []
    return Figures(tuple(groups), len(drawn) - len(chosen))


def telemetry(folder: Path, rows: Sequence[Row]) -> Figures:
    """The samples of each task, one group for each task; tasks that are not ok or not steady come first."""
    kept = [row for row in rows if row.result and row.result.telemetry and row.result.telemetry.series]
    by_need = sorted(kept, key=_calm)[:MOST_TELEMETRY]
    chosen = {id(row) for row in by_need}
    groups = []
    for row in kept:
        pictures = tuple(_sampled(folder, row)) if id(row) in chosen else ()
        if pictures:
            groups.append(Group(f"{row.task.id} on {row.task.device}", pictures, _calm(row)))
    return Figures(tuple(groups), len(kept) - len(by_need))


def _calm(row: Row) -> bool:
    return row.status == "ok" and row.window is not None and row.window.steady


def _timeline(panel: Panel, curve: Curve, unit: str) -> Figure:
    row = curve.row
    if row.window and row.window.perf is not None and row.status == "ok":
        steady = "" if row.window.steady else ", not steady"
        note = f"{number(row.window.perf)}{unit}{steady}"
    else:
        reason = one_line(row.reason, 80)
        note = reason if reason.startswith(row.status) else f"{row.status}: {reason}"
    name = f"{row.task.id} on {row.task.device}"
    return _figure(name, note, replace(panel, curves=(curve,)), f"Rates of {name} over {curve.end_s:.1f} s; {note}")


def _sampled(folder: Path, row: Row) -> Iterator[Figure]:
    assert row.result is not None and row.result.telemetry is not None
    series = read_samples(folder, row.result.telemetry.series)
    start_s = min((of.samples[0].monotonic_s for of in series), default=0.0)
    end_s = max((of.samples[-1].monotonic_s for of in series), default=0.0)
    for of in series:
        for measure in [measure for measure in MEASURES if measure.kind == of.about.kind]:
            panel = samples_panel(measure, [(row, of)], start_s, end_s)
            values = [value for _, value in panel.curves[0].points]
            if len(values) > 1:
                low, high = (f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in (min(values), max(values)))
                note = f"{low} to {high} {panel.unit}".rstrip()
                yield _figure(f"{of.name}: {panel.title}", note, panel, f"{panel.title} of {of.name}: {note}")


def _figure(name: str, note: str, panel: Panel, label: str) -> Figure:
    return Figure(name, note, Markup(paint(panel, label)))  # noqa: S704 - paint escapes
