"""A document as Markdown: the score block first, then the sections, as GitHub and most others read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from benchsuite.errors import one_line
from benchsuite.report.show.document import Document, Figure, Heading, Part, ScoreBlock, Section, Sentence, Table

# All that Markdown, or the HTML within it, could take as its own.
_SPECIAL = re.compile(r"([\\`*\[\]<>#|~$&]|(?<!\w)_|_(?!\w))")
_PAIR = (Heading(""), Heading(""))


def markdown(document: Document) -> str:
    """The document's text; every line of a table has as many cells as its header."""
    lines = [f"# {_escaped(document.title)}", ""]
    for sentence in document.intro:
        lines += [_escaped(sentence.text), ""]
    if document.score:
        lines += ["## Score", "", *_table(_PAIR, _entries(document.score)), ""]
    for section in (document.jobs, *document.sections):
        lines += _section(section) if section else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _entries(block: ScoreBlock) -> Iterator[tuple[str, str]]:
    for entry in (*block.own, *block.more, *block.facts):
        if isinstance(entry, Figure):
            yield entry.label, " ".join([entry.value.text, *(sentence.text for sentence in entry.beside)])
        else:
            yield entry.label, entry.sentence.text


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {_escaped(section.title)}", "")
    for part in section.parts:
        yield from (*_part(part), "")


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Sentence):
        yield _escaped(part.text)
    elif isinstance(part, Table):
        yield from _table(part.headings, ([cell.text for cell in row] for row in part.rows))
        yield from ("", _escaped(part.legend)) if part.legend else ()
    else:
        yield from _table(_PAIR, ((fact.label, fact.sentence.text) for fact in part.facts))


def _table(headings: Iterable[Heading], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield _line(_escaped(heading.name) for heading in headings)
    yield _line("---:" if heading.right else "---" for heading in headings)
    for row in rows:
        yield _line(map(_escaped, row))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))
