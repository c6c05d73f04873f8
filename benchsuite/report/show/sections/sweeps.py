"""Sweeps over the batch size: a row for each size."""

from __future__ import annotations

from benchsuite.report.format import number, percent, share, whole
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Section, Tone, table
from benchsuite.report.stats.sweeps import KNEE, Point, Sweep, sweeps

_LEGEND = (
    f"of best %: the rate over the best of the sweep. knee: the smallest batch with at least {percent(KNEE, 0)} of the "
    "best rate; none if only the largest batch has it. OOM: out of memory. GiB: peak of one GPU (on the CPU: of the "
    "host). SM, tensor, memory BW: use of the GPU by its counters."
)
_At = tuple[Sweep, Point]

_COLUMNS: tuple[Column[_At], ...] = (
    Column("job", lambda at: at[0].job),
    Column("batch", lambda at: at[1].batch, right=True),
    Column("rate", lambda at: _rate(at[1]), right=True),
    Column("unit", lambda at: f"{at[0].unit}/s", rank=6),
    Column("of best %", lambda at: at[1].of_best, share, right=True),
    Column("", lambda at: Cell("knee" if at[1].batch == at[0].knee else ""), rank=1, optional=True),
    Column("GiB", lambda at: _gib(at[1]), number, right=True, rank=1),
    Column("SM %", lambda at: at[1].use.sm_percent, whole, right=True, rank=3, optional=True),
    Column("tensor %", lambda at: at[1].use.tensor_percent, whole, right=True, rank=4, optional=True),
    Column("memory BW %", lambda at: at[1].use.dram_percent, whole, right=True, rank=4, optional=True),
    Column("W/GPU", lambda at: at[1].use.power_w, whole, right=True, rank=5, optional=True),
    Column("items/J", lambda at: at[1].use.items_per_joule, number, right=True, rank=2, optional=True),
)


def sweeps_section(summary: Summary) -> Section | None:
    """A row for each batch size of each sweep; None without a sweep."""
    points = [(sweep, point) for sweep in sweeps(summary) for point in sweep.points]
    if not points:
        return None
    return Section("Sweeps over the batch size", (table(_COLUMNS, points, _LEGEND, _tone),))


def _rate(point: Point) -> Cell:
    """The rate, or why there is none. OOM stands beside the rate if only some tasks ran out of memory."""
    if point.rate is None:
        return Cell("OOM" if point.oom else point.state)
    return Cell(number(point.rate) + (" (OOM in part)" if point.oom else ""), point.rate)


def _tone(at: _At) -> Tone:
    return "bad" if at[1].rate is None and not at[1].oom else "warn" if at[1].oom else ""


def _gib(point: Point) -> float | None:
    return None if point.memory_bytes is None else point.memory_bytes / 2**30
