"""A document as Markdown: the score block first, then the sections, as GitHub and most others read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from benchsuite.errors import one_line
from benchsuite.report.show.document import Document, Figure, Part, ScoreBlock, Sentence, Table

# The characters with a meaning in Markdown, or in HTML within it.
_SPECIAL = re.compile(r"([\\`*\[\]<>#|~$&]|(?<!\w)_|_(?!\w))")


def markdown(document: Document) -> str:
    """The document's text; every line of a table has as many cells as its header."""
    lines = [f"# {_escaped(document.title)}", ""]
    for sentence in document.intro:
        lines += [_escaped(sentence.text), ""]
    if document.score:
        lines += [f"## {_escaped(document.score.title)}", "", *_pairs(_entries(document.score)), ""]
    for section in (document.jobs, *document.sections):
        if section:
            lines += [f"## {_escaped(section.title)}", ""]
            lines += [line for part in section.parts for line in (*_part(part), "")]
    return "\n".join(lines).rstrip("\n") + "\n"


def _entries(block: ScoreBlock) -> Iterator[tuple[str, str]]:
    for entry in (*block.own, *block.more, *block.facts):
        if isinstance(entry, Figure):
            yield entry.label, " ".join([entry.value.text, *(sentence.text for sentence in entry.beside)])
        else:
            yield entry.label, entry.sentence.text


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Sentence):
        yield _escaped(part.text)
    elif isinstance(part, Table):
        yield _line(column.name for column in part.columns)
        yield _line("---:" if column.right else "---" for column in part.columns)
        yield from (_line(cell.text for cell in row) for row in part.rows)
        yield from ("", _escaped(part.legend)) if part.legend else ()
    else:
        yield from _pairs((fact.label, fact.sentence.text) for fact in part)


def _pairs(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A table without headings, which Markdown still requires."""
    yield from ("|  |  |", "| --- | --- |")
    yield from map(_line, rows)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))
