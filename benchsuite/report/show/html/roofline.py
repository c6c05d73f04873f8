"""Rooflines: one picture a GPU model, with its roofs and a point for each job, on logarithmic axes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape

from markupsafe import Markup

from benchsuite.errors import ProfileError
from benchsuite.report.format import number, one_line, percent
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.html.curves import Figure
from benchsuite.report.show.html.legend import Key
from benchsuite.report.show.svg import HEIGHT, WIDTH, short
from benchsuite.report.stats.roofline import RooflinePoint, roofline

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 14, 30
_Named = tuple[str, RooflinePoint]


def roofline_figures(summary: Summary) -> tuple[Figure, ...]:
    """A picture for each GPU model on which a job has a known place below the roof."""
    by_card: dict[str, list[_Named]] = defaultdict(list)
    for job in summary.jobs:
        try:
            point = roofline(job) if job.model_flops and job.gpu_names else None
        except ProfileError:  # the section on MFU names the file
            return ()
        if point:
            by_card[point.card].append((job.name, point))
    return tuple(_figure(card, points) for card, points in by_card.items())


def _figure(card: str, points: Sequence[_Named]) -> Figure:
    formats = sorted({point.format for _, point in points}, key=lambda f: -_peak(points, f))
    note = "TFLOP/s of one GPU over model FLOPs for each byte of memory traffic"
    keys = (
        *(
            Key(f"c{at}", f"jobs in {name}, below {_peak(points, name):,.0f} TFLOP/s")
            for at, name in enumerate(formats)
        ),
        Key("plain d1", f"memory, {points[0][1].memory_gb_s:,.0f} GB/s"),
    )
    svg = "".join(_parts(points, formats, f"Roofline of {card}: {note}"))
    return Figure(f"Roofline of {one_line(card)}", note, Markup(svg), keys)  # noqa: S704 - all text is escaped


def _peak(points: Sequence[_Named], name: str) -> float:
    return next(point.peak_tflops for _, point in points if point.format == name)


def _parts(points: Sequence[_Named], formats: Sequence[str], label: str) -> Iterator[str]:
    ridge = max(point.ridge for _, point in points)
    left, right = _decades([*(point.intensity for _, point in points), ridge, 2 * ridge])
    bottom, top = _decades([*(point.tflops for _, point in points), *(_peak(points, f) for f in formats)])
    gb_s = points[0][1].memory_gb_s

    def x(intensity: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (math.log10(intensity) - left) / (right - left)

    def y(tflops: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - (math.log10(tflops) - bottom) / (top - bottom))

    yield f'<svg class="roving" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{escape(label)}">'
    for power in range(bottom, top + 1):
        at = y(10.0**power)
        yield f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 4}" y="{at + 3:.1f}" text-anchor="end">{short(10.0**power)}</text>'
    for power in range(left, right + 1):
        yield f'<text x="{x(10.0**power):.1f}" y="{HEIGHT - 16}" text-anchor="middle">{short(10.0**power)}</text>'
    yield f'<text x="{(_LEFT + WIDTH - _RIGHT) / 2:.1f}" y="{HEIGHT - 4}" text-anchor="middle">FLOP/byte</text>'
    first = max(10.0**left, 1e3 * 10.0**bottom / gb_s)  # the slope enters the picture here
    yield _line("ideal", (x(first), y(first * gb_s / 1e3)), (x(ridge), y(ridge * gb_s / 1e3)))
    for place, name in enumerate(formats):
        peak = _peak(points, name)
        yield _line(f"c{place}", (x(1e3 * peak / gb_s), y(peak)), (x(10.0**right), y(peak)))
    for job, point in points:
        tip = escape(_tip(job, point))
        look = f"c{formats.index(point.format)}"
        centre = f'cx="{x(point.intensity):.1f}" cy="{y(point.tflops):.1f}"'
        yield f'<circle class="mark" style="fill: var(--{look})" {centre} r="3.5" data-tip="{tip}"/>'
    yield "</svg>"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around these numbers, at least one apart."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _line(look: str, *ends: tuple[float, float]) -> str:
    return f'<polyline class="{look}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in ends)}"/>'


def _tip(job: str, point: RooflinePoint) -> str:
    place = f"{number(point.tflops)} TFLOP/s {point.format} at {number(point.intensity)} FLOP/byte"
    return f"{one_line(job)}: {place}\n{percent(point.of_roof, 0)} of the roof, which is the {_ROOF[point.roof]}"


_ROOF = {"memory": "memory's bandwidth", "compute": "peak of the format"}
