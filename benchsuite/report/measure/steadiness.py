"""The steadiness of slice rates: the last change of their level, drift, the window's error and the spread of the rates.

Rates are relative to the work over the time of the slices concerned, so that they average to 1, and weighed by the
slices' lengths. Pure Python; light to import.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, truediv

from benchsuite.measurement import Slice
from benchsuite.report.format import percent
from benchsuite.report.measure.window_error import Estimate, lengths_s, relative_rate

# A coefficient of variation of slice rates above this is noted. It does no harm where the window's error is small.
STEADY_SPREAD = 0.10
# Changes of level, drifts per 10 s, and errors of a window up to this size are steady: the margin of a comparison.
SMALL_CHANGE = 0.02
DRIFT_SPAN_S = 10.0
# The error is estimated from slices outside the window too, without what starts in the first seconds.
_WARM_UP_S = 2.0
# The largest deviation of a slice beside the window, in largest deviations of the slices inside. A slice that deviates
# more shows an event that did not reach the window.
_FAR = 3.0
_FEWEST = 5
# The fewest slices of a level: an odd slice at the end is no change.
_LEVEL_SLICES = 3
_PENALTY = 4.0


@dataclass(frozen=True)
class Change:
    """A change of level at `at_s` (seconds since go), by `by` relative to the level before."""

    at_s: float
    by: float


@dataclass(frozen=True)
class Stall:
    """A slice that stands out: the others are much more alike.

    Attributes:
        at_s: its start, in seconds since go.
        lost_s: the time that its work would not have needed at the rate of the others.
    """

    at_s: float
    lost_s: float


@dataclass(frozen=True)
class Steadiness:
    """The steadiness of one stream's rates.

    Attributes:
        settled_s: seconds since go from which on the level holds; 0: from the first slice; None under five slices.
        change: the relative change of the level at `settled_s`; above 0 at the end of a warm-up.
        drift: of the window's rates, per 10 s.
        spread: time-weighted coefficient of variation of the window's rates; None for one slice or no items.
        inside: the level changed within the window.
        rate: of the window, relative to itself; None for one slice or no items.
        stall: the slice to which most of the error is due; None without such a slice.
    """

    settled_s: float | None = None
    change: float | None = None
    drift: Estimate | None = None
    spread: Estimate | None = None
    inside: bool = False
    rate: Estimate | None = None
    stall: Stall | None = None

    @property
    def steady(self) -> bool:
        """Whether the window's rate is known to the margin and holds; False for a single slice, which shows neither."""
        return self.rate is not None and not (self.uncertain or self.drifting or self.inside)

    @property
    def error(self) -> float | None:
        """The half width of the 95 % interval of the window's rate, relative; None for one slice or no items."""
        return self.rate.half if self.rate else None

    @property
    def uncertain(self) -> bool:
        """Whether the window's error exceeds the margin."""
        return self.rate is not None and self.rate.is_wider_than(SMALL_CHANGE)

    @property
    def drifting(self) -> bool:
        return self.drift is not None and abs(self.drift.value) > SMALL_CHANGE and self.drift.significant

    @property
    def why_not(self) -> tuple[str, ...]:
        """The reasons why the window is not steady, each with a remedy, in words."""
        return tuple(self._why_not())

    def _why_not(self) -> Iterator[str]:
        if self.inside and self.settled_s is not None and self.change is not None:
            rose = self.change > 0
            remedy = _LATER if rose else _QUIET
            change = f"{'rose' if rose else 'fell'} by {percent(abs(self.change))} at {self.settled_s:.1f} s"
            yield f"the rate {change}, inside the window: {remedy}"
        if self.drift and self.drifting:
            rising = self.drift.value > 0
            remedy = _LATER if rising else "raise min_time_s, and look for heat or a load beside it"
            drift = f"{100 * self.drift.value:+.1f} ± {percent(self.drift.half)} per 10 s"
            yield f"drifts by {drift}: {remedy}"
        if self.error is None:
            yield "a single slice, or no items: its error is unknown; raise min_time_s"
        elif self.uncertain and not (self.inside or self.drifting):
            yield f"its rate is known only to ± {percent(self.error)}: {self._remedy()}"

    def _remedy(self) -> str:
        """What makes the window's error smaller."""
        if self.stall:
            return f"{self.stall.lost_s:.1f} s were lost at {self.stall.at_s:.1f} s; {_QUIET}"
        return "use more repeats or faster readers, and min_time_s of at least 15"


