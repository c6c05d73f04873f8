"""Articles as WikiText-2 has them: `wikitext-2/wiki.train.tokens`, blank-separated words, headings, `<unk>`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from benchsuite.data import pictures, words, writers

if TYPE_CHECKING:
    import numpy as np

_SPLITS = ("train", "valid", "test")
_LEAST = 3
_UNKNOWN = "<unk>"


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words and line ends by split; `vocabulary` counts different words, `<unk>` and the line end included."""

    train: Annotated[int, Meta(gt=0)]
    valid: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(gt=0)]
    vocabulary: Annotated[int, Meta(gt=10)]
    unknown: Annotated[float, Meta(ge=0, le=1)]


def units(settings: Settings) -> int:
    """A unit is a split."""
    return len(_SPLITS)


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """One split. `train` contains every word of the vocabulary at least three times, as WikiText does."""
    import numpy as np

    split = _SPLITS[unit]
    rng = pictures.random(settings.seed, unit)
    total = (settings.train, settings.valid, settings.test)[unit]
    lines = _lengths(rng, total)
    kinds = settings.vocabulary - 3  # without <unk>, the line end and the sign of headings
    count = sum(map(abs, lines))
    drawn = words.ranks(rng, count, kinds, 1.0, 0.5)
    fixed = rng.permutation(count)[: kinds * _LEAST if split == "train" else 0]
    drawn[fixed] = np.resize(np.arange(kinds), len(fixed))
    unknown = rng.random(count) < settings.unknown * count / max(1, count - len(fixed))
    unknown[fixed] = False
    spelled = [words.spelling(rank) for rank in range(kinds)]
    drawn[unknown] = kinds
    spelled.append(_UNKNOWN)
    texts = [spelled[rank] for rank in drawn.tolist()]
    yield f"wikitext-2/wiki.{split}.tokens", _text(texts, lines).encode()


def _lengths(rng: np.random.Generator, total: int) -> list[int]:
    """Words of each line (0: an empty line); words, line ends and the signs of headings are `total` together."""
    lengths: list[int] = []
    left, paragraphs = total, 0
    while left > 0:
        if paragraphs == 0:
            paragraphs = int(rng.integers(1, 8))
            heading = int(rng.integers(1, 5))
            lengths += [0, -heading, 0]
            left -= heading + 5
        words_here = max(1, min(int(rng.gamma(2.2, 55.0)), left - 1))
        lengths.append(words_here)
        left -= words_here + 1
        paragraphs -= 1
    return lengths


def _text(texts: list[str], lines: list[int]) -> str:
    found, at = [], 0
    for length in lines:
        here = texts[at : at + abs(length)]
        at += abs(length)
        found.append(" = " + " ".join(here) + " = " if length < 0 else " " + " ".join(here) + " " if here else " ")
    return "\n".join(found) + "\n"
