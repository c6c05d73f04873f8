"""The test set of a data set of parallel sentences, and the text of units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError, reason
from benchsuite.models.readers import malformed, place
from benchsuite.models.readers.bpe_ids import SPECIALS

# The end of a word in the units of `data.bpe`; units of generated data are whole words.
WORD_END = "</w>"
UNKNOWN = "<unk>"
# The units were made from text in which punctuation stands alone. Inside a number it belongs to its digits.
_IN_NUMBER = re.compile(r"(?<=\d) ([.,:]) (?=\d)")


@dataclass(frozen=True)
class TestSet:
    """Sentences to translate.

    Attributes:
        name: that of the data set and the split.
        sources: the units of each sentence.
        references: the text of each translation.
        vocabulary: the text of each unit.
    """

    __test__ = False  # pytest takes the name for that of a test

    name: str
    sources: tuple[tuple[int, ...], ...]
    references: tuple[str, ...]
    vocabulary: tuple[str, ...]


def test_set(data: DataFolder) -> TestSet:
    """The split `test` of a data set, or `val` if it has no such split. A split without text is read from its units.

    Raises:
        ModelError: a file is missing or malformed.
    """
    split = "test" if "test_source" in data.layout else "val"
    vocabulary = tuple(_lines(data, "vocabulary"))
    sources = tuple(_units(data, f"{split}_source", len(vocabulary)))
    if f"{split}_reference" in data.layout:
        references = tuple(_lines(data, f"{split}_reference"))
    else:
        references = tuple(text_of(row, vocabulary) for row in _units(data, f"{split}_target", len(vocabulary)))
    if len(sources) != len(references):
        lines = f"{len(sources):,} sentences and {len(references):,} translations"
        raise malformed(data, place(data, f"{split}_source"), lines)
    return TestSet(f"{data.name} {split}", sources, references, vocabulary)


test_set.__test__ = False  # type: ignore[attr-defined]


def text_of(units: Iterable[int], vocabulary: Sequence[str]) -> str:
    """The text of some units: words with blanks between them, and numbers as one word. Special units are `UNKNOWN`."""
    pieces = [vocabulary[unit] if SPECIALS <= unit < len(vocabulary) else UNKNOWN for unit in units]
    if any(piece.endswith(WORD_END) for piece in pieces):
        return _IN_NUMBER.sub(r"\1", "".join(pieces).replace(WORD_END, " ").strip())
    return " ".join(pieces)


def _lines(data: DataFolder, role: str) -> list[str]:
    path = place(data, role)
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise ModelError(f"{path}: cannot be read: {why}") from None


def _units(data: DataFolder, role: str, count: int) -> list[tuple[int, ...]]:
    rows = []
    for number, line in enumerate(_lines(data, role), 1):
        words = line.split()
        if not all(word.isascii() and word.isdigit() and int(word) < count for word in words):
            raise malformed(data, place(data, role), f"line {number:,} is not numbers of units below {count:,}")
        rows.append(tuple(map(int, words)))
    return rows