_QUIET, _LATER = "repeat on a quiet machine", "raise warm_up_s or min_time_s"
UNKNOWN = Steadiness()


def least_steady(streams: Sequence[Steadiness]) -> Steadiness:
    """The least steady of several streams."""
    return min(streams, key=lambda s: (s.steady, -s.rate.error if s.rate else -math.inf))


def steadiness(measured: Sequence[Slice], inside: Sequence[Slice]) -> Steadiness:
    """Judge a stream by all its measured slices and those of its window."""
    change = last_change(measured)
    settled_s = change.at_s if change else 0.0 if len(measured) >= _FEWEST else None
    within = change is not None and bool(inside) and inside[0].start_s < change.at_s < inside[-1].end_s
    level = inside if within else _of_one_level(measured, inside, settled_s or 0.0)
    return Steadiness(
        settled_s,
        change.by if change else None,
        drift(inside),
        spread(inside),
        within,
        relative_rate(level, len(inside)),
        stall(inside),
    )


def _of_one_level(measured: Sequence[Slice], inside: Sequence[Slice], settled_s: float) -> list[Slice]:
    """The window's slices and their neighbours on both sides, as far as they are of the same level and kind."""
    seconds, items = math.fsum(lengths_s(inside)), sum(s.items for s in inside)
    if not items:
        return []
    off = [abs(s.items / (s.end_s - s.start_s) * seconds / items - 1) for s in measured]
    first = next(i for i, s in enumerate(measured) if s.start_s >= inside[0].start_s)
    behind = first + len(inside)
    far = max(SMALL_CHANGE, _FAR * max(off[first:behind]))
    earliest_s = max(_WARM_UP_S, settled_s)
    while first and off[first - 1] <= far and measured[first - 1].start_s >= earliest_s:
        first -= 1
    while behind < len(measured) and off[behind] <= far:
        behind += 1
    return list(measured[first:behind])


def stall(inside: Sequence[Slice]) -> Stall | None:
    """The slice that lost 1 % of the window's time or more, and holds over half of the squares of all that was lost."""
    if len(inside) < _FEWEST:
        return None
    lengths, counts = lengths_s(inside), [s.items for s in inside]
    usual = statistics.median(map(truediv, counts, lengths))
    seconds = math.fsum(lengths)
    lost = [(t - i / usual) / seconds if usual else 0.0 for t, i in zip(lengths, counts, strict=True)]
    worst = max(range(len(inside)), key=lost.__getitem__)
    if lost[worst] < SMALL_CHANGE / 2 or 2 * lost[worst] ** 2 <= math.fsum(one * one for one in lost):
        return None
    return Stall(inside[worst].start_s, lost[worst] * seconds)


def last_change(measured: Sequence[Slice]) -> Change | None:
    """The last change of level in a series of slices.

    One change point by least squares: the cut that leaves the least squared error around two means. It counts if
    F = gain / (error left / (n - 2)) exceeds 4 ln(n), a penalty like that of the BIC, times (1 + r) / (1 - r) of
    `drift`, and the change exceeds 2 %. The slices behind it are then searched in the same way. A level lasts at least
    three slices, except that an earlier level at the start or after a rise may last one, as in a warm-up: an odd slice
    after a fall is no level. Among steady series of 30 slices with normal noise about 1 % show a false change.
    """
    last, first = None, 0
    while len(measured) - first >= _FEWEST:
        cut = _cut(measured[first:], _LEVEL_SLICES if last and last.by < 0 else 1)
        if cut is None:
            return last
        first += cut[0]
        last = Change(measured[first].start_s, cut[1])
    return last


