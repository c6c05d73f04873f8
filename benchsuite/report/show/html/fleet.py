"""The page of a fleet: a heat map of nodes by jobs, the distribution of each job over the nodes, and the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchsuite.report.fleet.grid import Grid
from benchsuite.report.fleet.judge import Fleet, FleetNode, Word
from benchsuite.report.fleet.node import Floats, NodeJob
from benchsuite.report.format import NONE, count, number, one_line, signed
from benchsuite.report.show.document import Cell, Tone
from benchsuite.report.show.fleet.document import fleet_document
from benchsuite.report.show.html.heat import shade
from benchsuite.report.show.html.pairs import pair_map
from benchsuite.report.show.html.shell import render

# The rows of a part of the heat map; all parts but the first are folded.
_PAGE = 50
# Units of the picture of a distribution, which the page scales.
_WIDTH, _BINS = 1000, 50
# Nodes beyond this share of the fleet at either end are drawn as single marks.
_ENDS = 5
_NARROWEST = 0.02
_SHORT: dict[Word, str] = {"PASS": "pass", "WARN": "warn", "FAIL": "fail", "NOT RUN": "not-run"}


@dataclass(frozen=True)
class HeatRow:
    """A node: its verdict, its rate over all jobs, and a cell for each job; values are relative differences."""

    node: Cell
    look: str
    word: str
    together: Cell
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class HeatPart:
    """Some rows of a heat map, with what they are in words."""

    title: str
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True)
class FleetMap:
    """The heat map of the nodes of one kind, the worst nodes first."""

    hardware: str
    jobs: tuple[str, ...]
    parts: tuple[HeatPart, ...]


@dataclass(frozen=True)
class Strip:
    """The distribution of a job over nodes, on an axis of relative differences from the median node.

    Attributes:
        bars: x, width and height of each bar, in units of `_WIDTH` by 100.
        marks: x and the note of the nodes at both ends.
    """

    job: str
    note: str
    bars: tuple[tuple[float, float, float], ...]
    marks: tuple[tuple[float, str], ...]
    low: str
    high: str


@dataclass(frozen=True)
class Strips:
    """The distributions of the jobs of one kind of hardware; `ticks` are places of the axis with their text."""

    hardware: str
    ticks: tuple[tuple[float, str], ...]
    strips: tuple[Strip, ...]


def fleet_page(fleet: Fleet) -> str:
    """The whole page, which needs no network and no other file."""
    shown = fleet_document(fleet)
    by_title = {section.title: section for section in shown.sections}
    standing_out = by_title.pop("What stands out", None)
    return render(
        "fleet.html",
        ("fleet.css",),
        title=shown.title,
        intro=shown.intro,
        standing_out=standing_out,
        maps=tuple(_maps(fleet)),
        shade=shade,
        strips=tuple(_strips(grid) for grid in fleet.grids),
        pair_maps=tuple(pair_map(found) for found in fleet.tournaments),
        sections=tuple(by_title.values()),
    )


def _maps(fleet: Fleet) -> Iterator[FleetMap]:
    for g, grid in enumerate(fleet.grids):
        nodes = [node for node in fleet.nodes if node.group == g]
        at = {node.name: n for n, node in enumerate(grid.nodes)}
        effects = np.expm1(grid.deviations)
        rows = [_row(grid, node, effects[:, at[node.name]]) for node in nodes]
        parts = tuple(
            HeatPart(f"Nodes {start + 1:,} to {min(start + _PAGE, len(rows)):,}", tuple(rows[start : start + _PAGE]))
            for start in range(0, len(rows), _PAGE)
        )
        yield FleetMap(grid.kind, grid.jobs, parts)


def _row(grid: Grid, node: FleetNode, effects: Floats) -> HeatRow:
    together = Cell(NONE) if node.effect is None else Cell(_signed(node.effect), node.effect)
    cells = tuple(_cell(grid, node, name, float(effects[j])) for j, name in enumerate(grid.jobs))
    head = Cell(one_line(node.name, 40), note=f"{node.word}: {one_line(node.words, 400)}")
    return HeatRow(head, _SHORT[node.word], node.word, together, cells)


def _cell(grid: Grid, node: FleetNode, name: str, effect: float) -> Cell:
    job = grid.job(name, node.record)
    head = f"{one_line(name, 60)} on {one_line(node.name, 40)}"
    if job is None:
        why = "trains something else" if name in node.record.jobs else "not in its run"
        return Cell(NONE, note=f"{head}: {why}")
    fail = int(job.fail.sum())
    lines = [head, *_rate_lines(job), f"{count(job.n, 'task')}, {fail} failed"]
    tone: Tone = "bad" if fail else ""
    if not math.isfinite(effect):
        return Cell("✕" if fail else NONE, None, tone, "\n".join(lines))
    return Cell(_signed(effect), effect, tone, "\n".join(lines))


def _rate_lines(job: NodeJob) -> Iterator[str]:
    """The rate in words, with those of the slowest and of the fastest GPU."""
    known = job.logs[np.isfinite(job.logs)]
    if not len(known):
        return
    rate = f"{number(math.exp(job.log))} {job.unit or 'item'}/s"
    if len(known) == 1:
        yield rate
        return
    ends = (number(math.exp(float(end))) for end in (known.min(), known.max()))
    yield f"{rate} on its median GPU ({' to '.join(ends)})"


def _signed(value: float) -> str:
    return signed(value).replace("-", "\N{MINUS SIGN}")


def _strips(grid: Grid) -> Strips:
    effects = np.expm1(grid.deviations)
    known = np.abs(effects[np.isfinite(effects)])
    most = max(_NARROWEST, float(known.max())) if len(known) else _NARROWEST
    # A few far nodes are drawn at the edge, so that the others can be told apart.
    usual = float(np.quantile(known, 0.98)) if len(known) else _NARROWEST
    end = min(most, max(_NARROWEST, 3 * usual))
    ticks = tuple((_place(at, end), f"{_signed(at)} %") for at in (-end, -end / 2, 0.0, end / 2, end))
    strips = tuple(
        strip for j, name in enumerate(grid.jobs) if (strip := _strip(grid, name, effects[j], end)) is not None
    )
    return Strips(grid.kind, ticks, strips)


def _place(effect: float, end: float) -> float:
    return round(_WIDTH * (min(end, max(-end, effect)) / end + 1) / 2, 1)


def _strip(grid: Grid, name: str, effects: Floats, end: float) -> Strip | None:
    nodes = np.flatnonzero(np.isfinite(effects)).tolist()
    if not nodes:
        return None
    known = effects[nodes]
    counts, _ = np.histogram(np.clip(known, -end, end), bins=_BINS, range=(-end, end))
    wide = _WIDTH / _BINS
    bars = tuple(
        (round(wide * place + 1, 1), round(wide - 2, 1), round(100 * math.sqrt(n / counts.max()), 1))
        for place, n in enumerate(counts.tolist())
        if n
    )
    in_order = sorted(nodes, key=lambda n: float(effects[n]))
    some = list(dict.fromkeys([*in_order[:_ENDS], *in_order[-_ENDS:]]))
    marks = tuple(
        (_place(float(effects[n]), end), f"{one_line(grid.nodes[n].name, 40)}: {_signed(float(effects[n]))} %")
        for n in some
    )
    quarters = ", ".join(_signed(float(at)) for at in np.quantile(known, (0.05, 0.25, 0.75, 0.95)))
    note = f"{count(len(nodes), 'node')}; 5, 25, 75 and 95 % of them lie below {quarters} %"
    return Strip(one_line(name, 60), note, bars, marks, *(_signed(float(of)) for of in (known.min(), known.max())))
