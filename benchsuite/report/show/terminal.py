"""A report on a terminal, readable without colour. A narrow terminal loses whole columns, never parts of names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from benchsuite.report.show.brief import LINES, brief
from benchsuite.report.show.document import Column, Document, Figure, Part, ScoreBlock, Sentence, Table
from benchsuite.report.show.report import Report

_INDENT = 2
_GAPS = (2, 1)
# The jobs that a report in few lines shows, even where it then has more lines.
_FEWEST = 3
# The width of a longest word up to which a column of prose is folded only between words.
_PROSE_WIDTH = 20
_STYLES = {"good": "green", "warn": "yellow", "bad": "red", "quiet": "dim", "": ""}
# Between a figure and the sentences beside it.
_BESIDE = "   "


def render(document: Document, console: Console) -> None:
    """Print a whole document, without control characters; the console must not interpret markup in names."""
    for drawn in _whole(document, console.width):
        console.print(drawn)


def render_brief(report: Report, console: Console) -> None:
    """Print a report in at most `LINES` lines, without its sections: of the jobs as many as fit, the worst first."""
    rows = len(report.summary.jobs)
    while True:
        shown = brief(report, rows)
        counted = _whole(replace(shown, sections=()), console.width)
        over = sum(len(console.render_lines(drawn, pad=False)) for drawn in counted) - LINES
        if over <= 0 or rows <= _FEWEST:
            return render(shown, console)
        rows = max(_FEWEST, rows - over)


def _whole(document: Document, width: int) -> Iterator[RenderableType]:
    """The headline and the lines below it, the score, the jobs, the sections, and the facts behind the score."""
    for line in document.intro:
        yield _text(line)
    if document.score:
        yield Text()
        yield _score(document.score)
    if document.jobs:
        yield Text()
        yield from _parts(document.jobs.parts, width, 0)
    for section in document.sections:
        yield from _rule(section.title)
        yield from _parts(section.parts, width, _INDENT)
    if document.score and document.score.facts:
        yield from _rule("What the score rests on")
        facts = ((_plain(fact.label, "bold"), _text(fact.sentence)) for fact in document.score.facts)
        yield _indented(_pairs(facts, whole_labels=True), _INDENT)
    for line in document.outro:
        yield _text(line)


def _rule(title: str) -> Iterator[RenderableType]:
    yield Text()
    yield Rule(_plain(title, "bold"), align="left", style="dim")


def _parts(parts: Sequence[Part], width: int, indent: int) -> Iterator[RenderableType]:
    """A blank line stands above a table with a legend, for it is the section's main table."""
    for place, part in enumerate(parts):
        if place and isinstance(part, Table) and part.legend:
            yield Text()
        for drawn in _drawn(part, width - 2 * indent):
            yield _indented(drawn, indent)


def _indented(drawn: RenderableType, indent: int) -> RenderableType:
    return Padding(drawn, (0, 0, 0, indent), expand=False) if indent else drawn


def _drawn(part: Part, width: int) -> Iterator[RenderableType]:
    if isinstance(part, Sentence):
        yield _text(part)
    elif isinstance(part, Table):
        drawn, left_out = fitted(part, width)
        yield drawn
        if part.legend:
            omitted = f" Not shown for want of width: {', '.join(left_out)}." if left_out else ""
            yield _plain(f"{part.legend}{omitted}", "dim")
    else:
        yield _pairs((_plain(fact.label), _text(fact.sentence)) for fact in part)


def _score(block: ScoreBlock) -> RenderableType:
    """The run's own figures one below the other, then the rest."""
    width = max(cell_len(figure.value.text) for figure in block.own)
    rows = [(figure.label, _figure(figure, width)) for figure in block.own]
    rows += [
        (entry.label, _figure(entry) if isinstance(entry, Figure) else _text(entry.sentence)) for entry in block.more
    ]
    return _pairs(((_plain(label, "bold"), text) for label, text in rows), whole_labels=True)


def _figure(figure: Figure, width: int = 0) -> Text:
    shown = Text.assemble(_plain(figure.value.text.rjust(width), "bold"))
    for sentence in figure.beside:
        shown.append(_BESIDE).append_text(_text(sentence))
    return shown


def _pairs(rows: Iterable[tuple[Text, Text]], whole_labels: bool = False) -> RichTable:
    """Two columns without headings, folded if they do not fit."""
    drawn = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.add_column(overflow="fold", no_wrap=whole_labels)
    drawn.add_column(overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _text(sentence: Sentence) -> Text:
    return Text.assemble(
        *(_plain(span.text, f"{'bold ' if span.strong else ''}{_STYLES[span.tone]}") for span in sentence.spans)
    )


def _plain(text: str, style: str = "") -> Text:
    """Text in one style, with a blank for each control character (also for a line's end)."""
    return Text("".join(c if c.isprintable() else " " for c in text), style.strip())


def fitted(table: Table, width: int) -> tuple[RichTable, list[str]]:
    """The table in `width` cells, and the names of the columns left out to fit."""
    names = [_plain(column.name) for column in table.columns]
    rows = [[_plain(cell.text, _STYLES[cell.tone]) for cell in row] for row in table.rows]
    texts = [[text.plain for text in column] for column in zip(names, *rows, strict=True)]
    full = [max(map(cell_len, column)) for column in texts]
    words = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in texts]
    least = [min(words[i], _PROSE_WIDTH) if column.prose else full[i] for i, column in enumerate(table.columns)]
    kept, gap = _kept(table.columns, least, width)
    spare = width - sum(least[i] + gap for i in kept) + gap
    # Columns that do not fit are folded, so that no text is lost.
    widths = dict(_widths(kept, least, full, spare)) if spare >= 0 else {}
    drawn = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for i in kept:
        justify: JustifyMethod = "right" if table.columns[i].right else "left"
        drawn.add_column(names[i], justify=justify, width=widths.get(i), overflow="fold")
    for row in rows:
        drawn.add_row(*(row[i] for i in kept))
    return drawn, [column.name for i, column in enumerate(table.columns) if i not in kept]


def _kept(columns: Sequence[Column[Any]], least: Sequence[int], width: int) -> tuple[list[int], int]:
    """The places of the columns that stay, and the gap between them; a narrower gap goes before a lost column."""
    kept = list(range(len(columns)))
    while True:
        for gap in _GAPS:
            if sum(least[i] + gap for i in kept) - gap <= width:
                return kept, gap
        last = max(kept, key=lambda i: columns[i].rank)
        if columns[last].rank == 0:
            return kept, _GAPS[-1]
        kept.remove(last)


def _widths(kept: Sequence[int], least: Sequence[int], full: Sequence[int], spare: int) -> Iterator[tuple[int, int]]:
    """Each column's width: columns that need more than their least width share the spare width evenly."""
    in_need = sorted(kept, key=lambda i: full[i] - least[i])
    for behind, place in zip(range(len(in_need), 0, -1), in_need, strict=True):
        more = min(full[place] - least[place], spare // behind)
        spare -= more
        yield place, least[place] + more
