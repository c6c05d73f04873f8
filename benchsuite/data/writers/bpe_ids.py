"""Pairs of sentences as numbers of BPE units, one sentence a line: `train.en`, `train.de`, `val.*`, and `vocab.txt`.

With a split `test` there are also `test.en`, `test.de`, and the translations as text in `test.reference`. The first
four numbers are padding, unknown, begin and end. Sentences do not contain begin and end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from benchsuite.data import pictures, words, writers

if TYPE_CHECKING:
    import numpy as np

UNIT = 20_000
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pairs by split; the vocabulary with its four special units; lengths in units: median and spread of the log."""

    train: Annotated[int, Meta(gt=0)]
    val: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(ge=0)] = 0
    vocabulary: Annotated[int, Meta(gt=4)]
    median_length: Annotated[float, Meta(gt=1)]
    spread: Annotated[float, Meta(gt=0)]
    longest: Annotated[int, Meta(gt=1)]
    longer_target: Annotated[float, Meta(gt=0)]


def _pieces(settings: Settings) -> list[tuple[str, int, int]]:
    return [
        (split, first, min(first + UNIT, count))
        for split, count in (("train", settings.train), ("val", settings.val), ("test", settings.test))
        for first in range(0, count, UNIT)
    ]


def units(settings: Settings) -> int:
    """A unit is up to 20,000 pairs."""
    return len(_pieces(settings))


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The pairs of one unit."""
    import numpy as np

    split, first, end = _pieces(settings)[unit]
    if unit == 0:
        spelled = [*SPECIAL, *(words.spelling(rank) for rank in range(settings.vocabulary - len(SPECIAL)))]
        yield "vocab.txt", ("\n".join(spelled) + "\n").encode()
    rng = pictures.random(settings.seed, unit)
    count = end - first
    source = np.exp(rng.normal(np.log(settings.median_length), settings.spread, count))
    target = source * settings.longer_target * np.exp(rng.normal(0.0, 0.15, count))
    for language, lengths in (("en", source), ("de", target)):
        whole = np.clip(lengths.astype(np.int64), 1, settings.longest)
        lines = _lines(rng, whole, settings.vocabulary)
        yield f"{split}.{language}.part-{first:09d}", lines
    if split == "test":
        yield f"test.reference.part-{first:09d}", _text(lines)


def _text(lines: bytes) -> bytes:
    """Lines of numbers as words."""
    rows = ([words.spelling(int(number) - len(SPECIAL)) for number in line.split()] for line in lines.splitlines())
    return "".join(f"{' '.join(row)}\n" for row in rows).encode()


def _lines(rng: np.random.Generator, lengths: np.ndarray, vocabulary: int) -> bytes:
    drawn = words.ranks(rng, int(lengths.sum()), vocabulary - len(SPECIAL), 1.0, 1.0).tolist()
    texts = _numbers(vocabulary)
    lines, at = [], 0
    for length in lengths.tolist():
        lines.append(" ".join([texts[rank] for rank in drawn[at : at + length]]))
        at += length
    return ("\n".join(lines) + "\n").encode()


@functools.lru_cache(maxsize=1)
def _numbers(vocabulary: int) -> list[str]:
    return [str(number) for number in range(len(SPECIAL), vocabulary)]
