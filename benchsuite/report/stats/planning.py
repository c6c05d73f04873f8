"""Power: the chance to find a difference with the repeats that there are, and the repeats that would do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, nctdtr, stdtrit

from benchsuite.report.stats.verdict import FAMILY_ERROR, MOST_REPEATS
from benchsuite.report.stats.welch import Noise, Side, Sides, satterthwaite, tested

# The difference whose power is stated, and the power that is enough.
DIFFERENCE, POWER = 0.03, 0.8


@dataclass(frozen=True)
class Power:
    """The chance to find a difference between two machines in a single job.

    Attributes:
        difference: relative.
        noise: the median over jobs of the standard deviation between repeats, relative.
        found: the probability that such a job is FASTER or SLOWER with the repeats that there are.
        repeats: those of this run and of the base.
        needed: about the repeats on both sides with which `found` is `POWER`; None above `MOST_REPEATS`.
    """

    difference: float
    noise: float
    found: float
    repeats: tuple[int, int]
    needed: int | None


def power(pairs: Mapping[str, tuple[Side, Side]], difference: float = DIFFERENCE) -> Power | None:
    """The power of `judge` over these jobs, for a job of median noise; None if no job is tested.

    By the noncentral t distribution, at the family's first level. The test's own degrees of freedom set the critical
    value; those of the true variances set the distribution.
    """
    sides = [Sides.of(*both) for both in pairs.values() if tested(*both)]
    if not sides:
        return None
    noise, level = Noise.of(sides), 1 - FAMILY_ERROR / len(sides) / 2
    df = np.array([of.df for of in sides])
    # The median of a sample variance is below the variance: at 3 repeats it is 0.69 of it.
    variance = tuple(np.median(np.array([of.variance for of in sides]) * df / chdtri(df, 0.5), axis=0))
    effect = math.log1p(difference)

    def found(n: tuple[int, int]) -> float:
        counts = (np.array([float(n[0])]), np.array([float(n[1])]))
        of_test = float(noise.df(counts, (counts[0] - 1, counts[1] - 1))[0])
        parts = variance[0] / counts[0], variance[1] / counts[1]
        error = math.sqrt(parts[0][0] + parts[1][0])
        own = float(satterthwaite(*parts, counts[0] - 1, counts[1] - 1)[0])
        return 1.0 if not error else float(1 - nctdtr(own, effect / error, stdtrit(of_test, level)))

    repeats = (round(statistics.median(of.n[0] for of in sides)), round(statistics.median(of.n[1] for of in sides)))
    low, high = min(repeats), MOST_REPEATS + 1
    while low < high:
        n = (low + high) // 2
        low, high = (low, n) if found((n, n)) >= POWER else (n + 1, high)
    spread = math.sqrt((variance[0] + variance[1]) / 2)
    return Power(difference, spread, found(repeats), repeats, low if low <= MOST_REPEATS else None)
