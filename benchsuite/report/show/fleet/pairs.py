"""What the pairs of nodes show, in words, as a table and as JSON: slow nodes, slow links, or an even fabric."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchsuite.report.fleet.pairs import LEAST, SlowPlace
from benchsuite.report.fleet.tournament import Tournament
from benchsuite.report.format import NONE, count, few, number, one_line, percent, signed
from benchsuite.report.show.document import Cell, Column, Section, Sentence, sentence, table

_NAMED = 8
_LEGEND = (
    "Nodes are sorted by their effect, the slowest first. effect: a node's part of the rate of its pairs, against the "
    "median node. median: over its pairs. slowest: the pair of the lowest rate, with the other node."
)


@dataclass(frozen=True)
class PairedNode:
    """A node among its pairs.

    Attributes:
        effect: relative, against the median node; None if it is not known.
        median, slowest: items/s over its pairs; None without a rate.
        other: the other node of its slowest pair.
    """

    node: str
    pairs: int
    effect: float | None
    median: float | None
    slowest: float | None
    other: str | None


def verdict(found: Tournament) -> tuple[Sentence, ...]:
    """What is slow, or that nothing is; what failed; and what the tests can find."""
    return tuple(_verdict(found))


def _verdict(found: Tournament) -> Iterator[Sentence]:
    judged, known = found.judged, found.known
    for node in found.failed_nodes:
        yield sentence(f"node {one_line(node, 60)}: each of its pairs fails, and pairs of other nodes do not.", "bad")
    if found.failed_pairs:
        names = [f"{one_line(one, 60)} - {one_line(other, 60)}" for one, other in found.failed_pairs]
        yield sentence(f"Pairs that fail: {', '.join(few(names, _NAMED))}.", "bad")
    if found.to_run:
        yield sentence(f"{count(found.to_run, 'pair')} of {found.pairs:,} still to run.", "warn")
    if not len(known):
        yield sentence("No pair has a rate.", "warn")
        return
    for slow in judged.slow[:_NAMED]:
        yield sentence(f"{slow_words(slow, found)}.", "bad" if slow.is_fault else "warn")
    if len(judged.slow) > _NAMED:
        yield sentence(f"And {count(len(judged.slow) - _NAMED, 'more slow place')}.", "warn")
    yield sentence(_even(found), "good" if not judged.slow and not judged.untested else "quiet")
    if judged.smallest:
        parts = [f"a {what} that is {percent(value)} slower" for what, value in judged.smallest.items()]
        yield sentence(
            f"The tests name in 80 % of cases: {', '.join(parts)}. Less than {percent(LEAST, 0)} does not count.",
            "quiet",
        )


def slow_words(slow: SlowPlace, found: Tournament) -> str:
    """Such as "node n7 is 18.2 % slower than the median node: 39.1 GB/s in the median of its 15 pairs"."""
    less = signed(abs(slow.effect)).lstrip("+")
    if len(slow.nodes) == 1:
        own = found.of_node(slow.nodes[0])
        rate = f"{number(float(np.median(own)))} {_unit(found)} in the median of its {count(len(own), 'pair')}"
        return f"node {one_line(slow.nodes[0], 60)} is {less} % slower than the median node: {rate}{_doubt(slow)}"
    one, other = (found.nodes.index(node) for node in slow.nodes)
    expected = number(float(found.rates[one, other]) / (1 + slow.effect))
    rate = f"{number(float(found.rates[one, other]))} {_unit(found)}, where its nodes reach {expected} with others"
    ends = " - ".join(one_line(node, 60) for node in slow.nodes)
    return f"link {ends} is {less} % slower than others: {rate}{_doubt(slow)}"


def _doubt(slow: SlowPlace) -> str:
    return "" if slow.significant else "; it is not significant, since the others differ so much"


def _even(found: Tournament) -> str:
    known = found.known
    ends = (
        f"{number(float(known.min()))} to {number(float(known.max()))}" if len(known) > 1 else number(float(known[0]))
    )
    what = f"{count(len(known), 'pair')}: {ends} {_unit(found)}"
    if found.judged.untested:
        return f"{what}. Not judged: {found.judged.untested}."
    return f"{what}." if found.judged.slow else f"The fabric as a whole is even. {what}."


def _unit(found: Tournament) -> str:
    return f"{found.unit or 'item'}/s"


def paired_nodes(found: Tournament) -> list[PairedNode]:
    """The nodes, the slowest first."""
    fitted = found.judged.fit
    rows = []
    for place, node in enumerate(found.nodes):
        row = found.rates[place]
        known = np.flatnonzero(np.isfinite(row)).tolist()
        slowest = min(known, key=lambda other: float(row[other]), default=None)
        effect = math.expm1(float(fitted.effects[place])) if fitted else math.nan
        rows.append(
            PairedNode(
                node=one_line(node, 60),
                pairs=len(known),
                effect=effect if math.isfinite(effect) else None,
                median=float(np.median(row[known])) if known else None,
                slowest=None if slowest is None else float(row[slowest]),
                other=None if slowest is None else one_line(found.nodes[slowest], 60),
            )
        )
    return sorted(rows, key=lambda row: (row.effect if row.effect is not None else 0.0, row.median or 0.0))


def pairs_section(found: Tournament, most: int | None = None) -> Section:
    """The verdict and the nodes.

    Args:
        most: the rows to show; None for all.
    """
    rows = paired_nodes(found)
    shown = rows[:most]
    more = (sentence(f"And {len(rows) - len(shown):,} more.", "quiet"),) if len(shown) < len(rows) else ()
    columns = (
        Column[PairedNode]("node", lambda row: row.node),
        Column[PairedNode]("effect %", lambda row: _signed(row.effect), right=True),
        Column[PairedNode](f"median {_unit(found)}", lambda row: row.median, number, right=True),
        Column[PairedNode](f"slowest {_unit(found)}", lambda row: row.slowest, number, right=True),
        Column[PairedNode]("with", lambda row: row.other or "", rank=3),
        Column[PairedNode]("pairs", lambda row: Cell(f"{row.pairs:,}", float(row.pairs)), right=True, rank=4),
    )
    return Section(
        f"Pairs of nodes: {one_line(found.job, 60)}", (*verdict(found), table(columns, shown, _LEGEND), *more)
    )


def _signed(value: float | None) -> Cell:
    return Cell(NONE) if value is None else Cell(signed(value), value)


def pairs_json(found: Tournament) -> dict[str, Any]:
    """Everything about a tournament."""
    judged = found.judged
    ends = np.argwhere(np.triu(np.isfinite(found.rates), 1)).tolist()
    return {
        "job": found.job,
        "unit": _unit(found),
        "verdict": [line.text for line in verdict(found)],
        "slow": [
            {"kind": "node" if len(one.nodes) == 1 else "link", "nodes": one.nodes, "effect": one.effect}
            | {"adjusted_p": one.adjusted, "significant": one.significant, "fault": one.is_fault}
            for one in judged.slow
        ],
        "failed_nodes": found.failed_nodes,
        "failed_pairs": found.failed_pairs,
        "to_run": found.to_run,
        "untested": judged.untested or None,
        "smallest": judged.smallest,
        "nodes": paired_nodes(found),
        "pairs": [
            {"nodes": (found.nodes[a], found.nodes[b]), "rate": float(found.rates[a, b])}
            | {"rest": math.expm1(float(judged.fit.rest[a, b])) if judged.fit else None}
            for a, b in ends
        ],
    }
