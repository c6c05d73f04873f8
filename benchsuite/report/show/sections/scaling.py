"""Throughput over the number of GPUs (on a CPU: of ranks) in a group."""

from __future__ import annotations

from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Section, table
from benchsuite.report.show.format import NONE, number, share
from benchsuite.report.stats.scaling import Curve, Point, curves


def scaling_section(summary: Summary) -> Section | None:
    """A row for each number of GPUs of each progression; None without a progression."""
    points = [(curve, point) for curve in curves(summary) for point in curve.points]
    if not points:
        return None
    many, each = ("GPUs", "GPU") if summary.gpus_used else ("ranks", "rank")
    columns: tuple[Column[tuple[Curve, Point]], ...] = (
        Column("job", lambda at: at[0].job),
        Column(many, lambda at: at[1].gpus, right=True),
        Column("total", lambda at: at[1].total, number, right=True, rank=2),
        Column(f"per {each}", lambda at: at[1].per_gpu, number, right=True, rank=1),
        Column("unit", lambda at: f"{at[0].unit}/s", rank=4),
        Column("efficiency %", lambda at: at[1].efficiency, share, right=True),
        Column("95 %", lambda at: _interval(at[1]), right=True, rank=3),
    )
    title = "Scaling (efficiency: the rate of a GPU in the group over that of one alone)"
    return Section(title, (table(columns, points),))


def _interval(point: Point) -> Cell:
    if point.interval is None:
        return Cell(NONE)
    return Cell(f"{share(point.interval.low)} to {share(point.interval.high)}", point.interval.low)
