"""A report as a document: taken from what `render` prints, so that text, Markdown and the page show the same."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from benchsuite.report.show.format import NONE
from benchsuite.report.show.render import Report, render

# So wide that no table leaves a column out.
_WIDTH = 100_000
_MOODS = {"red": "bad", "yellow": "warn", "green": "good"}
_NUMBER = re.compile(r"\s*±?\s*([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)(?:\s|%|$)")


@dataclass(frozen=True)
class Run:
    """Text of one look: `mood` is "good", "warn", "bad" or "", whatever colours show it."""

    text: str
    mood: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Cell:
    """Text without control characters, in runs."""

    runs: tuple[Run, ...]

    @property
    def text(self) -> str:
        """All runs, blanks between words single."""
        return " ".join("".join(run.text for run in self.runs).split())

    @property
    def value(self) -> float | None:
        """The number that the text begins with; None for other text."""
        found = _NUMBER.match(self.text)
        return float(found[1].replace(",", "")) if found else None

    @property
    def absent(self) -> bool:
        return self.text in ("", NONE)


@dataclass(frozen=True)
class Heading:
    name: str
    right: bool


@dataclass(frozen=True)
class Grid:
    """A table; without a header row `named` is False, and the first column names each row."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    named: bool


@dataclass(frozen=True)
class Section:
    """A heading with tables and paragraphs (a Cell is one) in order."""

    title: str
    parts: tuple[Grid | Cell, ...]


@dataclass(frozen=True)
class Document:
    """`title` and `intro` stand above all; `score` is the score block, None where there are no jobs."""

    title: str
    intro: tuple[Cell, ...]
    score: Section | None
    sections: tuple[Section, ...]


class _Recorder(Console):
    """A console that keeps what it is to print, by section."""

    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), width=_WIDTH, markup=False, emoji=False, highlight=False, no_color=True)
        self.sections: list[tuple[str, list[Grid | Cell]]] = [("", [])]

    def print(self, *objects: Any, **options: Any) -> None:
        for printed in objects:
            self.sections[-1][1].extend(self._parts(printed))

    def rule(self, title: str | Text = "", **options: Any) -> None:
        self.sections.append((_plain(str(title)), []))

    def _parts(self, printed: Any) -> Iterator[Grid | Cell]:
        if isinstance(printed, Padding):
            yield from self._parts(printed.renderable)
        elif isinstance(printed, Group):
            for part in printed.renderables:
                yield from self._parts(part)
        elif isinstance(printed, Table):
            yield self._grid(printed)
        else:
            yield self._cell(printed)

    def _grid(self, table: Table) -> Grid:
        columns = [[self._cell(cell) for cell in column.cells] for column in table.columns]
        headings = tuple(Heading(self._cell(column.header).text, column.justify == "right") for column in table.columns)
        return Grid(headings, tuple(zip(*columns, strict=True)), table.show_header)

    def _cell(self, printed: Any) -> Cell:
        if not isinstance(printed, Text):
            printed = Text(printed) if isinstance(printed, str) else Text("".join(self._drawn(printed)))
        if not printed.spans:  # rich then leaves the style of the whole to the console
            return Cell((_run(printed.plain, self.get_style(printed.style, default="none")),) if printed.plain else ())
        return Cell(tuple(_run(segment.text, segment.style) for segment in printed.render(self) if segment.text))

    def _drawn(self, printed: Any) -> Iterator[str]:
        """What is neither text nor a table, as the text that it would print."""
        for line in self.render_lines(printed, self.options.update(width=120), pad=False):
            yield from (segment.text for segment in line)
            yield " "


def document(report: Report) -> Document:
    """All that the text report shows; sections in its order, but for the score block."""
    recorder = _Recorder()
    render(report, recorder)
    (_, opening), *rest = recorder.sections
    first = next((place for place, part in enumerate(opening) if isinstance(part, Grid)), len(opening))
    title, *intro = (part for part in opening[:first] if isinstance(part, Cell))
    sections = [Section(name, tuple(parts)) for name, parts in rest]
    if opening[first:]:
        sections.insert(0, Section("Jobs", tuple(opening[first:])))
    score = next((section for section in sections if section.title == "Score"), None)
    return Document(title.text, tuple(intro), score, tuple(section for section in sections if section is not score))


def _run(text: str, style: Style | None) -> Run:
    if style is None:
        return Run(_plain(text))
    return Run(_plain(text), _MOODS.get(style.color.name, "") if style.color else "", bool(style.bold))


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