def _cut(series: Sequence[Slice], fewest: int) -> tuple[int, float] | None:
    """The number of slices before the change, `fewest` at least, and the relative change; None without a change."""
    n = len(series)
    lengths, counts = lengths_s(series), [s.items for s in series]
    times, items = list(accumulate(lengths)), list(accumulate(counts))
    total_s, total = times[-1], items[-1]
    if not total:
        return None
    between = [
        (i / t - (total - i) / (total_s - t)) ** 2 * t * (total_s - t)
        for t, i in zip(times[: n - _LEVEL_SLICES], items, strict=False)
    ]
    places = range(fewest - 1, len(between))
    if not places:
        return None
    place = max(places, key=between.__getitem__)
    gain = between[place] / total_s
    left = math.fsum(i * i / t for i, t in zip(counts, lengths, strict=True)) - total**2 / total_s - gain
    # Rounding alone leaves some 1e-15 of the squares.
    least = 1e-12 * total**2 / total_s
    if gain <= least or gain * (n - 2) <= _PENALTY * math.log(n) * max(left, 0.0):
        return None
    before = items[place] / times[place]
    behind = (total - items[place]) / (total_s - times[place])
    rest = [s.items / s.elapsed_s - (before if i <= place else behind) for i, s in enumerate(series)]
    if gain * (n - 2) <= _PENALTY * math.log(n) * max(left, 0.0) * _wandering(rest):
        return None
    by = behind / before - 1 if before else math.inf
    return (place + 1, by) if abs(by) > SMALL_CHANGE else None


def drift(inside: Sequence[Slice]) -> Estimate | None:
    """Slope of the relative rates per 10 s, least squares weighed by the slices' lengths; None under five slices.

    The standard error is multiplied by sqrt((1 + r) / (1 - r)), r being the correlation of neighbouring residuals where
    it is positive: rates that wander are no evidence of a drift.
    """
    lengths, counts = lengths_s(inside), [s.items for s in inside]
    total_s, total = math.fsum(lengths), sum(counts)
    if len(inside) < _FEWEST or not total:
        return None
    weights = [t / total_s for t in lengths]
    middles = [(s.start_s + s.end_s) / 2 for s in inside]
    rates = [i / t * total_s / total for i, t in zip(counts, lengths, strict=True)]
    middle = math.fsum(map(mul, weights, middles))
    off = [x - middle for x in middles]
    weighed = list(map(mul, weights, off))
    squares = math.fsum([w * x**2 for w, x in zip(weights, off, strict=True)])
    slope = math.fsum(map(mul, weighed, rates)) / squares
    rest = [y - 1 - slope * x for x, y in zip(off, rates, strict=True)]
    left = math.fsum([w * e * e for w, e in zip(weights, rest, strict=True)])
    error = math.sqrt(left / (len(inside) - 2) / squares)
    return Estimate(slope * DRIFT_SPAN_S, error * math.sqrt(_wandering(rest)) * DRIFT_SPAN_S, len(inside) - 2)


def _wandering(rest: Sequence[float]) -> float:
    """(1 + r) / (1 - r): the factor by which correlated residuals increase the variance of a mean."""
    squares = math.fsum(map(mul, rest, rest))
    alike = math.fsum(map(mul, rest, rest[1:])) / squares if squares else 0.0
    r = min(max(alike, 0.0), 0.9)
    return (1 + r) / (1 - r)


def spread(inside: Sequence[Slice]) -> Estimate | None:
    """Time-weighted coefficient of variation of the rates; None for one slice or no items.

    Its standard error is c * sqrt((0.5 + c**2) / (n - 1)) (Miller, 1991, "Asymptotic test statistics for coefficients
    of variation").
    """
    lengths, counts = lengths_s(inside), [s.items for s in inside]
    seconds, items = math.fsum(lengths), sum(counts)
    if len(inside) < 2 or not items:
        return None
    perf = items / seconds
    squares = [t * (i / t - perf) ** 2 for t, i in zip(lengths, counts, strict=True)]
    c = math.sqrt(math.fsum(squares) / seconds) / perf
    df = len(inside) - 1
    return Estimate(c, c * math.sqrt((0.5 + c * c) / df), df)
