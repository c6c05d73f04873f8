"""The page of machines side by side: a chart of their ratios to the reference, then the tables of the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchsuite.report.format import NONE, bounds, ratio
from benchsuite.report.show.html.shell import render
from benchsuite.report.show.svg import scale
from benchsuite.report.show.systems import systems_document
from benchsuite.report.show.systems_row import SystemRow, system_rows
from benchsuite.report.stats.systems import BENCHSUITE, Group

# Units of a bar's picture, which the page scales.
_WIDTH = 1000


@dataclass(frozen=True)
class Bar:
    """A ratio as a bar from 0.

    Attributes:
        width, low, high, one: in units of `_WIDTH`; `low` and `high` are None without an interval.
        text: the ratio in words, or why there is none.
    """

    what: str
    width: float | None
    low: float | None
    high: float | None
    one: float
    text: str
    note: str


@dataclass(frozen=True)
class Entry:
    """A system of the chart with its two bars; `other` names the program that measured it, if it is another one."""

    name: str
    machine: str
    other: str
    bars: tuple[Bar, ...]


def systems_page(groups: Sequence[Group]) -> str:
    """The whole page, which needs no network and no other file."""
    rows = system_rows(groups)
    shown = systems_document(groups, for_terminal=False)
    return render(
        "systems.html",
        ("systems.css",),
        title=shown.title,
        intro=shown.intro,
        sections=shown.sections,
        entries=tuple(_entries(rows)),
        reference=rows[0].reference,
    )


def _entries(rows: Sequence[SystemRow]) -> Iterator[Entry]:
    ends = [
        end
        for row in rows
        for end in (row.ratio_machine, row.ratio_machine_high, row.ratio_per_gpu, row.ratio_per_gpu_high)
        if end
    ]
    top = scale(max(ends, default=1.0))[0]
    for row in sorted(rows, key=lambda row: -(row.ratio_machine or row.ratio_per_gpu or 0.0)):
        machine = _bar("machine", row.ratio_machine, row.ratio_machine_low, row.ratio_machine_high, top)
        per_gpu = _bar("per GPU", row.ratio_per_gpu, row.ratio_per_gpu_low, row.ratio_per_gpu_high, top)
        other = "" if row.program == BENCHSUITE else row.program
        shown = (machine, per_gpu) if row.gpus else (machine,)
        yield Entry(row.name, "" if row.machine.startswith(row.name) else row.machine, other, shown)


def _bar(what: str, value: float | None, low: float | None, high: float | None, top: float) -> Bar:
    def place(of: float | None) -> float | None:
        return None if of is None else round(_WIDTH * of / top, 1)

    around = f"95 %: {bounds(low, high)}" if low is not None else "no interval"
    text = f"{ratio(value)}x" if value is not None else NONE
    note = f"{what} {text}, {around}" if value is not None else f"{what}: no ratio, see the remarks"
    return Bar(what, place(value), place(low), place(high), _WIDTH / top, text, note)
