"""A language that a small model learns to translate: each word has one translation, and pairs of words swap places.

The files are those of `bpe_ids`, with a test set: `test.en`, `test.de` as numbers, and `test.reference` as text. Units
are whole words. The target of word w is another word of the target's half of the vocabulary; words 2k and 2k + 1 of a
sentence change places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from benchsuite.data import pictures, words, writers
from benchsuite.data.writers.bpe_ids import SPECIAL

if TYPE_CHECKING:
    import numpy as np

SPLITS = ("train", "val", "test")


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pairs by split, words of each language, and the range of the lengths."""

    train: Annotated[int, Meta(gt=0)]
    val: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(gt=0)]
    words: Annotated[int, Meta(gt=1)]
    shortest: Annotated[int, Meta(gt=0)]
    longest: Annotated[int, Meta(gt=0)]


def units(settings: Settings) -> int:
    """A unit is a split."""
    return len(SPLITS)


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The pairs of one split; the vocabulary with the first."""
    count, split = settings.words, SPLITS[unit]
    spelled = [*SPECIAL, *(words.spelling(rank) for rank in range(2 * count))]
    if unit == 0:
        yield "vocab.txt", ("\n".join(spelled) + "\n").encode()
    translation = pictures.random(settings.seed, len(SPLITS)).permutation(count)
    rng = pictures.random(settings.seed, unit)
    sources, targets = [], []
    for length in rng.integers(settings.shortest, settings.longest + 1, getattr(settings, split)).tolist():
        source = rng.integers(0, count, length)
        sources.append(_line(source, len(SPECIAL)))
        targets.append(_line(swapped(translation[source]), len(SPECIAL) + count))
    yield f"{split}.en", ("\n".join(sources) + "\n").encode()
    yield f"{split}.de", ("\n".join(targets) + "\n").encode()
    if split == "test":
        texts = [" ".join(spelled[int(number)] for number in line.split()) for line in targets]
        yield "test.reference", ("\n".join(texts) + "\n").encode()


def swapped(sentence: np.ndarray) -> np.ndarray:
    """The sentence with each pair of neighbours in reverse order; the last of an odd number stays."""
    found = sentence.copy()
    even = len(sentence) // 2 * 2
    found[0:even:2], found[1:even:2] = sentence[1:even:2], sentence[0:even:2]
    return found


def _line(numbers: np.ndarray, first: int) -> str:
    return " ".join(map(str, (numbers + first).tolist()))
