"""A report as a tree of titles, sentences and tables of typed cells; each renderer shows the same tree in its way.

Texts may hold what files say: a renderer escapes them, and lets no control character through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from benchsuite.report.show.format import NONE

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
    """A value (a page sorts by it) and the text that people read; a page shows `note` to those who point at it."""

    text: str
    value: Value = None
    tone: Tone = ""
    note: str = ""

    @property
    def absent(self) -> bool:
        """Whether there is nothing to read or to sort by."""
        return self.text in ("", NONE)


@dataclass(frozen=True)
class Heading:
    """The head of a column.

    `right`: it holds numbers and is aligned to the right. `prose`: its cells may be folded. `rank`: the higher, the
    sooner a narrow renderer leaves it out; 0 is never left out.
    """

    name: str
    right: bool = False
    rank: int = 0
    prose: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under headings. The first column names each row. `legend` explains the columns."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    legend: str = ""


@dataclass(frozen=True)
class Fact:
    """A sentence under a label."""

    label: str
    sentence: Sentence


@dataclass(frozen=True)
class Facts:
    """Labels with their sentences: a table without headings."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Figure:
    """A number (or verdict) of the score block, with what is said beside it."""

    label: str
    value: Cell
    beside: tuple[Sentence, ...] = ()


@dataclass(frozen=True)
class ScoreBlock:
    """What a run scores.

    `own` are the figures of the run itself. `more` are, in reading order, the figures of a price or a comparison, and
    the notes (facts) that a reader of the figures must know. `facts` stand beside every score.
    """

    own: tuple[Figure, ...]
    more: tuple[Figure | Fact, ...]
    facts: tuple[Fact, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        return (*self.own, *(entry for entry in self.more if isinstance(entry, Figure)))

    @property
    def notes(self) -> tuple[Fact, ...]:
        return tuple(entry for entry in self.more if isinstance(entry, Fact))


Part = Table | Facts | Sentence


@dataclass(frozen=True)
class Section:
    """A title over its parts, in order."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Document:
    """`intro` stands below the title. `jobs` and `score` are None without jobs; each renderer chooses their places."""

    title: str
    intro: tuple[Sentence, ...]
    jobs: Section | None
    sections: tuple[Section, ...]
    score: ScoreBlock | None


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A heading, and what stands below it in each row.

    `of` gives the value of a row, which `words` writes as text; or it gives the whole cell. `optional`: the column is
    left out if all its cells are absent. The other fields are those of a Heading.
    """

    name: str
    of: Callable[[Row], Value | Cell]
    words: Callable[[Any], str] = str
    right: bool = False
    rank: int = 0
    prose: bool = False
    optional: bool = False

    @property
    def heading(self) -> Heading:
        return Heading(self.name, self.right, self.rank, self.prose)

    def cell(self, row: Row) -> Cell:
        value = self.of(row)
        return value if isinstance(value, Cell) else Cell(self.words(value), value)


def table(
    columns: Iterable[Column[Row]], rows: Sequence[Row], legend: str = "", tone: Callable[[Row], Tone] | None = None
) -> Table:
    """A line of cells for each row, in the order of the columns; `tone` is that of a row's cells without their own."""
    filled = [(column, [column.cell(row) for row in rows]) for column in columns]
    kept = [(column, cells) for column, cells in filled if not (column.optional and all(c.absent for c in cells))]
    headings = tuple(column.heading for column, _ in kept)
    lines = [tuple(cells[place] for _, cells in kept) for place in range(len(rows))]
    if tone:
        lines = [tuple(_toned(cell, tone(row)) for cell in line) for row, line in zip(rows, lines, strict=True)]
    return Table(headings, tuple(lines), legend)


def _toned(cell: Cell, tone: Tone) -> Cell:
    return cell if cell.tone else replace(cell, tone=tone)


def sentence(text: str, tone: Tone = "", strong: bool = False) -> Sentence:
    """A sentence in one tone."""
    return Sentence((Span(text, tone, strong),))


def fact(label: str, text: str, tone: Tone = "") -> Fact:
    """A fact in one tone."""
    return Fact(label, sentence(text, tone))
