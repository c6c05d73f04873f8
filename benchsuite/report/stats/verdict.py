"""Verdicts on ratios: faster, slower, the same within a margin, or ambiguous. Statistics only; no files.

The test is Welch's t on two independent means of log rates, since two machines need not scatter alike. Each job keeps
its own variance. Only the degrees of freedom rest on more than one job (`welch.Noise`): Satterthwaite's formula takes
the ratio of both sides' variances, which 3 repeats leave uncertain by a factor of 6. A plug-in value makes the test too
bold far out in the tail, where Holm's adjustment over 18 jobs needs it: 13 % false alarms at 3 against 10 repeats. The
ratio is therefore estimated from all jobs of the suite, and within its uncertainty the value with the fewest degrees of
freedom counts. A score is tested in the same way, by its own ratio. Intervals have the degrees of freedom of their own
job or score. `scripts/bench/statistics.py` shows the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from benchsuite.report.format import count
from benchsuite.report.measure.intervals import CONFIDENCE, MIN_REPEATS
from benchsuite.report.stats.samples import LogMean
from benchsuite.report.stats.welch import Floats, Noise, Side, Sides, own_df, tail, tested

Word = Literal["SAME", "FASTER", "SLOWER", "AMBIGUOUS", "FAILS", "BASE FAILS"]
MARGIN = 0.02
_SIDES = ("this run", "the baseline")
FAMILY_ERROR = 0.05
MOST_REPEATS = 1000


@dataclass(frozen=True)
class Verdict:
    """The verdict on a ratio.

    Attributes:
        word: at the family's level, so that a ratio whose interval excludes 1 may still be AMBIGUOUS.
        low, high: the ratio's own 95 % interval.
        df: degrees of freedom of the test; the interval has those of its own job.
        repeats: the numbers of repeats of this run and of the baseline that have a rate.
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
    pairs: Mapping[str, tuple[Side, Side]],
    margin: float = MARGIN,
    identical: Collection[str] = (),
    scores: Mapping[str, tuple[Side, Side]] | None = None,
) -> dict[str, Verdict]:
    """Verdicts over one family of jobs, and over scores, each of which is a family of its own.

    Let m = ln(1 + margin). A job is SAME if its interval lies inside +-m: two one-sided tests (Schuirmann 1987) at half
    the level each. Else it is FASTER or SLOWER if its interval excludes 0. Both use Holm's adjustment (1979) over the
    family, which allows any dependence between jobs. Among families without differences, at most 5 % show any FASTER or
    SLOWER; among families whose ratios all exceed the margin, at most 2.5 % show any SAME.

    Args:
        pairs: job -> this run's and the baseline's side, in one unit.
        margin: relative, above 0.
        identical: the names of jobs and scores with the same content on both sides; they are SAME without a test.
        scores: name -> both sides of a score over these jobs.
    """
    scores = scores or {}
    every = {**pairs, **scores}
    found = {name: _without_test(name in identical, *both) for name, both in every.items()}
    sides = {name: Sides.of(*every[name]) for name, verdict in found.items() if verdict is None}
    noise = Noise.of([of for name, of in sides.items() if name in pairs] or list(sides.values()))
    jobs = {name: of for name, of in sides.items() if name in pairs}
    decided = dict(zip(jobs, _family(list(jobs.values()), noise, math.log1p(margin)), strict=True))
    for name in scores:
        if name in sides:
            decided[name] = _family([sides[name]], Noise.of_score(sides[name]), math.log1p(margin))[0]
    return {name: verdict or decided[name] for name, verdict in found.items()}


def _without_test(identical: bool, here: Side, base: Side) -> Verdict | None:
    """The verdict on a job that is not tested; None for a job to test."""
    repeats = (_count(here), _count(base))
    if identical:
        return Verdict("SAME", 1.0, 1.0, repeats=repeats, identical=True)
    reasons = [why for why in map(_why_not, (here, base), _SIDES) if why]
    if reasons:
        return Verdict(None, repeats=repeats, reason="; ".join(reasons))
    if not tested(here, base):
        short = [
            f"{which} has {count(number, 'ok repeat')}"
            for which, number in zip(_SIDES, repeats, strict=True)
            if number < MIN_REPEATS
        ]
        return Verdict(None, repeats=repeats, reason=f"{' and '.join(short)}; {MIN_REPEATS} are needed")
    return None


def _why_not(side: Side, which: str) -> str | None:
    if isinstance(side, str):
        return side
    return None if side.n else f"{which} keeps no numbers per repeat"


def _count(side: Side) -> int:
    return side.n if isinstance(side, LogMean) else 0


def _family(sides: Sequence[Sides], noise: Noise, m: float) -> list[Verdict]:
    """Verdicts on jobs with enough repeats, with Holm's adjustment over all of them."""
    if not sides:
        return []
    difference = np.array([of.difference for of in sides])
    n, df, variance = (tuple(np.array(values, dtype=float).T) for values in zip(*map(_fields, sides), strict=True))
    parts = (variance[0] / n[0], variance[1] / n[1])
    error, of_test = np.sqrt(parts[0] + parts[1]), noise.df(n, df)
    differs = holm(2 * tail(np.abs(difference), error, of_test))
    same = holm(np.minimum(1, 2 * tail(m - np.abs(difference), error, of_test)))
    half = stdtrit(own_df(*parts, *df), (1 + CONFIDENCE) / 2) * error
    decides = _decides(np.abs(difference), n, variance, noise, m)
    verdicts = []
    for i, d in enumerate(difference.tolist()):
        word: Word = "AMBIGUOUS"
        # The test may have more degrees of freedom than the interval: no word contradicts the interval beside it.
        if same[i] <= FAMILY_ERROR and abs(d) + half[i] <= m:
            word = "SAME"
        elif differs[i] <= FAMILY_ERROR and abs(d) > half[i]:
            word = "FASTER" if d > 0 else "SLOWER"
        verdicts.append(
            Verdict(
                word,
                low=_exp(d - half[i]),
                high=_exp(d + half[i]),
                df=float(of_test[i]),
                repeats=sides[i].n,
                decides=decides[i] if word == "AMBIGUOUS" else None,
            )
        )
    return verdicts


def _fields(sides: Sides) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    return sides.n, sides.df, sides.variance


def holm(p: Floats) -> Floats:
    """P values with Holm's step-down adjustment: a test at family-wise level L rejects if its value is at most L."""
    order = np.argsort(p)
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _decides(
    d: Floats, now: tuple[Floats, ...], variance: tuple[Floats, ...], noise: Noise, m: float
) -> list[int | None]:
    """The repeats on both sides at which the interval decides, at the family's first level and the same scatter."""
    level = 1 - FAMILY_ERROR / len(d) / 2
    # The interval narrows with every repeat: bisect for the first number that decides.
    low, high = np.minimum(now[0], now[1]) + 1, np.full(len(d), MOST_REPEATS + 1.0)
    while (low < high).any():
        n = (low + high) // 2
        error = np.sqrt((variance[0] + variance[1]) / n)
        decided = stdtrit(noise.df((n, n), (n - 1, n - 1)), level) * error < np.maximum(d, m - d)
        low, high = np.where(decided, low, n + 1), np.where(decided, n, high)
    return [int(n) if n <= MOST_REPEATS else None for n in low.tolist()]


def _exp(log: float) -> float | None:
    """exp(log); None beyond a factor of e**300, where it would overflow."""
    return math.exp(log) if abs(log) < 300 else None
