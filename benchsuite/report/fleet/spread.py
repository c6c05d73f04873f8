"""Outliers among many alike places, by the spread of the places themselves. Arrays only.

Healthy nodes of one kind differ by a little, and they do so in every repeat. A test of a node's own repeats against 0
would therefore name each of them, or, with three repeats and thousands of tests, none. The unit here is the place: its
deviation from the fleet's median is divided by the fleet's spread, 1.4826 times the median absolute deviation. A
minority of slow places moves neither. The ratio is compared with Student's t. Its degrees of freedom are those of the
estimated spread: the median absolute deviation has an efficiency of 37 % (Rousseeuw and Croux 1993).

Healthy places may have heavier tails than a normal distribution. `tail_of` finds the t distribution that has the same
ratio of its 95 % (or 99 %) quantile to its median deviation as the places have, over all jobs together. Its degrees of
freedom lower those of the test.

Holm's procedure keeps the error of each family of tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from benchsuite.report.stats.gpu_tests import median
from benchsuite.report.stats.verdict import FAMILY_ERROR, holm

Floats = NDArray[np.float64]
# Below this number of places their spread is not known well enough for any test.
MIN_PLACES = 8
_EFFICIENCY = 0.37
_TO_SIGMA = 1.4826
_POWER = 0.8
_HEAVIEST = 0.5
_FEWEST_IN_TAIL = 500
_MANY_IN_TAIL = 5000
# A place with less than this share of the jobs' weight has no figure over all jobs.
_MOST_JOBS = 0.75


@dataclass(frozen=True)
class Spreads:
    """A family of tests.

    Attributes:
        effect: relative difference from the fleet's median (-0.1: a tenth slower); the last axis holds the places.
        scale: the spread of each row of places, as a difference of logs; NaN where it has too few places.
        adjusted: p after Holm's adjustment, scaled so that a test is significant at `FAMILY_ERROR`; NaN untested.
        smallest: the slowdown that is named in 80 % of cases in a row of median spread; None without a test.
    """

    effect: Floats
    scale: Floats
    adjusted: Floats
    smallest: float | None

    @property
    def tests(self) -> int:
        return int(np.isfinite(self.adjusted).sum())

    def outliers(self, least: float) -> NDArray[np.bool_]:
        """Where a test is significant and the effect is at least `least`."""
        return (self.adjusted <= FAMILY_ERROR) & (np.abs(self.effect) >= least)


def centred(logs: Floats) -> Floats:
    """Differences from the median over the last axis."""
    found: Floats = logs - median(logs)[..., None]
    return found


def spread_of(deviations: Floats) -> Floats:
    """The robust standard deviation over the last axis; NaN with fewer than `MIN_PLACES`."""
    n = np.isfinite(deviations).sum(axis=-1)
    # The correction for few places is that of Croux and Rousseeuw (1992).
    factor = np.where(n >= MIN_PLACES, _TO_SIGMA * n / np.maximum(n - 0.8, 1), np.nan)
    found: Floats = factor * median(np.abs(centred(deviations)))
    return found


def tail_of(deviations: Floats) -> float:
    """1 / degrees of freedom of the t distribution with the tails of the places, from 0 (normal) to `_HEAVIEST`.

    Args:
        deviations: of shape [jobs, places]; places that are known to be slow are NaN.
    """
    scale = spread_of(deviations)[:, None]
    z = np.divide(np.abs(deviations), scale, out=np.full(deviations.shape, np.nan), where=scale > 0)
    known = z[np.isfinite(z)]
    if len(known) < _FEWEST_IN_TAIL:
        return 0.0
    inverse = np.linspace(1e-3, _HEAVIEST, 100)
    quantiles = (0.95, 0.99) if len(known) >= _MANY_IN_TAIL else (0.95,)
    half, *outer = np.quantile(known, (0.5, *quantiles))
    ratios = [stdtrit(1 / inverse, (1 + q) / 2) / stdtrit(1 / inverse, 0.75) for q in quantiles]
    found = (float(np.interp(at / half, of, inverse)) for at, of in zip(outer, ratios, strict=True))
    return max(found) if half > 0 else 0.0


def spread_tests(deviations: Floats, error: float, least: float, tail: float = 0.0) -> Spreads:
    """Test each place of each row.

    Args:
        deviations: differences of logs from the median, places last; NaN without a figure.
        error: the family's share of `FAMILY_ERROR`.
        least: the smallest effect that counts, for `smallest`.
        tail: of `tail_of`.
    """
    scale = spread_of(deviations)
    df = 1 / (tail + 1 / np.maximum(1.0, _EFFICIENCY * (np.isfinite(deviations).sum(axis=-1) - 1)))
    tested = np.isfinite(deviations) & np.isfinite(scale)[..., None]
    z = np.divide(np.abs(deviations), scale[..., None], out=np.full(deviations.shape, np.inf), where=_above_0(scale))
    # Where all others are equal, any difference is real.
    p = np.where(deviations == 0, 1.0, 2 * stdtr(df[..., None], -z))
    adjusted = np.full(deviations.shape, np.nan)
    adjusted[tested] = np.minimum(1, holm(p[tested]) * (FAMILY_ERROR / error))
    return Spreads(np.expm1(deviations), scale, adjusted, _smallest(scale, df, int(tested.sum()), error, least))


def _above_0(scale: Floats) -> NDArray[np.bool_]:
    return (scale > 0)[..., None]


def _smallest(scale: Floats, df: Floats, tests: int, error: float, least: float) -> float | None:
    known = np.isfinite(scale)
    if not tests or not known.any():
        return None
    critical = stdtrit(df[known], 1 - error / 2 / tests)
    reach = np.maximum(critical * scale[known], -math.log1p(-least)) + float(ndtri(_POWER)) * scale[known]
    return -math.expm1(-float(np.median(reach)))


def over_jobs(deviations: Floats) -> Floats:
    """The mean over jobs (first axis) at each place; jobs of little spread weigh more, up to twice the median job.

    NaN for a place that lacks more than a quarter of the weight.
    """
    variance = spread_of(deviations) ** 2
    known_rows = np.isfinite(variance)
    if not known_rows.any():
        return np.full(deviations.shape[1:], np.nan)
    usual = float(np.median(variance[known_rows]))
    weights = np.where(known_rows, 1.0 if usual == 0 else 1 / (np.where(known_rows, variance, 0) + usual), 0.0)
    known = np.isfinite(deviations)
    share = np.einsum("j,j...->...", weights, known)
    total = np.einsum("j,j...->...", weights, np.where(known, deviations, 0.0))
    enough = share >= _MOST_JOBS * weights.sum()
    found: Floats = np.divide(total, share, out=np.full(share.shape, np.nan), where=enough & (share > 0))
    return found
