"""Verdicts as text: one line a node with details below, tab-separated lines, JSON, and commands that drain nodes."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from benchsuite.errors import one_line
from benchsuite.health.verdict import WORDS, Node, Outcome, Word
from benchsuite.report.format import count, few
from benchsuite.report.show.escaped import json_text

COLOURS: dict[Word, str] = {"PASS": "green", "WARN": "yellow", "FAIL": "red", "NOT RUN": "yellow"}
# The number of places of one check that are shown, unless the user asks for all.
NAMED = 3
# Longer reasons are cut: a scheduler shows them in a column.
_LONGEST = 200


def node_lines(nodes: Sequence[Node], style: Callable[..., str], every: bool) -> Iterator[str]:
    """One line a node; below, what is not PASS.

    Args:
        style: `click.style`.
        every: show the checks that passed, too.
    """
    width = max(len(one_line(node.host)) for node in nodes)
    for node in nodes:
        yield f"{one_line(node.host):<{width}}  {_word(node.word, style)}  {one_line(node.reason)}"
    for node in nodes:
        below = [*_details(node, style, every), *(() if every else _not_run(node, style))]
        if below:
            yield from ("", f"{one_line(node.host)}: {_counts(node)}", *below)


def _details(node: Node, style: Callable[..., str], every: bool) -> Iterator[str]:
    """The outcomes that are not PASS, the worst first; of one check the first few, and each source and command once."""
    shown = node.outcomes if every else [one for one in node.worst if one.word != "NOT RUN" or one.missing]
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in shown:
        groups[one.word, one.check].append(one)
    for group in groups.values():
        said: set[str] = set()
        some = group if every or len(group) <= NAMED + 1 else group[:NAMED]
        for one in some:
            yield f"  {_word(one.word, style)}  {one_line(one.brief)}"
            lines = [
                *(f"source: {source}" for source in one.sources),
                *([f"show: {one.command}"] if one.command else []),
            ]
            yield from (f"           {one_line(line)}" for line in lines if line not in said)
            said.update(lines)
        if len(some) < len(group):
            yield f"           and {len(group) - len(some)} more of {group[0].title} (--all)"


def _word(word: Word, style: Callable[..., str]) -> str:
    return style(f"{word:<7}", fg=COLOURS[word])


def _counts(node: Node) -> str:
    return ", ".join(f"{node.counts[word]} {word}" for word in WORDS if node.counts[word])


def _not_run(node: Node, style: Callable[..., str]) -> Iterator[str]:
    """The checks that do not apply, by reason."""
    by_reason: dict[str, dict[str, None]] = defaultdict(dict)
    for one in node.outcomes:
        if one.word == "NOT RUN" and not one.missing:
            figure = f" {one.figure}" if one.figure and one.place == "node" else ""
            by_reason[one.reason][one.title + figure] = None
    for reason, titles in by_reason.items():
        yield f"  {_word('NOT RUN', style)}  {', '.join(few(titles, 6))}: {one_line(reason)}"


def summary_line(nodes: Sequence[Node]) -> str:
    """ "2 nodes: 1 FAIL, 1 PASS." """
    words = [node.word for node in nodes]
    return f"{count(len(nodes), 'node')}: {', '.join(f'{words.count(w)} {w}' for w in WORDS if w in words)}."


def plain_lines(nodes: Sequence[Node]) -> Iterator[str]:
    """One tab-separated line a check and place: node, word, check, place, UUIDs, value, unit, threshold, reason, cause,
    command."""
    for node in nodes:
        for one in node.outcomes:
            cells = (
                node.host,
                one.word,
                one.check,
                one.place,
                ",".join(one.uuids),
                _plain(one.value),
                one.unit,
                _plain(one.threshold),
                one.reason,
                one.cause or "",
                one.command,
            )
            yield "\t".join(one_line(cell) for cell in cells)


def _plain(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:.6g}"


def to_json(nodes: Sequence[Node], word: Word) -> str:
    """All nodes with all outcomes and rulings."""
    found = [msgspec.to_builtins(node) for node in nodes]
    return json_text({"kind": "health", "schema": 1, "word": word, "nodes": found}).removesuffix("\n")


def drain_lines(nodes: Sequence[Node]) -> Iterator[str]:
    """A command for a shell that drains each node that fails. Slurm's names of nodes are short host names."""
    for node in nodes:
        if node.word == "FAIL":
            first = next(one for one in node.worst if one.word == "FAIL")
            reason = one_line(f"benchsuite health: {_brief(first)}")[:_LONGEST]
            words = [f"nodename={one_line(node.host).partition('.')[0]}", "state=drain", f"reason={reason}"]
            yield f"scontrol update {shlex.join(words)}"


def _brief(one: Outcome) -> str:
    """Place, title, figure and cause, without the UUIDs; the reason in place of a figure."""
    figure = f" {one.figure}" if one.figure else f" ({one.reason})" if one.cause else ""
    return f"{one.place} {one.title}{figure}, {one.cause or one.reason}"
