"""Ratings as MovieLens 20M has them: `ml-20m/ratings.csv` with userId, movieId, rating, timestamp."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from benchsuite.data import pictures, words, writers

if TYPE_CHECKING:
    import numpy as np

UNIT = 1000
_FILE = "ml-20m/ratings.csv"
# Share of each rating from 0.5 to 5.0 in percent: whole stars are more frequent than half ones.
_SHARES = (1.2, 3.4, 1.4, 7.2, 4.4, 21.4, 11.0, 27.8, 7.7, 14.5)
_FIRST_S, _LAST_S = 789_652_009, 1_427_784_002


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Users, rated movies, and the highest movie number. Ratings of a user: fewest, median, spread of the log."""

    users: Annotated[int, Meta(gt=0)]
    movies: Annotated[int, Meta(gt=1)]
    highest_movie: Annotated[int, Meta(gt=1)]
    fewest: Annotated[int, Meta(gt=0)]
    median: Annotated[float, Meta(gt=0)]
    spread: Annotated[float, Meta(gt=0)]
    most: Annotated[int, Meta(gt=0)]


def units(settings: Settings) -> int:
    """A unit is up to 1000 users."""
    return -(-settings.users // UNIT)


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The ratings of the users of one unit, by user, then movie."""
    import numpy as np

    if unit == 0:
        yield f"{_FILE}.part-0", b"userId,movieId,rating,timestamp\n"
    rng = pictures.random(settings.seed, unit)
    users = range(unit * UNIT + 1, min((unit + 1) * UNIT, settings.users) + 1)
    most = min(settings.most, settings.movies // 2)
    above = np.exp(rng.normal(np.log(settings.median - settings.fewest + 0.5), settings.spread, len(users)))
    counts = np.minimum(settings.fewest + above.astype(np.int64), most)
    numbers = _numbers(settings)
    steps = np.cumsum(_SHARES) / sum(_SHARES)
    lines = []
    for user, count in zip(users, counts.tolist(), strict=True):
        movies = np.sort(numbers[_distinct(rng, count, settings.movies)]).tolist()
        stars = np.minimum(np.searchsorted(steps, rng.random(count), side="right"), 9).tolist()
        begun = int(rng.integers(_FIRST_S, _LAST_S))
        times = (begun + rng.integers(0, 7200, count)).tolist()
        lines += [f"{user},{m},{_STARS[s]},{t}\n" for m, s, t in zip(movies, stars, times, strict=True)]
    yield f"{_FILE}.part-1-{unit:06d}", "".join(lines).encode()


_STARS = tuple(f"{half / 2:.1f}" for half in range(1, 11))


def _distinct(rng: np.random.Generator, count: int, movies: int) -> np.ndarray:
    """`count` different movies, drawn one after another by popularity."""
    import numpy as np

    drawn = np.empty(0, np.int64)
    while True:
        more = words.ranks(rng, count * 2 + 10, movies, 2.5, movies / 53)
        drawn = np.concatenate([drawn, more])
        different = dict.fromkeys(drawn.tolist())
        if len(different) >= count:
            return np.fromiter(different, np.int64, count)


@functools.lru_cache(maxsize=1)
def _numbers(settings: Settings) -> np.ndarray:
    """The numbers of the movies by popularity: not in order, and with gaps."""
    rng = pictures.random(settings.seed, 2**31)
    return rng.permutation(settings.highest_movie)[: settings.movies] + 1
