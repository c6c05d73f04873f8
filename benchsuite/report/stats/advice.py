"""Which way of sharing a GPU, and how many models on it, finish the most jobs per hour and per kilowatt-hour.

A job is the training of one model over a number of items. All models on the GPU train at the same time, so that a GPU
finishes rate / items jobs in a second, whatever the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchsuite.report.stats.sharing import Line, Point, Shared

_HOUR_S = 3600.0
_KWH_J = 3.6e6


@dataclass(frozen=True)
class Choice:
    """A number of models in one way, with the jobs that a GPU finishes; None where the power is not recorded."""

    line: Line
    point: Point
    per_hour: float
    per_kwh: float | None


def job_items(model: Shared) -> float | None:
    """The items of a job if the user gives none: what one model alone trains on in an hour."""
    return model.base * _HOUR_S if model.base else None


def choices(model: Shared, items: float) -> list[Choice]:
    """All that was measured, the most jobs per hour first.

    Args:
        items: of one job.
    """
    found = [
        Choice(line, point, point.rate * _HOUR_S / items, _per_kwh(point, items))
        for line, points in model.lines.items()
        for point in points
        if point.rate
    ]
    return sorted(found, key=lambda choice: -choice.per_hour)


def _per_kwh(point: Point, items: float) -> float | None:
    efficiency = point.use.items_per_joule
    return None if efficiency is None else efficiency * _KWH_J / items


def best(found: Sequence[Choice], by: Callable[[Choice], float | None]) -> Choice | None:
    """The choice with the highest figure; None if no choice has one."""
    return max(
        (choice for choice in found if by(choice) is not None), key=lambda choice: by(choice) or 0.0, default=None
    )
