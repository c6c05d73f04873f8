"""How far a figure lies on the bad side of its peers, or of a base, and whether chance explains it.

The unit is the standard deviation between healthy cards. It is estimated by 1.4826 x the median absolute deviation
(MAD) of the other cards, as robust z-scores do. It is never taken to be below the `spread` of the tolerance, because
the MAD of a few figures is often far too small by chance. Tests are one-sided, since a faster card is no fault. Holm's
adjustment (1979) covers all checks, GPUs and links of a node, with peers and base in one family.

At the level used here, a healthy node passes 20 runs of 20 in 95 % of cases, if its cards differ by no more than
`spread`. `scripts/bench/health_rates.py` shows the rates of false alarms, and the power against a slow GPU.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtr, stdtr

from benchsuite.health.rules import Tolerance
from benchsuite.report.stats.verdict import holm

Word = Literal["PASS", "WARN", "FAIL"]
Better = Literal["higher", "lower"]
# 1 - 0.95 ** (1 / 20): all 20 runs of a healthy node pass in 95 % of cases.
FAMILY_ERROR = 0.0025
# Makes the MAD of a normal distribution its standard deviation.
_OF_MAD = 1.4826
# Stands for a figure of 0, which has no logarithm.
_NOTHING = 1e-9
# With fewer figures, a base has no standard deviation that is worth the name.
MIN_BASE = 3


@dataclass(frozen=True)
class Deviation:
    """The deviation of a figure from its reference.

    Attributes:
        effect: relative to the reference; negative is worse, whatever is better.
        z: the same in standard deviations of healthy cards.
        p: the probability that chance makes a deviation as bad.
        reference: the median of the others, or the mean of the base.
        n: the figures behind the reference.
        loose: the figures behind the reference scatter by more than `spread`.
    """

    effect: float
    z: float
    p: float
    reference: float
    n: int
    loose: bool = False


@dataclass(frozen=True)
class Decided:
    """A deviation's word, and whether it is significant over the family."""

    word: Word
    significant: bool


def from_peers(values: Sequence[float], spread: float, better: Better) -> list[Deviation | None]:
    """Each figure against the median of the others.

    Returns:
        A deviation for each value; None if there is nothing to compare with: a single figure, or most of them 0.
    """
    if len(values) < 2 or statistics.median(sorted(values)[1:]) <= 0:
        return [None] * len(values)
    logs = [_log(value, better) for value in values]
    error = math.sqrt(1 + _median_variance(len(logs) - 1))
    found: list[Deviation | None] = []
    for i, log in enumerate(logs):
        others = logs[:i] + logs[i + 1 :]
        middle = statistics.median(others)
        scatter = _OF_MAD * statistics.median(abs(other - middle) for other in others)
        reference = statistics.median((*values[:i], *values[i + 1 :]))
        one = _deviation(log - middle, max(spread, scatter) * error, reference, len(others))
        found.append(replace(one, loose=scatter > spread))
    return found


def _median_variance(n: int) -> float:
    """The variance of the median of n normal figures, in units of theirs; a little too large between 3 and infinity."""
    return 1 / n if n <= 2 else math.pi / 2 / n


def from_links(
    ends: Sequence[tuple[int, int]], values: Sequence[float], spread: float, better: Better, directed: bool
) -> list[Deviation | None]:
    """As `from_peers`, for links between GPUs, which may be of several kinds: NVLink in a pair, PCIe between pairs.

    On a healthy node each GPU has links of the same kinds. So the best link of a GPU is compared with the best links of
    the other GPUs, its second best with their second best, and so on. This is done for the links that leave a GPU and
    for those that arrive. The worse of both comparisons counts, with twice its p value.

    Args:
        ends: the two GPUs of each link.
        directed: a link goes from the first GPU to the second; else in both directions.
    """
    views: tuple[dict[int, list[int]], ...] = ({}, {}) if directed else ({},)
    for i, pair in enumerate(ends):
        for side, gpu in enumerate(pair):
            views[side % len(views)].setdefault(gpu, []).append(i)
    found: list[list[Deviation]] = [[] for _ in values]
    for view in views:
        in_order = [sorted(of_gpu, key=lambda i: -_log(values[i], better)) for of_gpu in view.values()]
        for rank in range(max(map(len, in_order), default=0)):
            same = [of_gpu[rank] for of_gpu in in_order if rank < len(of_gpu)]
            for i, one in zip(same, from_peers([values[i] for i in same], spread, better), strict=True):
                found[i] += [one] if one else []
    return [_worst(of_link) for of_link in found]


def _worst(found: Sequence[Deviation]) -> Deviation | None:
    """The deviation that chance explains least, with a p value that allows for the number of comparisons."""
    if not found:
        return None
    worst = min(found, key=lambda one: one.p)
    return replace(worst, p=min(1.0, len(found) * worst.p))


def from_base(value: float, base: Sequence[float], spread: float, better: Better) -> Deviation | None:
    """A figure against those of a base; None if the base has none, or a 0.

    The standard deviation is that of the base from three figures on, with Student's t, but at least `spread`.
    """
    if not base or min(base) <= 0:
        return None
    logs = [_log(one, better) for one in base]
    n, mean = len(logs), statistics.fmean(logs)
    known = statistics.stdev(logs) if n >= MIN_BASE else 0.0
    scale = max(spread, known) * math.sqrt(1 + 1 / n)
    df = n - 1 if known > spread else None
    reference = math.exp(statistics.fmean(map(math.log, base)))
    return replace(_deviation(_log(value, better) - mean, scale, reference, n, df), loose=known > spread)


def _log(value: float, better: Better) -> float:
    log = math.log(max(value, _NOTHING))
    return log if better == "higher" else -log


def _deviation(log: float, scale: float, reference: float, n: int, df: float | None = None) -> Deviation:
    z = log / scale
    p = float(ndtr(z) if df is None else stdtr(df, z))
    return Deviation(math.expm1(log), z, p, reference, n)


def decide(family: Sequence[tuple[Deviation, Tolerance]]) -> list[Decided]:
    """The words of all deviations of a node.

    FAIL and WARN need a significant deviation of at least `fail` or `warn`. A deviation of at least `fail` that is not
    significant is WARN if the others differ by more than healthy cards do.
    """
    if not family:
        return []
    adjusted = holm(np.array([deviation.p for deviation, _ in family]))
    return [
        _word(one, bool(p <= FAMILY_ERROR), tolerance) for (one, tolerance), p in zip(family, adjusted, strict=True)
    ]


def _word(one: Deviation, significant: bool, tolerance: Tolerance) -> Decided:
    if significant:
        word: Word = "FAIL" if one.effect <= -tolerance.fail else "WARN" if one.effect <= -tolerance.warn else "PASS"
        return Decided(word, significant)
    return Decided("WARN" if one.loose and one.effect <= -tolerance.fail else "PASS", significant)
