"""A report as Markdown: the score block first, then every table of the text, as GitHub's and most others' take it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from benchsuite.report.show.document import Cell, Document, Grid, Section

# All that Markdown or the HTML within it could take for its own.
_SPECIAL = re.compile(r"([\\`*\[\]<>#|~$&]|(?<!\w)_|_(?!\w))")


def markdown(document: Document) -> str:
    """The document's text; every line of a table has as many cells as its header."""
    lines = [f"# {_escaped(document.title)}", ""]
    for cell in document.intro:
        lines += [_escaped(cell.text), ""]
    for section in (document.score, *document.sections):
        if section:
            lines += [f"## {_escaped(section.title)}", "", *_parts(section)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _parts(section: Section) -> Iterator[str]:
    for part in section.parts:
        yield from _table(part) if isinstance(part, Grid) else [_escaped(part.text)]
        yield ""


def _table(grid: Grid) -> Iterator[str]:
    yield _line(_escaped(heading.name) if grid.named else "" for heading in grid.headings)
    yield _line("---:" if heading.right else "---" for heading in grid.headings)
    for row in grid.rows:
        if any(cell.text for cell in row):
            yield _line(map(_shown, row))


def _shown(cell: Cell) -> str:
    return _escaped(cell.text)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
