"""Small multiples of scaling: the rate of each progression over its number of GPUs, beside the ideal line."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from markupsafe import Markup

from benchsuite.report.format import number, one_line, percent
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.html.curves import Figure
from benchsuite.report.show.html.legend import Key
from benchsuite.report.show.svg import HEIGHT, WIDTH, scale, short
from benchsuite.report.stats.scaling import Curve, Point, curves

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 14, 22
_KEYS = (Key("c0", "measured"), Key("plain d1", "ideal (linear)"))
# More labels on the axis overlap.
_MOST_LABELS = 9


def scaling_figures(summary: Summary) -> tuple[Figure, ...]:
    """One picture for each progression with a rate; a progression on a CPU counts ranks."""
    many = "ranks" if any("ranks" in job.axes for job in summary.jobs) else "GPUs"
    return tuple(_figure(curve, many) for curve in curves(summary) if any(point.total for point in curve.points))


def _figure(curve: Curve, many: str) -> Figure:
    last = max((point for point in curve.points if point.total), key=lambda point: point.gpus)
    kept = f"{percent(last.efficiency, 0)} of ideal at {last.gpus} {many}" if last.efficiency else "no rate of one GPU"
    note = f"{curve.unit}/s over {many}; {kept}"
    keys = tuple(Key(key.look, key.name.replace("GPU", "rank")) for key in _KEYS) if many == "ranks" else _KEYS
    svg = "".join(_parts(curve, many, f"Scaling of {curve.job}: {note}"))
    return Figure(one_line(curve.job), note, Markup(svg), keys)  # noqa: S704 - all text is escaped


def _parts(curve: Curve, many: str, label: str) -> Iterator[str]:
    drawn = [point for point in curve.points if point.total is not None]
    most = max(point.gpus for point in curve.points)
    single = next((point.total for point in drawn if point.gpus == 1), None)
    top, step = scale(max([*(point.total or 0.0 for point in drawn), most * (single or 0.0)]))

    def x(gpus: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * gpus / most

    def y(rate: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - min(1.0, max(0.0, rate / top)))

    yield f'<svg class="roving" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{escape(label)}">'
    for count in range(round(top / step) + 1):
        at = y(count * step)
        yield f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 4}" y="{at + 3:.1f}" text-anchor="end">{short(count * step)}</text>'
    labelled = [point.gpus for point in curve.points]
    for gpus in labelled if len(labelled) <= _MOST_LABELS else labelled[:: -(-len(labelled) // _MOST_LABELS)]:
        yield f'<text x="{x(gpus):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{gpus}</text>'
    if single:
        yield f'<polyline class="ideal" points="{x(0):.1f},{y(0):.1f} {x(most):.1f},{y(most * single):.1f}"/>'
    line = " ".join(f"{x(point.gpus):.1f},{y(point.total or 0.0):.1f}" for point in drawn)
    yield f'<polyline class="c0" points="{line}"/>'
    for point in drawn:
        at_x = x(point.gpus)
        if point.interval and single:
            low, high = (y(end * single * point.gpus) for end in (point.interval.low, point.interval.high))
            yield f'<line class="whisker" x1="{at_x:.1f}" x2="{at_x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
        tip = escape(_tip(curve, point, many))
        yield f'<circle class="mark" cx="{at_x:.1f}" cy="{y(point.total or 0.0):.1f}" r="3.5" data-tip="{tip}"/>'
    yield "</svg>"


def _tip(curve: Curve, point: Point, many: str) -> str:
    words = f"{point.gpus} {many if point.gpus > 1 else many.removesuffix('s')}: {number(point.total)} {curve.unit}/s"
    if point.efficiency is None or point.gpus == 1:
        return words
    around = ""
    if point.interval:
        around = f" (95 %: {percent(point.interval.low)} to {percent(point.interval.high)})"
    return f"{words}\n{percent(point.efficiency)} of ideal{around}"
