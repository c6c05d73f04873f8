"""The error of a window's rate: how far it may be from the rate of a long run. Pure Python; light to import.

The rates of slices are seldom independent. Slices that wander together leave more error than white noise does. Slices
that catch up on each other, as with a reader that delivers in bursts, leave less. An autoregressive model describes
both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise, repeat
from operator import mul, sub

from benchsuite.measurement import Slice

# Orders up to 6 describe what recurs within 3 s, in slices of half a second; 3 slices at least for each coefficient.
_ORDERS, _SLICES_EACH = 6, 3
# Squares below this are rounding.
_ROUNDING = 1e-24
# A difference that leaves a smaller share of the squares has lost digits.
_CANCELLED = 1e-3
# A pause is a slice that lies this many standard deviations below the median; three at least show that they recur.
_PAUSE_SDS, _PAUSES = 4.0, 3
# Levels of Student's t for intervals of 95 and 99 %, and its bounds at 95 %.
_T_95, _T_99 = 0.975, 0.995
_LEAST_T, _LARGEST_T = 1.9599, 12.7063
# The times between pauses are equal if they differ by at most so many slices.
_EQUAL_SLICES = 1.2


@dataclass(frozen=True)
class Estimate:
    """A figure with its standard error, which is known on `df` degrees of freedom."""

    value: float
    error: float
    df: int

    @property
    def half(self) -> float:
        """The half width of its 95 % interval, by Student's t."""
        return student_t(self.df, _T_95) * self.error

    @property
    def significant(self) -> bool:
        """Whether the value differs from 0, at 1 %, not 5 %: a suite has hundreds of windows."""
        return abs(self.value) > student_t(self.df, _T_99) * self.error

    def is_wider_than(self, margin: float) -> bool:
        """Whether `half` exceeds the margin.

        Student's t lies between its values for infinite and for one degree of freedom. Where either decides, as for
        most windows, scipy is not imported.
        """
        if self.error * _LEAST_T > margin:
            return True
        return self.error * _LARGEST_T > margin and self.half > margin


def relative_rate(slices: Sequence[Slice], window: int) -> Estimate | None:
    """A window's rate relative to itself, which is 1, with its error; None for one slice or no items.

    The variance of a mean of `window` slices follows from an autoregressive model of all `slices`, as in Heidelberger
    and Welch, 1981, "A spectral method for confidence interval generation and run length control in simulations". The
    window is short, so the sum over the model's autocovariances is finite. Where work pauses at equal distances, as at
    the ends of epochs, a window holds one pause more or less: this error counts instead of that of random pauses.

    Args:
        slices: neighbours of one level, the window's among them.
        window: number of slices in the window.
    """
    lengths, counts, n = lengths_s(slices), [s.items for s in slices], len(slices)
    items, seconds = sum(counts), math.fsum(lengths)
    if n < 2 or not items:
        return None
    # Work beyond what the mean rate gives, in slices: weighs each rate by the length of its slice.
    beyond = [n * (i / items - t / seconds) for i, t in zip(counts, lengths, strict=True)]
    variance, order = variance_of_mean(beyond, window)
    pauses = regular_pauses(beyond, [n * t / seconds for t in lengths])
    if pauses is not None:
        rest, pause = pauses
        without, without_order = variance_of_mean(rest, window)
        # The number of pauses varies by one: by at most 1/4 of a pause's square.
        without += (pause / window) ** 2 / 4
        if without < variance:
            variance, order = without, without_order
    return Estimate(1.0, math.sqrt(variance), n - 1 - order)


def lengths_s(slices: Sequence[Slice]) -> list[float]:
    """The lengths of slices in seconds."""
    return [s.end_s - s.start_s for s in slices]


def variance_of_mean(series: Sequence[float], size: int) -> tuple[float, int]:
    """The variance of the mean of `size` neighbours of a series with mean 0, and the order of the model behind it."""
    known, coefficients = _autoregression(series)
    order = len(coefficients)
    while order and len(known) < size:
        known.append(sum(map(mul, coefficients, reversed(known[len(known) - order :]))))
    total = known[0] + 2 * math.fsum([(1 - lag / size) * known[lag] for lag in range(1, min(size, len(known)))])
    return max(total, 0.0) / size * len(series) / (len(series) - 1 - order), order


