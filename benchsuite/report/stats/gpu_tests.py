"""Tests that compare the speed of GPUs. Arrays only.

The figure of a GPU in a repeat of a job is ln(rate / rate of the median GPU). Each test is Student's t of the GPU's own
figures over repeats against 0, with n - 1 degrees of freedom. No variance is pooled over GPUs, for one GPU may scatter
more than the others.

The repeat is the unit in the test over all jobs, too: what slows a GPU for the length of one repeat counts once. There
noisy jobs have less weight. A job's weight comes from the scatter of the other GPUs, so that a GPU cannot choose the
weights by which it is tested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, nctdtrinc, ndtri, stdtr, stdtrit

from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.stats.verdict import FAMILY_ERROR, MOST_REPEATS, holm

Floats = NDArray[np.float64]
MIN_GPUS = 3
MIN_EFFECT = 0.02
_POWER = 0.8


@dataclass(frozen=True)
class SpeedTests:
    """A family of tests; each array has the shape [jobs, gpus] or [gpus].

    Attributes:
        mean: ln(rate / rate of the median GPU), mean over repeats; NaN without a repeat.
        std: of one repeat; NaN under two repeats.
        n: repeats with a figure.
        p: NaN under `MIN_REPEATS` repeats.
        adjusted: after Holm's adjustment (1979): a test is significant if this is at most `FAMILY_ERROR`.
        error: the family's share of `FAMILY_ERROR`.
    """

    mean: Floats
    std: Floats
    n: Floats
    p: Floats
    adjusted: Floats
    error: float

    @classmethod
    def of(cls, mean: Floats, std: Floats, n: Floats, error: float) -> SpeedTests:
        p = np.full(mean.shape, np.nan)
        tested = n >= MIN_REPEATS
        p[tested] = _two_sided(mean[tested], std[tested], n[tested])
        adjusted = p.copy()
        adjusted[tested] = np.minimum(1, holm(p[tested]) * (FAMILY_ERROR / error))
        return cls(mean, std, n, p, adjusted, error)

    @cached_property
    def tests(self) -> int:
        """The number of tests."""
        return int(np.isfinite(self.p).sum())

    @cached_property
    def effect(self) -> Floats:
        """Relative difference from the median GPU's rate: -0.1 is a tenth slower."""
        return np.expm1(self.mean)

    @cached_property
    def outliers(self) -> NDArray[np.bool_]:
        """Where a test is significant and the effect is at least `MIN_EFFECT`."""
        return (self.adjusted <= FAMILY_ERROR) & (np.abs(self.effect) >= MIN_EFFECT)

    def decides(self, at: tuple[int, ...]) -> int | None:
        """About the number of repeats at which this mean would be significant; None above `MOST_REPEATS`."""
        low, high = int(self.n[at]) + 1, MOST_REPEATS + 1
        while low < high:
            n = (low + high) // 2
            significant = self._critical(n) * self.std[at] / math.sqrt(n) < abs(self.mean[at])
            low, high = (low, n) if significant else (n + 1, high)
        return low if low <= MOST_REPEATS else None

    def smallest(self, scatter: float) -> float | None:
        """The slowdown that the first step of Holm's procedure finds in 80 % of cases; None without a test.

        The noncentral t distribution gives the power at the scatter of the median GPU (and job). A slow GPU deviates by
        less than it is slower, since it shifts the median; and it scatters by more, since it is not near the median.
        Both corrections are approximate: they grow up to those of a GPU that is always the slowest.

        Args:
            scatter: standard deviation of a figure of one job, GPU and repeat, mean over jobs.
        """
        tested = np.isfinite(self.p)
        if not tested.any():
            return None
        # The median of a variance with n - 1 degrees of freedom is not its mean.
        df, gpus = self.n[tested] - 1, self.mean.shape[-1]
        variance = float(np.median(self.std[tested] ** 2 * df / chdtri(df, 0.5)))
        n = float(np.median(self.n[tested]))
        error = math.sqrt(variance / n)
        # Variance of rate / median for an equal GPU and for the slowest, in units of the rate's variance.
        equal, slowest = 1 + math.pi / 2 / gpus - 2 / gpus, 1 + math.pi / 2 / (gpus - 1)
        most = math.sqrt(math.pi / 2 / equal) / (gpus - 1) * scatter
        shift = min(self._detected(n, error) / (gpus - 1), most)
        share = shift / most if most else 0.0
        return -math.expm1(-shift - self._detected(n, error * math.sqrt(1 + share * (slowest / equal - 1))))

    def _detected(self, n: float, error: float) -> float:
        """The true mean at which a mean of n repeats with this standard error is named in 80 % of cases."""
        # The observed effect has to reach MIN_EFFECT, too.
        reach = -math.log1p(-MIN_EFFECT) + float(ndtri(_POWER)) * error
        return max(reach, float(nctdtrinc(n - 1, 1 - _POWER, self._critical(n))) * error)

    def _critical(self, n: float) -> float:
        """The t beyond which the first step of Holm's procedure rejects."""
        return float(stdtrit(n - 1, 1 - self.error / 2 / self.tests))


