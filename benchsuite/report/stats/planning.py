"""Power: the chance to find a difference with the repeats that there are, and the repeats that would do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, nctdtr, stdtrit

from benchsuite.report.stats.verdict import FAMILY_ERROR, MOST_REPEATS
from benchsuite.report.stats.welch import Noise, Side, Sides, tested

# The difference whose power is stated, and the power that is enough.
DIFFERENCE, POWER = 0.03, 0.8


@dataclass(frozen=True)
class Power:
    """The chance to find a difference between two machines in a single job.

    Attributes:
        difference: relative.
        noise: the median over jobs of the standard deviation between repeats, relative.
        found: the probability that such a job is FASTER or SLOWER with the repeats that there are.
        repeats: those of this run and of the baseline.
        needed: about the repeats on both sides with which `found` is `POWER`; None above `MOST_REPEATS`.
    """

    difference: float
    noise: float
    found: float
    repeats: tuple[int, int]
    needed: int | None


def power(pairs: Mapping[str, tuple[Side, Side]], difference: float = DIFFERENCE) -> Power | None:
    """The power of `judge` over these jobs, for a job of median noise; None if no job is tested.

    By the noncentral t distribution, at the family's first level. Its degrees of freedom are those at the suite's ratio
    of variances; the critical value has the fewer ones of the test.
    """
    sides = [Sides.of(*both) for both in pairs.values() if tested(*both)]
    if not sides:
        return None
    noise, level = Noise.of(sides), 1 - FAMILY_ERROR / len(sides) / 2
    df = np.array([of.df for of in sides])
    # The median of a sample variance is below the variance: by 31 % at 3 repeats.
    variance = tuple(np.median([of.variance for of in sides] / (chdtri(df, 0.5) / df), axis=0))
    effect = math.log1p(difference)

    def found(n: tuple[int, int]) -> float:
        counts = (np.array([float(n[0])]), np.array([float(n[1])]))
        of_test, df = (float(of.df(counts, (counts[0] - 1, counts[1] - 1))[0]) for of in (noise, noise.without_doubt))
        error = math.sqrt(variance[0] / n[0] + variance[1] / n[1])
        missed = float(nctdtr(df, effect / error, stdtrit(of_test, level))) if error else 0.0
        # scipy gives NaN in place of some probabilities that are 0 to its precision.
        return 1.0 if math.isnan(missed) else 1 - missed

    repeats = (round(statistics.median(of.n[0] for of in sides)), round(statistics.median(of.n[1] for of in sides)))
    low, high = min(repeats), MOST_REPEATS + 1
    while low < high:
        n = (low + high) // 2
        low, high = (low, n) if found((n, n)) >= POWER else (n + 1, high)
    spread = math.sqrt((variance[0] + variance[1]) / 2)
    return Power(difference, spread, found(repeats), repeats, low if low <= MOST_REPEATS else None)
