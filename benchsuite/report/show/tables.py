"""Tables for a terminal: no control character passes, and a narrow one loses whole columns, never parts of names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_GAPS = (2, 1)
# A column of prose is as wide as its longest word, up to so much, before others are left out for it.
_PROSE_WIDTH = 20


@dataclass(frozen=True)
class Column:
    """`right`: aligned to the right. `prose`: may be folded. `rank`: the higher, the sooner it is left out; 0 never."""

    name: str
    right: bool = False
    prose: bool = False
    rank: int = 0


def plain(text: str | Text) -> Text:
    """Text from elsewhere, each control character (so also a line's end) a blank; styles stay where they are."""
    shown = text.copy() if isinstance(text, Text) else Text()
    shown.plain = "".join(c if c.isprintable() else " " for c in str(text))
    return shown


def fitted(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], width: int) -> tuple[Table, list[str]]:
    """Aligned columns under their names, in a width in cells, and the names of those that were left out to fit."""
    cells = [[plain(cell) for cell in row] for row in rows]
    texts = [[column.name, *(row[place].plain for row in cells)] for place, column in enumerate(columns)]
    full = [max(map(cell_len, of)) for of in texts]
    words = [max(cell_len(word) for text in of for word in text.split() or [""]) for of in texts]
    least = [min(words[i], _PROSE_WIDTH) if column.prose else full[i] for i, column in enumerate(columns)]
    kept, gap = _kept(columns, least, width)
    spare = width - sum(least[i] + gap for i in kept) + gap
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    given = dict(_given(kept, least, full, spare)) if spare >= 0 else {}
    for place in kept:
        justify = "right" if columns[place].right else "left"
        # Where they don't fit at all, folding is better than losing a part.
        table.add_column(columns[place].name, justify=justify, width=given.get(place), overflow="fold")  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*(row[place] for place in kept))
    return table, [column.name for place, column in enumerate(columns) if place not in kept]


def _kept(columns: Sequence[Column], least: Sequence[int], width: int) -> tuple[list[int], int]:
    """The places of the columns that stay, and the gap between them; a narrower gap is tried first."""
    kept = list(range(len(columns)))
    while True:
        for gap in _GAPS:
            if sum(least[i] + gap for i in kept) - gap <= width:
                return kept, gap
        last = max(kept, key=lambda i: columns[i].rank)
        if columns[last].rank == 0:
            return kept, _GAPS[-1]
        kept.remove(last)


def _given(kept: Sequence[int], least: Sequence[int], full: Sequence[int], spare: int) -> Iterator[tuple[int, int]]:
    """Each column's width: what is to spare is shared evenly by those that can use more than their least."""
    in_need = sorted(kept, key=lambda i: full[i] - least[i])
    for behind, place in zip(range(len(in_need), 0, -1), in_need, strict=True):
        more = min(full[place] - least[place], spare // behind)
        spare -= more
        yield place, least[place] + more


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Two columns without names, folded where they must be."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    return table
