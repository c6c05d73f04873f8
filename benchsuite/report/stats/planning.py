"""Power: the chance to find a difference with the repeats that there are, and the repeats that would do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtr, chdtri, nctdtr, stdtrit

from benchsuite.report.stats.verdict import FAMILY_ERROR, MOST_REPEATS
from benchsuite.report.stats.welch import Floats, Noise, Side, Sides, tested

# The difference whose power is stated, and the power that is enough.
DIFFERENCE, POWER = 0.03, 0.8
_LARGE_EFFECT = 30.0


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
    variances = np.array([of.variance for of in sides])
    effect = math.log1p(difference)
    repeats = (round(statistics.median(of.n[0] for of in sides)), round(statistics.median(of.n[1] for of in sides)))
    measured_df = _df(noise, repeats)
    # The median of a sample variance is below the variance: with 2 degrees of freedom it is 0.69 of it.
    unbiased = float(measured_df / chdtri(measured_df, 0.5))

    def found(n: tuple[int, int]) -> float:
        error = math.sqrt(unbiased * float(np.median((variances / n).sum(axis=1))))
        critical = float(stdtrit(float(noise.df(*_counts(n))[0]), level))
        return _beyond(critical, _df(noise, n), effect / error) if error else 1.0

    low, high = min(repeats), MOST_REPEATS + 1
    while low < high:
        n = (low + high) // 2
        low, high = (low, n) if found((n, n)) >= POWER else (n + 1, high)
    spread = math.sqrt(unbiased * float(np.median(variances.mean(axis=1))))
    return Power(difference, spread, found(repeats), repeats, low if low <= MOST_REPEATS else None)


def _beyond(critical: float, df: float, effect: float) -> float:
    """P(T > critical) of the noncentral t distribution; `effect` is in standard errors."""
    # nctdtr is not a number for some large effects. There, only the estimate of the standard error varies.
    if effect > _LARGE_EFFECT:
        return float(chdtr(df, df * (effect / critical) ** 2))
    return float(1 - nctdtr(df, effect, critical))


def _df(noise: Noise, n: tuple[int, int]) -> float:
    """The degrees of freedom at the suite's ratio of variances, without the doubt that a test adds."""
    return float(replace(noise, width=0.0).df(*_counts(n))[0])


def _counts(n: tuple[int, int]) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Repeats and degrees of freedom of both sides, of shape [1] each."""
    here, base = (np.array([float(of)]) for of in n)
    return (here, base), (here - 1, base - 1)
