"""A heat map of pairs of nodes: the rate of each pair relative to that of two median nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchsuite.report.fleet.tournament import Tournament
from benchsuite.report.format import NONE, number, one_line, signed
from benchsuite.report.show.document import Cell, Sentence
from benchsuite.report.show.fleet.pairs import paired_nodes, verdict

# More rows and columns than anyone can read.
_MOST = 64


@dataclass(frozen=True)
class PairMap:
    """The slowest nodes against each other.

    Attributes:
        rows: each node with its cells; a cell's value is the relative difference from two median nodes.
        left_out: the number of nodes that are not shown.
    """

    job: str
    verdict: tuple[Sentence, ...]
    nodes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    left_out: int


def pair_map(found: Tournament) -> PairMap:
    """The heat map of a tournament, the slowest nodes first."""
    order = {one_line(node, 60): place for place, node in enumerate(found.nodes)}
    shown = [row.node for row in paired_nodes(found)][:_MOST]
    places = [order[node] for node in shown]
    rows = tuple((node, tuple(_cells(found, place, places))) for node, place in zip(shown, places, strict=True))
    return PairMap(one_line(found.job, 60), verdict(found), tuple(shown), rows, len(found.nodes) - len(shown))


def _usual(found: Tournament) -> float:
    """The rate of two median nodes; of the median pair if the parts of the rates are not known."""
    if found.judged.fit:
        return math.exp(found.judged.fit.level)
    return float(np.median(found.known)) if len(found.known) else 1.0


def _cells(found: Tournament, row: int, columns: list[int]) -> Iterator[Cell]:
    usual = _usual(found)
    failed = {frozenset(pair) for pair in found.failed_pairs}
    for column in columns:
        names = tuple(one_line(found.nodes[place], 40) for place in (row, column))
        rate = float(found.rates[row, column])
        if row == column:
            yield Cell("", note=names[0])
        elif np.isfinite(rate):
            effect = rate / usual - 1
            text = signed(effect).replace("-", "\N{MINUS SIGN}")
            yield Cell(text, effect, note=f"{names[0]} - {names[1]}: {number(rate)} {found.unit or 'item'}/s, {text} %")
        else:
            fails = frozenset((found.nodes[row], found.nodes[column])) in failed
            dead = {found.nodes[row], found.nodes[column]} & set(found.failed_nodes)
            why = "fails" if fails or dead else "no rate"
            yield Cell(
                "✕" if fails or dead else NONE, None, "bad" if fails or dead else "", f"{' - '.join(names)}: {why}"
            )
