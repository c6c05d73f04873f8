"""A fleet as a document: the verdict, what stands out, the nodes, the jobs, and how the nodes differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from benchsuite.report.fleet.judge import WORDS, Fleet, FleetNode, Word
from benchsuite.report.format import NONE, count, few, number, one_line, percent, signed
from benchsuite.report.show.document import (
    Cell,
    Column,
    Document,
    Fact,
    Section,
    Sentence,
    Span,
    Tone,
    fact,
    sentence,
    table,
)
from benchsuite.report.show.fleet.pairs import pairs_section
from benchsuite.report.show.fleet.rows import JobRow, NodeRow, job_rows, node_row

TONES: dict[Word, Tone] = {"PASS": "good", "WARN": "warn", "FAIL": "bad", "NOT RUN": "warn"}
_NAMED = 8
# The rows of the short form on a terminal.
_ROWS, _FACTS = 12, 10
_LEGEND = (
    "Nodes are sorted by verdict, the slowest first. machine score: of all GPUs of the node together. ± %: 95 % "
    "interval of the speed over repeats. vs median: rate over all jobs against the median node of the same hardware. "
    "flagged: tasks whose rate is not steady."
)
_JOBS_LEGEND = (
    "Rate of the median node; of its median GPU where a job runs on each GPU. spread: standard deviation between "
    "nodes, by the median deviation, so that a few outliers do not count."
)


def fleet_document(fleet: Fleet, *, brief: bool = False) -> Document:
    """The report of a fleet.

    Args:
        brief: the nodes that stand out and the first of the others, in about 40 lines.
    """
    sections = [
        *_standing_out(fleet, _FACTS if brief else len(fleet.nodes)),
        _nodes(fleet, _ROWS if brief else len(fleet.nodes)),
        *(pairs_section(found, _ROWS if brief else None) for found in fleet.tournaments),
    ]
    if not brief:
        sections += [_jobs(fleet), *_mixed_section(fleet)]
    outro = (sentence("--full shows all nodes, jobs and differences; --html FILE draws them.", "quiet"),)
    return Document(title(fleet), tuple(intro(fleet)), None, tuple(sections), None, outro if brief else ())


def title(fleet: Fleet) -> str:
    return f"Fleet of {count(len(fleet.nodes), 'node')}: {one_line(str(fleet.folders.out), 100)}"


def headline(fleet: Fleet) -> str:
    """The verdict in one sentence."""
    words = ", ".join(f"{fleet.counts[word]:,} {word}" for word in reversed(WORDS) if fleet.counts[word])
    return f"{_whole(fleet)}: {words}{_scores(fleet)}{_slowest(fleet)}."


def _whole(fleet: Fleet) -> str:
    nodes = count(len(fleet.nodes), "node")
    if not fleet.grids:
        return nodes
    grid = fleet.grids[0]
    models = grid.nodes[0].hardware.get("GPU")
    gpus = f" with {grid.gpus}x {one_line(models, 60)}" if models and grid.gpus else ""
    kinds = f" of {len(fleet.grids)} kinds, most" if len(fleet.grids) > 1 else ""
    return f"{nodes}{kinds}{gpus}"


def _scores(fleet: Fleet) -> str:
    scores = [node.record.score for node in fleet.nodes if node.record.score and node.group == 0]
    for name, values in (
        ("machine score", [score.machine for score in scores if score and score.machine]),
        ("score", [score.value for score in scores if score and score.value]),
    ):
        if values:
            ends = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
            return f"; median {name} {number(statistics.median(values))}{ends}"
    return "; no score"


def _slowest(fleet: Fleet) -> str:
    known = [(node.effect, node.name) for node in fleet.nodes if node.effect is not None]
    effect, name = min(known, default=(0.0, ""))
    if effect >= 0:
        return ""
    return f"; the slowest is {one_line(name, 60)}, {signed(effect).lstrip('-')} % below the median node"


def intro(fleet: Fleet) -> Iterator[Sentence]:
    """The headline, then the nodes that fail or did not run, what is mixed, and what the tests can find."""
    yield sentence(headline(fleet), strong=True)
    for word in ("FAIL", "NOT RUN"):
        names = [one_line(node.name, 60) for node in fleet.nodes if node.word == word]
        if names:
            yield sentence(f"{word}: {', '.join(few(names, _NAMED))}.", TONES[word])
    if fleet.folders.missing:
        missing = ", ".join(few((one_line(name, 60) for name in fleet.folders.missing), _NAMED))
        listed_in = one_line(str(fleet.folders.listed_in))
        yield sentence(f"Missing of the nodes in {listed_in}: {missing}.", "warn")
    if fleet.folders.unlisted:
        names = [one_line(name, 60) for name in fleet.folders.unlisted]
        yield sentence(f"Not in the list of nodes: {', '.join(few(names, _NAMED))}.", "warn")
    if fleet.mixed:
        parts = [f"{what} ({' / '.join(_values(values))})" for what, values in fleet.mixed.items()]
        yield Sentence((Span("MIXED ", "warn", True), Span(f"{'; '.join(few(parts, 4))}.", "warn")))
    for host, folders in list(fleet.one_host.items())[:2]:
        yield sentence(f"Folders of one host, {one_line(host, 60)}: {', '.join(few(folders, _NAMED))}.", "warn")
    yield sentence(_power(fleet), "quiet")


def _values(values: dict[str, int] | object) -> list[str]:
    assert isinstance(values, dict)
    return few((f"{one_line(value, 60)}: {count(n, 'node')}" for value, n in values.items()), 3)


def _power(fleet: Fleet) -> str:
    """What the tests can find."""
    if not fleet.found:
        return "No node has results."
    found = fleet.found[0]
    if found.untested:
        return f"The speed of nodes is not compared: {found.untested}."
    least = f"Differences under {percent(fleet.least, 0)} do not count."
    if not found.smallest:
        return f"Few nodes: each is judged by its own repeats. {least}"
    parts = [f"a {what} that is {percent(value)} slower" for what, value in found.smallest.items()]
    return f"The tests name in 80 % of cases: {', '.join(parts)}. {least}"


def _standing_out(fleet: Fleet, most: int) -> Iterator[Section]:
    out = [node for node in fleet.nodes if node.word != "PASS"]
    if not out:
        return
    facts = tuple(_reasons(node) for node in out[:most])
    more = [sentence(f"And {len(out) - most:,} more.", "quiet")] if len(out) > most else []
    yield Section("What stands out", (facts, *more))


def _reasons(node: FleetNode) -> Fact:
    spans = [
        Span(f"{reason.text}{'; ' if place < len(node.reasons) - 1 else '.'}", TONES[reason.word])
        for place, reason in enumerate(node.reasons)
    ]
    return Fact(f"{node.word} {one_line(node.name, 60)}", Sentence(tuple(spans)))


def _nodes(fleet: Fleet, most: int) -> Section:
    rows = [node_row(node, fleet) for node in fleet.nodes[:most]]
    left = len(fleet.nodes) - len(rows)
    more = [sentence(f"And {left:,} more, none with a worse verdict.", "quiet")] if left else []
    return Section("Nodes", (table(_columns(), rows, "" if more else _LEGEND), *more))


def _columns() -> tuple[Column[NodeRow], ...]:
    return (
        Column("node", lambda row: row.node),
        Column("verdict", lambda row: Cell(row.verdict, row.verdict, TONES[row.verdict])),
        Column("rank", lambda row: _whole_number(row.rank), right=True, rank=3),
        Column("machine score", lambda row: row.machine_score, number, right=True, rank=1),
        Column("score/GPU", lambda row: row.score_per_gpu, number, right=True, rank=4),
        Column("± %", lambda row: _share(row.speed_half), right=True, rank=4, optional=True),
        Column("vs median %", lambda row: _signed(row.effect), right=True),
        Column("GPUs", lambda row: _whole_number(row.gpus), right=True, rank=5),
        Column(
            "failed", lambda row: Cell(f"{row.failed:,}", float(row.failed), "bad" if row.failed else ""), right=True
        ),
        Column("to run", lambda row: Cell(f"{row.to_run:,}", float(row.to_run)), right=True, rank=6),
        Column("flagged", lambda row: Cell(f"{row.flagged:,}", float(row.flagged)), right=True, rank=5),
        Column("driver", lambda row: Cell(row.driver or NONE), rank=7),
        Column("torch", lambda row: Cell(row.torch or NONE), rank=7),
        Column("host", lambda row: Cell(row.host or NONE), rank=8),
    )


def _whole_number(value: int | None) -> Cell:
    return Cell(NONE) if value is None else Cell(f"{value:,}", float(value))


def _share(value: float | None) -> Cell:
    return Cell(NONE) if value is None else Cell(f"{100 * value:.1f}", value)


def _signed(value: float | None) -> Cell:
    return Cell(NONE) if value is None else Cell(signed(value), value)


def _jobs(fleet: Fleet) -> Section:
    several = len(fleet.grids) > 1
    columns: Sequence[Column[JobRow]] = (
        Column("job", lambda row: one_line(row.job)),
        *((Column("hardware", lambda row: row.hardware, rank=5),) if several else ()),
        Column("nodes", lambda row: _whole_number(row.nodes), right=True),
        Column("median", lambda row: row.median, number, right=True),
        Column("unit", lambda row: f"{row.unit or 'item'}/s", rank=3),
        Column("spread %", lambda row: _share(row.spread), right=True),
        Column("slowest %", lambda row: _end(row.slowest), right=True),
        Column("node ", lambda row: Cell(row.slowest[0] if row.slowest else NONE), rank=1),
        Column("fastest %", lambda row: _end(row.fastest), right=True, rank=4),
        Column("node  ", lambda row: Cell(row.fastest[0] if row.fastest else NONE), rank=4),
        Column(
            "failed",
            lambda row: Cell(f"{row.failed:,}", float(row.failed), "bad" if row.failed else ""),
            right=True,
            rank=2,
        ),
    )
    return Section("Jobs over nodes", (table(columns, job_rows(fleet), _JOBS_LEGEND),))


def _end(end: tuple[str, float] | None) -> Cell:
    return _signed(end[1] if end else None)


def _mixed_section(fleet: Fleet) -> Iterator[Section]:
    """Each fact in which nodes differ, with the nodes that differ from most."""
    if not fleet.mixed:
        return
    facts = []
    for what, values in fleet.mixed.items():
        parts = [
            f"{one_line(value, 80)}: {count(n, 'node')}{_of_few(fleet, what, value, n)}" for value, n in values.items()
        ]
        facts.append(fact(what, "; ".join(parts)))
    yield Section("How the nodes differ", (tuple(facts),))


def _of_few(fleet: Fleet, what: str, value: str, n: int) -> str:
    """The names of the nodes with a value, if it is not that of most."""
    if 2 * n > len(fleet.nodes):
        return ""
    names = [node.name for node in fleet.nodes if fact_value(node, what) == value]
    return f" ({', '.join(few(map(one_line, names), _NAMED))})"


def fact_value(node: FleetNode, what: str) -> str | None:
    return node.record.software.get(what) or node.record.hardware.get(what)
