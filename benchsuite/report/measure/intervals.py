"""Statistics of one job's rates: scatter, penalised rate, and the interval over repeats."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from benchsuite.schema import Record

MIN_REPEATS = 3
CONFIDENCE = 0.95


class Interval(Record, frozen=True, kw_only=True):
    """A 95 % interval over the samples of a geometric mean; `half` is relative (0.02: about 2 % to either side)."""

    low: float
    high: float
    half: float
    repeats: Annotated[int, Meta(description="samples; of several jobs, those of the job with the fewest")]
    of: Annotated[
        Literal["repeat", "session"], Meta(description="a sample: a repeat, or the mean of a session's repeats")
    ] = "repeat"


def perf_adjusted(perf: float | None, std: float | None, n: int, fail: int) -> float:
    """Milarun's formula: perf * (1 - std%) * (1 - fail/n), never below 0; an unknown std counts as 0.

    Args:
        std: relative to `perf`.
        n: planned tasks; in a run in progress, the tasks that have ended.
    """
    if perf is None or n == 0:
        return 0.0
    return max(0.0, perf * (1 - (std or 0.0)) * (1 - fail / n))


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are not None; None without such values."""
    known = [value for value in values if value is not None]
    if len(known) == 1:  # by far the most frequent case in a report of many nodes
        return float(known[0])
    return statistics.fmean(known) if known else None


def relative_std(values: Sequence[float]) -> float | None:
    """Population standard deviation over the mean; None for one value or a mean of 0."""
    center = mean(values) or 0.0
    return statistics.pstdev(values) / center if len(values) > 1 and center > 0 else None


def log_interval(values: Sequence[float]) -> Interval | None:
    """95 % interval of a geometric mean: Student's t on logs, df = len - 1. None under three values, or with a 0."""
    if len(values) < MIN_REPEATS or min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    center = statistics.fmean(logs)
    from scipy.special import stdtrit  # a run ends sooner without: to import scipy takes half a second

    t = float(stdtrit(len(logs) - 1, (1 + CONFIDENCE) / 2))
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    # Scatter beyond any use (a factor of e**300) would overflow.
    if abs(center) + half > 300:
        return None
    return Interval(low=math.exp(center - half), high=math.exp(center + half), half=math.expm1(half), repeats=len(logs))
