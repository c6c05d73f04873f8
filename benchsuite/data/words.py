"""Words with the frequencies of a language: a Zipf-Mandelbrot vocabulary, and lengths of sentences."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_VOWELS = "aeiou"
_CONSONANTS = "bcdfghklmnprstvwz"


@functools.lru_cache(maxsize=4)
def cumulated(count: int, exponent: float, shift: float) -> np.ndarray:
    """Cumulated shares of the ranks; the share of rank r is proportional to 1 / (r + shift) ** exponent."""
    import numpy as np

    shares = 1.0 / (np.arange(1, count + 1) + shift) ** exponent
    total: np.ndarray = np.cumsum(shares) / shares.sum()
    return total


def ranks(rng: np.random.Generator, count: int, vocabulary: int, exponent: float, shift: float) -> np.ndarray:
    """Draw `count` ranks, from 0, by their shares."""
    import numpy as np

    drawn = np.searchsorted(cumulated(vocabulary, exponent, shift), rng.random(count), side="right")
    return np.minimum(drawn, vocabulary - 1)


def spelling(rank: int) -> str:
    """The word of a rank; frequent words are short."""
    letters = []
    rest = rank
    while True:
        rest, syllable = divmod(rest, len(_VOWELS) * len(_CONSONANTS))
        letters.append(_CONSONANTS[syllable // len(_VOWELS)] + _VOWELS[syllable % len(_VOWELS)])
        if not rest:
            return "".join(letters)
        rest -= 1
