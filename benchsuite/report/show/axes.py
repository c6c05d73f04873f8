"""Panels on axes of matplotlib for `benchsuite plot`, with colours that most colour-blind readers can tell apart."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchsuite.report.format import one_line
from benchsuite.report.read.curves import Curve, Panel, Span, joined
from benchsuite.report.show.svg import thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Width of a curve, in points.
LINE = 1.2
# As matplotlib writes dashes.
Dash = Literal["-", "--", "-."] | tuple[float, Sequence[float]]
# The palette of Okabe and Ito (2008), with wine (Tol's muted palette) for its yellow, which is too faint on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
DASHES: tuple[Dash, ...] = ("-", "--", "-.", (0, (6, 1, 1, 1, 1, 1)))
GREY = "#9A9A9A"
# More lines with names than these cannot be told apart.
MOST_NAMES = 10
# A curve of fewer points has a mark at each: a line through a single point shows nothing.
_MARKED = 4
# Characters of a note in an inch of a figure's width.
_PER_INCH = 14


@dataclass(frozen=True)
class Look:
    """The colour and the dashes of a line; `faint` lines lie behind the others."""

    colour: str = GREY
    dash: Dash = "-"
    faint: bool = False


FAINT = Look(faint=True)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look of its own for each of up to 32 names: first the colours, then the colours with dashes."""
    found = {}
    for place, name in enumerate(dict.fromkeys(names)):
        round_, colour = divmod(place, len(PALETTE))
        found[name] = Look(PALETTE[colour], DASHES[round_ % len(DASHES)])
    return found


def paint(
    axes: Axes, panel: Panel, look_of: Callable[[Curve], Look], windows: Iterable[Span], shade: float = 0.12
) -> None:
    """Draw a panel; the time of `hold`, in which training continued, is a dotted line at the last rate.

    Args:
        look_of: the look of each curve.
        windows: the spans of time to shade; spans that overlap are shaded once.
        shade: the opacity of a span, 0 to 1.
    """
    for curve in panel.curves:
        if not curve.points:
            continue
        times, values = zip(*thinned(curve.points), strict=True)
        look = look_of(curve)
        lines = axes.plot(times, values, linestyle=look.dash, linewidth=0.6 if look.faint else LINE)
        if curve.hold:
            lines += axes.plot(curve.hold, [values[-1]] * 2, linestyle=":", linewidth=LINE)
        if len(times) < _MARKED:
            lines[0].set_marker("o")
        for line in lines:
            line.set(color=look.colour, zorder=1.5 if look.faint else 2.0)
    for window in joined(windows):
        axes.axvspan(*window, color="0.5", alpha=shade, linewidth=0)
    axes.set_ylim(0, 1.05 * panel.top if panel.top else None)
    axes.grid(alpha=0.3)


def caption(figure: Figure, title: str, notes: Sequence[str]) -> None:
    """Write the title above a figure, and each note on lines of its own below it."""
    width = round(figure.get_figwidth() * _PER_INCH)
    lines = [line for note in notes if note for line in textwrap.wrap(note, width, subsequent_indent="    ")]
    shown = "\n".join(textwrap.wrap(one_line(title, 400), round(width * 0.8)))
    for write, text, size in ((figure.suptitle, shown, "medium"), (figure.supxlabel, "\n".join(lines), "small")):
        if text:
            write(text, x=0.01, ha="left", fontsize=size).set_parse_math(False)


def plain(axes: Axes, title: str, **place: str) -> None:
    """Set a title of axes, in which a dollar sign is no mathematics."""
    axes.set_title(title, **place).set_parse_math(False)  # type: ignore[arg-type]
