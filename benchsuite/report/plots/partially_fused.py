"""Rate of a fused array over the units of its models that stay unfused, relative to one model alone."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchsuite.errors import ResultError
from benchsuite.report.format import one_line
from benchsuite.report.plots import Drawn
from benchsuite.report.show.axes import GREY, LINE, caption, looks
from benchsuite.report.show.machine_name import plot_title, samples_words
from benchsuite.report.stats.partially_fused import Curve, PartiallyFused, partially_fused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchsuite.report.plots import Source
    from benchsuite.report.read.summary import Summary


def draw(source: Source) -> Figure:
    """The figure of the first job, see `draw_all`."""
    return draw_all(source)[0].figure


def draw_all(source: Source) -> list[Drawn]:
    """A figure for each job with several numbers of unfused units, with its numbers as CSV.

    Raises:
        ResultError: no job has such numbers, or the same model did not train alone.
    """
    summary = source.summary
    found = partially_fused(summary)
    if not found:
        raise ResultError(f"{summary.source}: no array with an axis unfused_units has a number to plot")
    based = [one for one in found if one.base]
    if not based:
        names = ", ".join(one_line(one.name, 40) for one in found)
        raise ResultError(
            f"{summary.source}: no rate of one model alone to divide by; run the model of {names} with sharing serial"
        )
    return [Drawn(_figure(one, summary), one.name if len(based) > 1 else "", table(one)) for one in based]


def _figure(found: PartiallyFused, summary: Summary) -> Figure:
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    look = looks(curve.name for curve in found.curves)
    most = max(unfused for curve in found.curves for unfused in curve.rates)
    for curve in found.curves:
        of = look[curve.name]
        at = sorted(curve.rates)
        middle = [found.up(curve.rates[unfused].mean) for unfused in at]
        axes.plot(at, middle, of.dash, color=of.colour, linewidth=LINE, marker="o", markersize=3.5, label=curve.words)
        low, high = ([found.up(getattr(curve.rates[unfused], end)) for unfused in at] for end in ("low", "high"))
        axes.fill_between(at, low, high, color=of.colour, alpha=0.15, linewidth=0)
        if curve.alone is not None:
            label = f"serial {curve.precision}"
            axes.plot([0, most], [found.up(curve.alone)] * 2, ":", color=of.colour, linewidth=LINE, label=label)
    axes.set_xlabel("unfused units of each model")
    axes.set_ylabel(f"{one_line(found.unit, 30)}/s of all models, over one model alone")
    axes.set_ylim(0, None)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3, color=GREY)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    caption(figure, plot_title(f"Partially fused: {one_line(found.name, 60)}", summary), list(_notes(found, summary)))
    return figure


def _notes(found: PartiallyFused, summary: Summary) -> Iterator[str]:
    yield (
        f"n: {samples_words(summary)}. Line: mean of the repeats; band: lowest to highest. 1 is one model alone, eager "
        f"and in {found.precision}. An array has {found.models} models; its unfused units are computed model by model."
    )
    if found.lost:
        yield f"Without a number: {', '.join(found.lost)}."


def table(found: PartiallyFused) -> str:
    """The rates as CSV, in items/s of all models: the units, then `fused:precision:avg`, `:min`, `:max`, and serial."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [f"fused:{curve.name}:{what}" for curve in found.curves for what in ("avg", "min", "max")]
    alone = [curve for curve in found.curves if curve.alone is not None]
    writer.writerow(["unfused_units", *heads, *(f"serial:{curve.name}:avg" for curve in alone)])
    for unfused in sorted({unfused for curve in found.curves for unfused in curve.rates}):
        cells = [cell for curve in found.curves for cell in _cells(curve, unfused)]
        writer.writerow([unfused, *cells, *(curve.alone for curve in alone)])
    return out.getvalue()


def _cells(curve: Curve, unfused: int) -> list[object]:
    rate = curve.rates.get(unfused)
    return [rate.mean, rate.low, rate.high] if rate else ["", "", ""]
