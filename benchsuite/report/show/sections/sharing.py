"""Models that share a GPU: what the fused array gains over the other ways, the best of each way, and every number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchsuite.report.format import number, ratio, share, whole
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Section, Table, Tone, table
from benchsuite.report.stats.sharing import SERIAL, Line, Point, Shared, shared

_FUSED = "fused"
# The ways that the fused array is compared with: way, compiled or not (None: the better of both), title of the column.
_OTHERS = (
    (SERIAL, False, "serial"),
    (SERIAL, True, "serial, compiled"),
    ("concurrent", None, "concurrent"),
    ("mps", None, "MPS"),
    ("mig", None, "MIG"),
)
_RATE = (
    "copies: models on a GPU. rate: items/s of all of them, on one GPU. speed-up: the rate over that of one model "
    "alone and eager, in fp32 if that was measured."
)
_GAINS = (
    "The best rate of the fused array over the best of each other way in the same precision. serial, compiled: one "
    "model with torch.compile, which includes CUDA graphs."
)
_EVERY = (
    f"{_RATE} OOM: out of memory. overlap: the least share of a copy's window in which all copies trained. GiB: peak "
    "of the GPU with all models (on the CPU: of the host). SM, tensor: use of the GPU by its counters."
)


@dataclass(frozen=True)
class _At:
    """A row: a number of copies of a line of a model."""

    model: Shared
    line: Line
    point: Point


@dataclass(frozen=True)
class _Gain:
    """A row: the best of the fused array of a model in one precision."""

    model: Shared
    precision: str
    line: Line
    point: Point

    def over(self, way: str, compiled: bool | None) -> float | None:
        """Its rate over the best of another way."""
        other = self.model.best_of(way, self.precision, compiled=compiled)
        rate = other[1].rate if other else None
        return self.point.rate / rate if self.point.rate and rate else None


def sharing_section(summary: Summary, *, short: bool = False) -> Section | None:
    """The three tables; None if no models share a GPU.

    Args:
        short: without the table of every number of copies.
    """
    models = shared(summary)
    tables = tuple(_tables(models, short=short)) if models else ()
    return Section("Models that share a GPU", tables) if tables else None


def _tables(models: Sequence[Shared], *, short: bool) -> Iterator[Table]:
    gains = [gain for model in models for gain in _gains(model)]
    if gains:
        yield table(_gain_columns(), gains, _GAINS)
    best = [_At(model, line, point) for model in models for line in model.lines if (point := model.best(line))]
    if best:
        yield table(_COLUMNS, best, f"The best number of copies of each way. {_EVERY}")
    if short:
        return
    every = [_At(model, line, point) for model in models for line, of in model.lines.items() for point in of]
    yield table(_COLUMNS, every, _EVERY, _tone)


def _gains(model: Shared) -> Iterator[_Gain]:
    for precision in dict.fromkeys(line.precision for line in model.lines):
        if found := model.best_of(_FUSED, precision):
            yield _Gain(model, precision, *found)


def _gain_columns() -> Iterator[Column[_Gain]]:
    yield Column("model", lambda gain: gain.model.name)
    yield Column("precision", lambda gain: gain.precision)
    yield Column("fused", lambda gain: gain.line.words)
    yield Column("copies", lambda gain: gain.point.copies, right=True)
    yield Column("speed-up", lambda gain: gain.model.speed_up(gain.point.rate), ratio, right=True)
    for way, compiled, title in _OTHERS:
        yield Column(f"over {title}", _over(way, compiled), ratio, right=True, rank=1, optional=True)


def _over(way: str, compiled: bool | None) -> Callable[[_Gain], float | None]:
    return lambda gain: gain.over(way, compiled)


_COLUMNS: tuple[Column[_At], ...] = (
    Column("model", lambda at: at.model.name),
    Column("way", lambda at: at.line.words),
    Column("copies", lambda at: at.point.copies, right=True),
    Column("rate", lambda at: Cell(number(at.point.rate), at.point.rate) if at.point.runs else Cell(at.point.state),
           right=True),
    Column("unit", lambda at: f"{at.model.unit}/s", rank=7),
    Column("speed-up", lambda at: at.model.speed_up(at.point.rate), ratio, right=True),
    Column("overlap %", lambda at: at.point.overlap, share, right=True, rank=6, optional=True),
    Column("GiB", lambda at: _gib(at.point), number, right=True, rank=1, optional=True),
    Column("SM %", lambda at: at.point.use.sm_percent, whole, right=True, rank=3, optional=True),
    Column("tensor %", lambda at: at.point.use.tensor_percent, whole, right=True, rank=4, optional=True),
    Column("W/GPU", lambda at: at.point.use.power_w, whole, right=True, rank=5, optional=True),
    Column("items/J", lambda at: at.point.use.items_per_joule, number, right=True, rank=2, optional=True),
)  # fmt: skip


def _tone(at: _At) -> Tone:
    return "" if at.point.runs else "warn" if at.point.state == "OOM" else "bad"


def _gib(point: Point) -> float | None:
    return None if point.memory_bytes is None else point.memory_bytes / 2**30
