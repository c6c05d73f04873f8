"""A report as a tree of titles, sentences and tables of typed cells, which every renderer shows.

Texts may come from files: a renderer escapes them and removes control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from benchsuite.report.format import NONE

Tone = Literal["", "good", "warn", "bad", "quiet"]
Value = float | str | None
Row = TypeVar("Row")


@dataclass(frozen=True)
class Span:
    """A part of a sentence in one tone."""

    text: str
    tone: Tone = ""
    strong: bool = False


@dataclass(frozen=True)
class Sentence:
    """Text whose parts may differ in tone."""

    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True)
class Cell:
    """A value, by which a page sorts, and its text; a page shows `note` under the pointer."""

    text: str
    value: Value = None
    tone: Tone = ""
    note: str = ""

    @property
    def absent(self) -> bool:
        """Whether the cell has neither a text nor a value."""
        return self.text in ("", NONE)


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    `of` gives the value of a row, which `words` turns into text; or it gives the whole cell. `right`: the column holds
    numbers and is aligned to the right. `rank`: a narrow renderer leaves out the column of the highest rank first, and
    never one of rank 0. `prose`: its cells may be folded. `optional`: it is left out if all its cells are absent.
    """

    name: str
    of: Callable[[Row], Value | Cell]
    words: Callable[[Any], str] = str
    right: bool = False
    rank: int = 0
    prose: bool = False
    optional: bool = False

    def cell(self, row: Row) -> Cell:
        value = self.of(row)
        return value if isinstance(value, Cell) else Cell(self.words(value), value)


@dataclass(frozen=True)
class Table:
    """Rows of cells under their columns. The first column names each row. `legend` explains the columns."""

    columns: tuple[Column[Any], ...]
    rows: tuple[tuple[Cell, ...], ...]
    legend: str = ""


@dataclass(frozen=True)
class Fact:
    """A sentence under a label."""

    label: str
    sentence: Sentence


@dataclass(frozen=True)
class Figure:
    """A number (or verdict) of the score block, with the sentences beside it."""

    label: str
    value: Cell
    beside: tuple[Sentence, ...] = ()


@dataclass(frozen=True)
class ScoreBlock:
    """The score of a run.

    `own` holds the figures of the run itself. `more` holds, in reading order, the figures of a price or a comparison
    and the reservations about all figures. `facts` belong to every score.
    """

    own: tuple[Figure, ...]
    more: tuple[Figure | Fact, ...]
    facts: tuple[Fact, ...]
    title: str = "Score"

    @property
    def figures(self) -> tuple[Figure, ...]:
        return (*self.own, *(entry for entry in self.more if isinstance(entry, Figure)))

    @property
    def notes(self) -> tuple[Fact, ...]:
        return tuple(entry for entry in self.more if isinstance(entry, Fact))


# Facts are a table of two columns without names.
Part = Table | Sentence | tuple[Fact, ...]


@dataclass(frozen=True)
class Section:
    """A title over its parts, in order."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Document:
    """The content of a report.

    Attributes:
        title: the machine and what it ran.
        intro: the headline first, then what it cannot hold.
        jobs, score: None without jobs; each renderer chooses their places.
        outro: the last lines.
    """

    title: str
    intro: tuple[Sentence, ...]
    jobs: Section | None
    sections: tuple[Section, ...]
    score: ScoreBlock | None
    outro: tuple[Sentence, ...] = ()


def table(
    columns: Iterable[Column[Row]], rows: Iterable[Row], legend: str = "", tone: Callable[[Row], Tone] = lambda row: ""
) -> Table:
    """A table of `rows` under `columns`; `tone` gives the tone of a row's cells that have no own tone."""
    columns = tuple(columns)
    lines = [(tone(row), [column.cell(row) for column in columns]) for row in rows]
    kept = [i for i, column in enumerate(columns) if not column.optional or any(not of[i].absent for _, of in lines)]
    cells = (tuple(replace(of[i], tone=of[i].tone or of_row) for i in kept) for of_row, of in lines)
    return Table(tuple(columns[i] for i in kept), tuple(cells), legend)


def sentence(text: str, tone: Tone = "", strong: bool = False) -> Sentence:
    """A sentence in one tone."""
    return Sentence((Span(text, tone, strong),))


def fact(label: str, text: str, tone: Tone = "") -> Fact:
    """A fact in one tone."""
    return Fact(label, sentence(text, tone))
