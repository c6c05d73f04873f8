"""Curves over time as data, which `show.svg` paints for the page and `show.axes` for `benchsuite plot`."""

from __future__ import annotations

from dataclasses import dataclass

from benchsuite.report.read.load import Row

Points = list[tuple[float, float]]
Span = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """One line: `points` are (seconds, value), and the measuring ended at `end_s`.

    `window` is the span on which the throughput of the task, `row`, rests; in `hold` the task trained on, untimed.
    Curves of one `name`, a GPU's or a task's, have one colour.
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

    Without a `top`, the axis ends at the largest value. `beyond` says in words what lies above `top`.
    """

    title: str
    unit: str
    curves: tuple[Curve, ...]
    end_s: float
    top: float | None = None
    beyond: str = ""
