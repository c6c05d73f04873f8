"""Verdicts as text: one line a node with details below, tab-separated lines, JSON, and commands that drain nodes."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from benchsuite.errors import one_line
from benchsuite.health.verdict import WORDS, Node, Outcome, Word
from benchsuite.report.show.format import count, few

COLOURS: dict[Word, str] = {"PASS": "green", "WARN": "yellow", "FAIL": "red", "NOT RUN": "yellow"}
# Longer reasons are cut: a scheduler shows them in a column.
_LONGEST = 200


def node_lines(nodes: Sequence[Node], style: Callable[..., str], every: bool) -> Iterator[str]:
    """One line a node; below, what is not PASS.

    Args:
        style: `click.style`.
        every: show the checks that passed, too.
    """
    width = max(len(node.host) for node in nodes)
    for node in nodes:
        yield f"{node.host:<{width}}  {_word(node.word, style)}  {one_line(node.reason)}"
    for node in nodes:
        shown = [*node.outcomes] if every else [one for one in node.worst if one.word != "NOT RUN" or one.missing]
        if shown:
            yield ""
            yield f"{node.host}: {_counts(node)}"
        for one in shown:
            yield f"  {_word(one.word, style)}  {one_line(one.brief)}"
            for source in one.sources:
                yield f"           source: {one_line(source)}"
            if one.command:
                yield f"           show: {one.command}"
        yield from _not_run(node, style) if not every else ()


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
    return json.dumps({"kind": "health", "schema": 1, "word": word, "nodes": found}, indent=2, ensure_ascii=False)


def drain_lines(nodes: Sequence[Node]) -> Iterator[str]:
    """A command for a shell that drains each node that fails. Slurm's names of nodes are short host names."""
    for node in nodes:
        if node.word == "FAIL":
            first = next(one for one in node.worst if one.word == "FAIL")
            reason = one_line(f"benchsuite health: {_brief(first)}")[:_LONGEST]
            words = [f"nodename={node.host.partition('.')[0]}", "state=drain", f"reason={reason}"]
            yield f"scontrol update {shlex.join(words)}"


def _brief(one: Outcome) -> str:
    """Place, title, figure and cause, without the UUIDs."""
    figure = f" {one.figure}" if one.figure else ""
    return f"{one.place} {one.title}{figure}, {one.cause or one.reason}"
