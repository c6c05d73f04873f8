"""Rate of all models on a GPU over their number, for each way of sharing, relative to one model alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchsuite.errors import ResultError
from benchsuite.report.format import one_line, ratio
from benchsuite.report.plots import Drawn
from benchsuite.report.show.axes import DASHES, GREY, LINE, PALETTE, Dash, caption
from benchsuite.report.show.machine_name import plot_title, samples_words
from benchsuite.report.stats.sharing import PRECISIONS, SERIAL, Line, Point, Shared, shared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source
    from benchsuite.report.read.summary import Summary

# A colour for each way, and dashes for each precision.
_COLOURS = dict(zip((SERIAL, "fused", "concurrent", "mps", "mig"), PALETTE, strict=False))
# The line of serial: plain, compiled and in a CUDA graph differ in their width.
_WIDTHS = {"none": LINE, "default": 1.8 * LINE}
_GRAPHED = 2.6 * LINE


def draw(source: Source) -> Figure:
    """The figure of the first model, see `draw_all`."""
    return draw_all(source)[0].figure


def draw_all(source: Source) -> list[Drawn]:
    """A figure for each model whose copies share a GPU, with its numbers as CSV.

    Raises:
        ResultError: no model has a rate, or none of them trained alone.
    """
    summary = source.summary
    models = [model for model in shared(summary) if any(map(model.best, model.lines))]
    if not models:
        raise ResultError(f"{summary.source}: no job with a way of sharing has a number to plot")
    based = [model for model in models if model.base]
    if not based:
        names = ", ".join(one_line(model.name, 40) for model in models)
        raise ResultError(f"{summary.source}: no rate of one model alone to divide by; add sharing serial to {names}")
    return [Drawn(_figure(model, summary), model.name if len(based) > 1 else "", table(model)) for model in based]


def _figure(model: Shared, summary: Summary) -> Figure:
    figure = Figure(figsize=(8.0, 5.4), layout="constrained")
    axes = figure.subplots()
    most = max(point.copies for points in model.lines.values() for point in points)
    for line in sorted(model.lines, key=_order):
        _draw(axes, model, line, most)
    axes.set_xlabel("models on the GPU")
    axes.set_ylabel(f"{one_line(model.unit, 30)}/s of all models, over one model alone")
    axes.set_ylim(0, None)
    margin = 0.02 * (most - 1) if most > 1 else 0.5  # markers at both ends stay whole
    axes.set_xlim(1 - margin, most + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3, color=GREY)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    caption(figure, plot_title(f"Sharing a GPU: {one_line(model.name, 60)}", summary), list(_notes(model, summary)))
    return figure


def _order(line: Line) -> tuple[int, str, str]:
    ways = [*_COLOURS]
    return (ways.index(line.way) if line.way in ways else len(ways)), line.precision, line.compile


def _dash(precision: str) -> Dash:
    return DASHES[PRECISIONS.index(precision) % len(DASHES)] if precision in PRECISIONS else DASHES[0]


def _draw(axes: Axes, model: Shared, line: Line, most: int) -> None:
    """A line with a band from the lowest to the highest repeat; one of `serial` runs over all numbers of models."""
    points = [point for point in model.lines[line] if point.runs]
    if not points:
        return
    serial = line.way == SERIAL
    at = [1, max(most, 2)] if serial else [point.copies for point in points]
    drawn = [points[0]] * 2 if serial else points
    low, middle, high = zip(*(_spread(model, point) for point in drawn), strict=True)
    colour = _COLOURS.get(line.way, GREY)
    width = _WIDTHS.get(line.compile, _GRAPHED)
    axes.plot(
        at,
        middle,
        color=colour,
        linestyle=_dash(line.precision),
        linewidth=width,
        marker=None if serial else "o",
        markersize=3.5,
        alpha=1.0 if line.compile == "none" else 0.65,
        label=line.words,
    )
    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)


def _spread(model: Shared, point: Point) -> tuple[float, float, float]:
    """The lowest, the mean and the highest speed-up of the repeats."""
    ups = [up for rate in point.runs.values() if (up := model.speed_up(rate)) is not None]
    return min(ups), model.speed_up(point.rate) or 0.0, max(ups)


def _notes(model: Shared, summary: Summary) -> Iterator[str]:
    yield (
        f"n: {samples_words(summary)}. Line: mean of the repeats; band: lowest to highest. 1 is {model.alone}. "
        "Serial lines hold for a single model at a time."
    )
    best = [
        f"{line.words} {ratio(model.speed_up(point.rate))} with {point.copies}"
        for line in sorted(model.lines, key=_order)
        if line.way != SERIAL and (point := model.best(line))
    ]
    if best:
        yield f"Best: {'; '.join(best)}."
    lost = [
        f"{line.words} {point.copies} ({point.state})"
        for line, points in model.lines.items()
        for point in points
        if not point.runs
    ]
    if lost:
        yield f"Without a number: {', '.join(lost)}."


def table(model: Shared) -> str:
    """The rates of a model as CSV, in items/s of all models on a GPU; only numbers that were measured have a row.

    The columns are those of HFTA's summaries: the index B, then for each way and precision one column a repeat
    (`way:precision:run`), and `way:precision:avg`, `:min` and `:max`.
    """
    lines = sorted(model.lines, key=_order)
    runs = {line: sorted({run for point in model.lines[line] for run in point.runs}) for line in lines}
    numbers = sorted({point.copies for points in model.lines.values() for point in points if point.runs})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["B", *(f"{line.mode}:{what}" for line in lines for what in (*runs[line], "avg", "min", "max"))])
    for number in numbers:
        row: list[object] = [number]
        for line in lines:
            row += _cells(next((p for p in model.lines[line] if p.copies == number), None), runs[line])
        writer.writerow(row)
    return out.getvalue()


def _cells(point: Point | None, runs: Sequence[int]) -> list[object]:
    if point is None or not point.runs:
        return [""] * (len(runs) + 3)
    rates = [*point.runs.values()]
    return [*(point.runs.get(run, "") for run in runs), point.rate, min(rates), max(rates)]