def compare_speeds(logs: Floats) -> tuple[SpeedTests, SpeedTests | None]:
    """Test each job on each GPU and, with two jobs or more, each GPU over all jobs.

    Half of `FAMILY_ERROR` goes to either family. With one job its tests have all of it.

    Args:
        logs: ln(rate), of shape [jobs, repeats, gpus]; NaN without a figure.

    Returns:
        The tests of shape [jobs, gpus], and those of shape [gpus]; None with fewer than two jobs to compare.
    """
    found = deviations(logs)
    several = int(np.isfinite(found).any(axis=(1, 2)).sum()) > 1
    error = FAMILY_ERROR / 2 if several else FAMILY_ERROR
    n, mean, std = _over_repeats(found)
    jobs = SpeedTests.of(mean, std, n, error)
    return jobs, SpeedTests.of(*_together(found), error) if several else None


def deviations(logs: Floats) -> Floats:
    """ln(rate / rate of the median GPU), of the shape [jobs, repeats, gpus]; NaN where fewer than three have a rate."""
    enough = np.isfinite(logs).sum(axis=-1, keepdims=True) >= MIN_GPUS
    return np.where(enough, logs, np.nan) - median(logs)[..., None]


def median(values: Floats) -> Floats:
    """The median over the last axis without NaN; NaN where all are."""
    # NaN comes last.
    in_order, n = np.sort(values, axis=-1), np.isfinite(values).sum(axis=-1, keepdims=True)
    middle = (np.take_along_axis(in_order, at, axis=-1) for at in (np.maximum(n - 1, 0) // 2, np.minimum(n // 2, n)))
    low, high = (found[..., 0] for found in middle)
    return (low + high) / 2


def _over_repeats(found: Floats) -> tuple[Floats, Floats, Floats]:
    """Number, mean and standard deviation over the second axis without NaN; NaN where there are too few."""
    known = np.isfinite(found)
    n = known.sum(axis=1).astype(np.float64)
    total = np.where(known, found, 0).sum(axis=1)
    mean = np.divide(total, n, out=np.full_like(n, np.nan), where=n > 0)
    squares = np.where(known, found - mean[:, None], 0) ** 2
    variance = np.divide(squares.sum(axis=1), n - 1, out=np.full_like(n, np.nan), where=n > 1)
    return n, mean, np.sqrt(variance)


def _together(found: Floats) -> tuple[Floats, Floats, Floats]:
    """Each GPU over all jobs: mean, standard deviation of one repeat, and number of repeats; each of shape [gpus].

    The mean is that of the jobs' means. Its variance comes from the repeats' sums of the residuals from these means
    (clustered by repeat), so that a failed task neither costs a repeat or a job nor shifts a repeat's mean.
    """
    weights = _weights(_over_repeats(found)[2])
    known = np.isfinite(found)
    # A repeat with less than half of the jobs' weight is no repeat of all jobs.
    of_repeat = np.einsum("jg,jrg->rg", weights, known)
    whole = (weights * known.any(axis=1)).sum(axis=0)
    known &= (2 * of_repeat >= whole)[None]
    repeats = known.any(axis=0).sum(axis=0).astype(np.float64)
    known &= (known.sum(axis=1) >= np.minimum(2, repeats))[:, None]
    n, mean, _ = _over_repeats(np.where(known, found, np.nan))
    weights = np.where(n > 0, weights, 0)
    total = weights.sum(axis=0)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    center = np.where(total > 0, (shares * np.where(n > 0, mean, 0)).sum(axis=0), np.nan)
    # A residual from a mean of few repeats is too small: this scales it to what all repeats would leave.
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(n > 1, shares / n * np.sqrt(n / (n - 1) * (repeats - 1) / repeats), 0)
        residuals = np.where(known, found - mean[:, None], 0)
        sums = (scale[:, None] * residuals).sum(axis=0)
        std = np.sqrt(repeats / (repeats - 1) * (sums**2).sum(axis=0) * repeats)
    return center, np.where(repeats > 1, std, np.nan), repeats


def _weights(std: Floats) -> Floats:
    """Weights of jobs for the test of each GPU, of the shape [jobs, gpus] as `std`.

    A weight is 1 / (v + v0): v is the job's median variance on the other GPUs, v0 the median of v over jobs. The
    quietest job therefore weighs at most twice as much as the median job.
    """
    gpus = std.shape[1]
    others = np.stack([median(np.delete(std, gpu, axis=1) ** 2) for gpu in range(gpus)], axis=1)
    usual = median(others.T)
    variance = np.where(np.isfinite(others), others, usual) + usual
    # Without any scatter, or without two repeats, all jobs weigh the same.
    return np.divide(1, variance, out=np.ones_like(variance), where=variance > 0)


def _two_sided(mean: Floats, std: Floats, n: Floats) -> Floats:
    """P values of Student's t; without any scatter, 0 for any mean but 0."""
    exact = np.where(mean != 0, 0.0, 1.0)
    t = np.divide(np.abs(mean), std / np.sqrt(n), out=np.zeros_like(mean), where=std > 0)
    return np.where(std > 0, 2 * stdtr(n - 1, -t), exact)


def smallest_effects(tests: SpeedTests, together: SpeedTests | None) -> tuple[float | None, float | None]:
    """The slowdowns over all jobs and in one job that are found in 80 % of cases; None without such tests."""
    if not tests.tests:
        return None, None
    scatter = float(np.nanmean(tests.std))
    return together.smallest(scatter) if together else None, tests.smallest(scatter)
