"""Panels as SVG text: lines over time, spans shaded behind them. Looks come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from benchsuite.report.read.curves import Panel, joined

# In the SVG's own units, which the page scales.
WIDTH, HEIGHT = 320, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 8, 20
# More points than pixels add bytes, but show nothing more.
_POINTS = 240


@dataclass(frozen=True)
class Look:
    """The look of a curve: classes `c0` to `c7` and `d0` to `d3` of the style sheet, and the text of its tooltip."""

    colour: int = 0
    dash: int = 0
    tip: str = ""


def paint(panel: Panel, label: str, looks: Sequence[Look] = (), most_points: int = _POINTS) -> str:
    """The panel as one `<svg>` element.

    Args:
        label: the content of the picture in words, for screen readers.
        looks: one for each curve; without them all curves look alike.
        most_points: of each curve.
    """
    values = [value for curve in panel.curves for _, value in curve.points]
    top, step = scale(max(values, default=0.0) if panel.top is None else panel.top)
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def place_x(x: float) -> float:
        return _LEFT + width * min(1.0, max(0.0, x / panel.end_s if panel.end_s > 0 else 0.0))

    def place_y(y: float) -> float:
        return _TOP + height * (1 - min(1.0, max(0.0, y / top)))

    parts = [_opened(panel, label, top)]
    for look in ("window", "hold"):
        for left, right in joined(span for curve in panel.curves if (span := getattr(curve, look))):
            start, end = place_x(left), place_x(right)
            box = f'x="{start:.1f}" y="{_TOP}" width="{max(0.0, end - start):.1f}" height="{height}"'
            parts.append(f'<rect class="{look}" {box}/>')
    parts += _rules(top, step, place_y)
    for x, anchor in ((0.0, "start"), (panel.end_s, "end")):
        text = f"{x:,.1f}".removesuffix(".0") + " s" if x else "0"
        parts.append(f'<text x="{place_x(x):.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}">{text}</text>')
    for curve, of in zip(panel.curves, looks or [Look()] * len(panel.curves), strict=True):
        line = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in thinned(curve.points, most_points))
        dash = f" d{of.dash}" if of.dash else ""
        tip = f' data-tip="{escape(of.tip)}"' if of.tip else ""
        parts.append(f'<polyline class="c{of.colour}{dash}"{tip} points="{line}"/>')
    return "".join([*parts, "</svg>"])


def _opened(panel: Panel, label: str, top: float) -> str:
    """The opening tag, with the axes' ends for the script that shows the value under the pointer."""
    axes = f'data-left="{_LEFT}" data-right="{WIDTH - _RIGHT}" data-upper="{_TOP}" data-lower="{HEIGHT - _BOTTOM}"'
    ends = f'data-top="{top:g}" data-end="{panel.end_s:g}" data-unit="{escape(panel.unit)}"'
    return (
        f'<svg class="roving" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{escape(label)}" {axes} {ends}>'
    )


def _rules(top: float, step: float, place_y: Callable[[float], float]) -> Iterator[str]:
    for count in range(round(top / step) + 1):
        y = place_y(count * step)
        yield f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{short(count * step)}</text>'


def scale(y_top: float) -> tuple[float, float]:
    """The end of an axis from 0, and the step of its two to four lines: 1, 2, 2.5 or 5 times a power of ten."""
    if not 1e-300 < y_top < 1e300:
        return 1.0, 0.5
    rough = y_top / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    return step * math.ceil(y_top / step - 1e-9), step


def short(value: float) -> str:
    """A number in a few characters: 1.2k, 3.5M."""
    for limit, letter in ((1e12, ""), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value:.3g}" if not letter else f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def thinned(points: Sequence[tuple[float, float]], most: int = _POINTS) -> Sequence[tuple[float, float]]:
    """At most `most` points: the lowest and highest of each stretch, so that every dip stays."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / (most / 2))
    kept: list[tuple[float, float]] = []
    for at in range(0, len(points), size):
        part = points[at : at + size]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept
