"""How sure the ratio of one job in two runs is."""

from __future__ import annotations

import math
import statistics

from scipy.special import stdtrit

from benchsuite.report.summarise import MIN_REPEATS
from benchsuite.report.summary import Interval, JobSummary


def ratio_interval(job: JobSummary, base: JobSummary) -> Interval | None:
    """95 % interval of perf over the base's, repeats being the sample: Welch's t on the logs of per-repeat perf.

    https://en.wikipedia.org/wiki/Welch%27s_t-test; the degrees of freedom are Welch and Satterthwaite's. None where
    either side has under three repeats with a figure, or one of 0.
    """
    factor = (job.unit_factor or 1.0) / (base.unit_factor or 1.0)
    sides = [[r.perf for r in of.repeats if r.perf is not None] for of in (job, base)]
    if any(len(side) < MIN_REPEATS or min(side) <= 0 for side in sides):
        return None
    logs = [[math.log(perf) for perf in side] for side in sides]
    parts = [statistics.variance(side) / len(side) for side in logs]
    centre = math.log(factor) + statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    half = 0.0
    if sum(parts) > 0:
        freedom = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, logs, strict=True))
        half = float(stdtrit(freedom, 0.975)) * math.sqrt(sum(parts))
    if not abs(centre) + half < 300:
        return None
    repeats = min(len(side) for side in sides)
    return Interval(low=math.exp(centre - half), high=math.exp(centre + half), half=math.expm1(half), repeats=repeats)
