"""Verdicts on ratios: faster, slower, the same within a margin, or ambiguous. Statistics only; no files.

The test is Welch's t on two independent samples of logs of per-repeat rates, since two machines need not scatter alike.
A variance from 3 to 5 repeats is uncertain: at a level shared by a suite's jobs, the plain test finds a slowdown of 3 %
at 1 % noise in only two cases of three. Hence each side's variances are moderated (Smyth 2004, "Linear models and
empirical Bayes methods", section 6.2): shrunk towards the variance of the side's other jobs, the more so the more alike
these are. Two guards bound false alarms for jobs that are not alike: the other jobs never count for more than a job's
own repeats, nor for more than `_PRIOR_DF` degrees of freedom, and a job that scatters more than they explain keeps its
own variance.

With 5 repeats the moderated test finds that slowdown in 90 to 91 % of cases (tests/test_report_statistics.py). It costs
accuracy in suites whose jobs' noise differs tenfold: false alarms in 7 % of them with 3 or 5 repeats and in 10 % with 3
against 10, and 88 to 93 % coverage by the noisiest job's 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, fdtrc, polygamma, stdtr, stdtrit

from benchsuite.report.measure.intervals import MIN_REPEATS

Floats = NDArray[np.float64]
Word = Literal["SAME", "FASTER", "SLOWER", "AMBIGUOUS"]
MARGIN = 0.02
FAMILY_ERROR = 0.05
_CONFIDENCE = 0.95
# The fewest variances from which a prior is estimated.
_PRIOR_JOBS = 4
_PRIOR_DF = 4.0
# A variance keeps its own value if the prior gives one as large with less than this probability.
_ALONE = 0.05
MOST_REPEATS = 1000


@dataclass(frozen=True)
class Verdict:
    """The verdict on a ratio.

    Attributes:
        word: at the family's level, so that a ratio whose interval excludes 1 may still be AMBIGUOUS.
        low, high: the ratio's own 95 % interval.
        df: degrees of freedom of the interval.
        repeats: the numbers of repeats of this run and of the base that have a rate.
        decides: about the number of repeats on both sides that would decide; None above `MOST_REPEATS`.
        identical: both sides have the same content.
        reason: the reason why there is no word.
    """

    word: Word | None
    low: float | None = None
    high: float | None = None
    df: float | None = None
    repeats: tuple[int, int] = (0, 0)
    decides: int | None = None
    identical: bool = False
    reason: str | None = None

    @property
    def words(self) -> str:
        """The word, with the repeats that an AMBIGUOUS ratio needs; empty without a word."""
        if self.identical:
            return f"{self.word} (identical)"
        if self.word != "AMBIGUOUS":
            return self.word or ""
        return f"{self.word} ({f'{self.decides:,}' if self.decides else f'over {MOST_REPEATS:,}'} repeats)"


def judge(
    samples: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    margin: float = MARGIN,
    identical: Collection[str] = (),
) -> dict[str, Verdict]:
    """Verdicts over one family of jobs: name -> per-repeat rates of this run and of the base, in one unit.

    Let m = ln(1 + margin). A job is SAME if its interval lies inside +-m: two one-sided tests (Schuirmann 1987) at half
    the level each. Else it is FASTER or SLOWER if its interval excludes 0. Both use Holm's adjustment (1979) over the
    family, which allows any dependence between jobs. Among families without differences, at most 5 % show any FASTER or
    SLOWER; among families whose ratios all exceed the margin, at most 2.5 % show any SAME.

    Args:
        margin: relative, above 0.
        identical: the names of jobs with the same content on both sides; they are SAME without a test.
    """
    found = {name: _without_test(name in identical, *both) for name, both in samples.items()}
    tested = [name for name, verdict in found.items() if verdict is None]
    decided = dict(zip(tested, _family([samples[name] for name in tested], math.log1p(margin)), strict=True))
    return {name: verdict or decided[name] for name, verdict in found.items()}


def _without_test(identical: bool, here: Sequence[float], base: Sequence[float]) -> Verdict | None:
    """The verdict on a job that is not tested; None for a job to test."""
    repeats = (len(here), len(base))
    if identical:
        return Verdict("SAME", 1.0, 1.0, repeats=repeats, identical=True)
    if min(repeats) < MIN_REPEATS:
        too_few = f"{len(here)} and {len(base)} repeats (this run, base); both sides need {MIN_REPEATS}"
        return Verdict(None, repeats=repeats, reason=too_few if base else "the base keeps no figures per repeat")
    if min(*here, *base) <= 0:
        return Verdict(None, repeats=repeats, reason="a repeat with a throughput of 0")
    return None


def _family(samples: Sequence[tuple[Sequence[float], Sequence[float]]], m: float) -> list[Verdict]:
    """Verdicts on jobs with enough repeats, with Holm's adjustment over all of them."""
    if not samples:
        return []
    here, base = (_Side.of([both[side] for both in samples]) for side in (0, 1))
    difference = here.means - base.means
    error, df = _welch(here.variances / here.n, base.variances / base.n, here.df, base.df)
    differs = holm(2 * _tail(np.abs(difference), error, df))
    same = holm(np.minimum(1, 2 * _tail(m - np.abs(difference), error, df)))
    half = stdtrit(df, (1 + _CONFIDENCE) / 2) * error
    decides = _decides(here, base, m, len(samples))
    verdicts = []
    for i, d in enumerate(difference.tolist()):
        word: Word = "AMBIGUOUS"
        if same[i] <= FAMILY_ERROR:
            word = "SAME"
        elif differs[i] <= FAMILY_ERROR:
            word = "FASTER" if d > 0 else "SLOWER"
        verdicts.append(
            Verdict(
                word,
                low=_exp(d - half[i]),
                high=_exp(d + half[i]),
                df=float(df[i]),
                repeats=(int(here.n[i]), int(base.n[i])),
                decides=decides[i] if word == "AMBIGUOUS" else None,
            )
        )
    return verdicts