def _autoregression(series: Sequence[float]) -> tuple[list[float], list[float]]:
    """Autocovariances up to a model's order, and its coefficients.

    Burg's method, with the order of least AICc (Hurvich and Tsai, 1989, "Regression and time series model selection in
    small samples").
    """
    n = len(series)
    ahead = behind = list(series)
    whole = _squares(series)
    power, squares = whole / n, 2 * whole
    known, coefficients = [power], list[float]()
    best, chosen, k = math.inf, (0, coefficients), 0.0
    for order in range(min(_ORDERS, (n - 1) // _SLICES_EACH) + 1):
        if order:
            if order > 1:  # the errors of the model before this one, forward and backward
                ahead, behind = _less(k, ahead, behind), _less(k, behind, ahead)
            # The sum of the squares of both shrinks by k squared, and by those of the two that have no neighbour.
            squares = (1 - k * k) * squares - ahead[0] ** 2 - behind[-1] ** 2
            ahead, behind = ahead[1:], behind[:-1]
            if squares < _CANCELLED * whole:
                squares = _squares(ahead) + _squares(behind)
            k = 2 * sum(map(mul, ahead, behind)) / squares if squares > _ROUNDING else 0.0
            known.append(k * power + sum(map(mul, coefficients, reversed(known[1:]))))
            coefficients = [*_less(k, coefficients, coefficients[::-1]), k]
            power *= 1 - k * k
        if power <= _ROUNDING:
            return known, coefficients
        criterion = n * math.log(power) + 2 * (order + 1) * n / max(n - order - 2, 1)
        if criterion < best:
            best, chosen = criterion, (order, coefficients)
    return known[: chosen[0] + 1], chosen[1]


def _less(k: float, one: list[float], other: list[float]) -> list[float]:
    """One series less k times another."""
    return list(map(sub, one, map(mul, repeat(k), other)))


def regular_pauses(beyond: Sequence[float], lengths: Sequence[float]) -> tuple[list[float], float] | None:
    """The series without pauses that recur at equal distances, and the work that one pause costs; None without such.

    Args:
        beyond: work of each slice beyond what the mean rate gives, in slices.
        lengths: of the slices, relative to their mean.
    """
    middle = statistics.median(beyond)
    # 1.4826 times the median distance from the median is the standard deviation of normal noise.
    low = middle - _PAUSE_SDS * 1.4826 * statistics.median(abs(b - middle) for b in beyond)
    pauses = _runs_of_two([i for i, b in enumerate(beyond) if b < low])
    if len(pauses) < _PAUSES:
        return None
    ends = list(accumulate(lengths))
    at = []
    for run in pauses:
        depths = [middle - beyond[i] for i in run]
        at.append(sum(d * (ends[i] - lengths[i] / 2) for d, i in zip(depths, run, strict=True)) / sum(depths))
    between = [b - a for a, b in pairwise(at)]
    farthest = max(between) + _EQUAL_SLICES
    if max(between) - min(between) > _EQUAL_SLICES or at[0] > farthest or ends[-1] - at[-1] > farthest:
        return None
    inside = {i for run in pauses for i in run}
    level = statistics.fmean(b for i, b in enumerate(beyond) if i not in inside)
    rest = [0.0 if i in inside else b - level for i, b in enumerate(beyond)]
    return rest, sum(level - beyond[i] for i in inside) / len(pauses)


def _runs_of_two(places: Sequence[int]) -> list[list[int]]:
    """A pause falls into one slice, or into two neighbours."""
    runs: list[list[int]] = []
    for place in places:
        if runs and len(runs[-1]) == 1 and place == runs[-1][0] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _squares(series: Sequence[float]) -> float:
    return math.fsum(map(mul, series, series))


@cache
def student_t(df: int, level: float) -> float:
    """The quantile of Student's t distribution."""
    # scipy takes half a second to import, which `run` need not wait for.
    from scipy.special import stdtrit

    return float(stdtrit(df, level))
