"""The page's curves: throughput and telemetry of each task, as many as a page can hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from benchsuite.report.read.load import Row
from benchsuite.report.read.rates import Rates, axis, task_rates
from benchsuite.report.read.samples import MEASURES, read_samples
from benchsuite.report.show.format import number, one_line
from benchsuite.report.show.panel import Panel, rates_panel, samples_panel
from benchsuite.report.show.svg import paint

# A curve takes a kilobyte or two.
MOST_TIMELINES = 200
MOST_TELEMETRY = 64


@dataclass(frozen=True)
class Figure:
    """A picture with what stands below it."""

    name: str
    note: str
    svg: Markup


@dataclass(frozen=True)
class Group:
    """Pictures under one name; `calm`: there is nothing in them that must be seen at once."""

    name: str
    figures: tuple[Figure, ...]
    calm: bool = False


@dataclass(frozen=True)
class Figures:
    """Groups of pictures, and how many tasks with such a picture are left out for want of room."""

    groups: tuple[Group, ...]
    left_out: int = 0


def timelines(rows: Sequence[Row]) -> Figures:
    """Rates over time of each task, by job, those of one job on one scale. Where there is no room for all, tasks that
    are not ok or not steady come first."""
    drawn = [(row, rates) for row in rows if (rates := task_rates(row))]
    by_need = sorted(drawn, key=lambda pair: _calm(pair[0]))[:MOST_TIMELINES]
    chosen = {id(row) for row, _ in by_need}
    by_job: dict[str, list[tuple[Row, Rates]]] = defaultdict(list)
    for row, rates in drawn:
        if id(row) in chosen:
            by_job[row.job].append((row, rates))
    groups = []
    alone = all(len(of_job) == 1 for of_job in by_job.values())
    for job, of_job in by_job.items():
        top, beyond = axis([rates for _, rates in of_job])
        end_s = max(rates.end_s for _, rates in of_job)
        panels = [rates_panel(f"{row.task.id} on {row.task.device}", [(row, of)], top, end_s) for row, of in of_job]
        title = panels[0].unit + (f" ({beyond})" if beyond else "")
        more = f" {title}" if alone else ""
        pictures = tuple(_timeline(row, of, panel, more) for (row, of), panel in zip(of_job, panels, strict=True))
        groups.append(Group(f"{job}, {title}", pictures))
    if alone:  # a heading over each single picture would leave the page empty beside it
        groups = [Group("", tuple(figure for group in groups for figure in group.figures))] if groups else []
    return Figures(tuple(groups), len(drawn) - len(by_need))


def telemetry(folder: Path, rows: Sequence[Row]) -> Figures:
    """What was sampled while each task ran, one group a task; tasks that are not ok or not steady come first."""
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


def _timeline(row: Row, rates: Rates, panel: Panel, unit: str) -> Figure:
    if row.window and row.window.perf is not None and row.status == "ok":
        steady = "" if row.window.steady else ", not steady"
        note = f"{number(row.window.perf)}{unit}{steady}"
    else:
        reason = one_line(row.reason, 80)
        note = reason if reason.startswith(row.status) else f"{row.status}: {reason}"
    return _figure(panel.title, note, panel, f"Rates of {panel.title} over {rates.end_s:.1f} s; {note}")


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
