"""Panels on axes of matplotlib: the same pictures as `svg`, for `benchsuite plot`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from benchsuite.report.read.curves import Panel, Span
from benchsuite.report.show.svg import thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Width of a curve, in points.
LINE = 1.2


def colours(panels: Sequence[Panel]) -> dict[str, str]:
    """A colour for each name of a curve, in the order of names."""
    names = dict.fromkeys(curve.name for panel in panels for curve in panel.curves)
    return {name: f"C{place % 10}" for place, name in enumerate(names)}


def paint(axes: Axes, panel: Panel, colour_of: Mapping[str, str], windows: Iterable[Span], shade: float) -> None:
    """Draw a panel; the time of `hold`, in which training continued, is a dotted line at the last rate.

    Args:
        colour_of: a curve's name -> its colour.
        windows: the spans of time to shade; overlapping spans become darker.
        shade: the opacity of one span, 0 to 1.
    """
    named: set[str] = set()
    for curve in panel.curves:
        if not curve.points:
            continue
        times, values = zip(*thinned(curve.points), strict=True)
        colour, label = colour_of[curve.name], None if curve.name in named else curve.name
        named.add(curve.name)
        axes.plot(times, values, color=colour, linewidth=LINE, label=label)
        if curve.hold:
            axes.plot(curve.hold, [values[-1]] * 2, ":", color=colour, linewidth=LINE)
    for window in windows:
        axes.axvspan(*window, color="0.5", alpha=shade, linewidth=0)
    axes.set_ylim(0, 1.05 * panel.top if panel.top else None)
    axes.grid(alpha=0.3)
