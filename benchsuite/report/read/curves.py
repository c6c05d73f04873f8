"""Curves over time as data, which `show.svg` paints for the page and `show.axes` for `benchsuite plot`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchsuite.report.read.load import Row

Points = list[tuple[float, float]]
Span = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """One line of a panel.

    Attributes:
        row: the task that the line belongs to.
        name: a GPU's or a task's; curves of one name have one colour.
        points: (seconds, value in `unit`).
        end_s: when the measurement ended.
        window: the span on which the task's throughput rests.
        hold: the span in which the task trained on without being timed.
    """

    row: Row
    name: str
    unit: str
    points: Points
    end_s: float
    window: Span | None = None
    hold: Span | None = None


@dataclass(frozen=True)
class Panel:
    """Curves on one pair of axes: seconds from 0 to `end_s`, values in `unit` from 0 to `top`.

    Attributes:
        top: None ends the axis at the largest value.
        beyond: what lies above `top`, in words.
    """

    title: str
    unit: str
    curves: tuple[Curve, ...]
    end_s: float
    top: float | None = None
    beyond: str = ""


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans with those that overlap joined, so that shades do not add up."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