@dataclass(frozen=True)
class _Side:
    """The jobs of one run, each field of shape [jobs]: `n` repeats, means of logs, moderated variances and their df."""

    n: Floats
    means: Floats
    variances: Floats
    df: Floats

    @classmethod
    def of(cls, rates: Sequence[Sequence[float]]) -> _Side:
        logs = [np.log(np.asarray(values, dtype=np.float64)) for values in rates]
        n = np.array([float(len(values)) for values in logs])
        variances, df = moderated(np.array([values.var(ddof=1) for values in logs]), n - 1)
        return cls(n, np.array([values.mean() for values in logs]), variances, df)


def moderated(variances: Floats, df: Floats) -> tuple[Floats, Floats]:
    """Shrink variances towards a prior v0 with d0 degrees of freedom.

    A variance v with df degrees of freedom becomes (d0 * v0 + df * v) / (d0 + df) with d0 + df degrees of freedom.

    Args:
        variances, df: of shape [jobs].

    Returns:
        The moderated variances and their degrees of freedom, of shape [jobs].
    """
    known = variances > 0
    if np.count_nonzero(known) < _PRIOR_JOBS:
        return variances, df
    prior, most = _prior(variances[known], df[known])
    prior_df = np.minimum(most, df)
    alone = fdtrc(df, prior_df, variances / prior) < _ALONE
    together = (prior_df * prior + df * variances) / (prior_df + df)
    return np.where(alone, variances, together), np.where(alone, df, prior_df + df)


def _prior(variances: Floats, df: Floats) -> tuple[float, float]:
    """v0 and d0 of Smyth's scaled inverse chi-squared prior, from mean and variance of the log variances."""
    logs = np.log(variances) - digamma(df / 2) + np.log(df / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, df / 2).mean())
    if excess <= polygamma(1, _PRIOR_DF / 2):
        return float((df * variances).sum() / df.sum()), _PRIOR_DF
    # The import is slow, and few comparisons get here. trigamma(y) > 1 / y**2 gives the lower end.
    from scipy.optimize import brentq

    d0 = 2 * brentq(lambda y: polygamma(1, y) - excess, 1 / math.sqrt(excess), _PRIOR_DF / 2, xtol=1e-15)
    return math.exp(float(logs.mean() + digamma(d0 / 2)) - math.log(d0 / 2)), d0


def _welch(a: Floats, b: Floats, a_df: Floats, b_df: Floats) -> tuple[Floats, Floats]:
    """Standard error of a difference of means with variances `a` and `b`, and its df by Welch and Satterthwaite."""
    total = a + b
    # Without any scatter the formula is 0 / 0.
    parts = a**2 / a_df + b**2 / b_df
    df = np.divide(total**2, parts, out=a_df + b_df, where=parts > 0)
    return np.sqrt(total), df


def _tail(distance: Floats, error: Floats, df: Floats) -> Floats:
    """P(T > distance / error); without an error, 0 for any distance above 0."""
    exact = np.where(distance > 0, 0.0, 1.0)
    t = np.divide(distance, error, out=np.zeros_like(distance), where=error > 0)
    tail: Floats = np.where(error > 0, stdtr(df, -t), exact)
    return tail


def holm(p: Floats) -> Floats:
    """P values with Holm's step-down adjustment: a test at family-wise level L rejects if its value is at most L."""
    order = np.argsort(p)
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _decides(here: _Side, base: _Side, m: float, family: int) -> list[int | None]:
    """The repeats on both sides at which the interval decides, at the family's first level and the same scatter."""
    d = np.abs(here.means - base.means)
    level = 1 - FAMILY_ERROR / family / 2
    # The interval narrows with every repeat: bisect for the first number that decides.
    low, high = np.minimum(here.n, base.n) + 1, np.full(len(d), MOST_REPEATS + 1.0)
    while (low < high).any():
        n = (low + high) // 2
        error, df = _welch(here.variances / n, base.variances / n, n + here.df - here.n, n + base.df - base.n)
        decided = stdtrit(df, level) * error < np.maximum(d, m - d)
        low, high = np.where(decided, low, n + 1), np.where(decided, n, high)
    return [int(n) if n <= MOST_REPEATS else None for n in low.tolist()]


def _exp(log: float) -> float | None:
    """exp(log); None beyond a factor of e**300, where it would overflow."""
    return math.exp(log) if abs(log) < 300 else None
