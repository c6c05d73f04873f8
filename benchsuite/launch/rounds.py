"""Which jobs the next round of a run with a budget repeats, so that the interval of its speed gets narrow.

Every job runs in the first `FULL_ROUNDS` rounds. After them, `CHOSEN_ROUNDS` rounds of chosen jobs and a round of all
jobs take turns. A round of chosen jobs repeats those whose repeat takes more variance off the weighted mean of log
rates, for each second, than a pass over all jobs does.

Two properties keep the coverage of the intervals, which adaptive designs lose. No job has fewer than about a third of
the repeats of any other, so that one whose first repeats agree by luck is measured again. And the run ends with its
time only, never because an interval looks narrow. docs/statistics.md has the figures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# An interval needs three repeats.
FULL_ROUNDS = 3
# Rounds of chosen jobs before each further round of all jobs.
CHOSEN_ROUNDS = 2
# A job may lack a number in fewer repeats than this, whatever its other repeats give.
LACKING = 2
# The least variance of log rates. Below it, a job has no scatter.
_LEAST_VARIANCE = 1e-12
_EULER = 0.5772156649015329


@dataclass(frozen=True)
class Known:
    """What is known about a job.

    Attributes:
        weight: in the score.
        logs: the log of its rate in each repeat that has a number.
        run: the repeats that have run.
        repeat_s: the time that a repeat takes.
    """

    weight: float
    logs: Sequence[float]
    run: int
    repeat_s: float

    @property
    def is_repeated(self) -> bool:
        """Whether the job runs again: not if `LACKING` repeats or more, and at least half of all, have no number."""
        lacking = self.run - len(self.logs)
        return lacking < LACKING or lacking < len(self.logs)


def is_full(number: int) -> bool:
    """Whether a round, counted from 0, repeats all jobs."""
    return number < FULL_ROUNDS or (number - FULL_ROUNDS + 1) % (CHOSEN_ROUNDS + 1) == 0


def jobs_of_round(number: int, jobs: Mapping[str, Known]) -> list[str]:
    """The jobs of a round. Those that narrow the interval most for each second come first.

    A job without a weight runs in the first rounds only.

    Args:
        number: the round, counted from 0.
    """
    repeated = {name: job for name, job in jobs.items() if job.is_repeated}
    if number < FULL_ROUNDS:
        return list(repeated)
    scored = {name: job for name, job in repeated.items() if job.weight > 0}
    gains = gains_of(scored)
    per_second = {name: gain / max(scored[name].repeat_s, 1e-9) for name, gain in gains.items()}
    order = sorted(gains, key=lambda name: -per_second[name])
    if is_full(number):
        return [*order, *(name for name in scored if name not in gains)]
    least = math.fsum(gains.values()) / max(math.fsum(scored[name].repeat_s for name in gains), 1e-9)
    return [name for name in order if per_second[name] >= least * (1 - 1e-9)]


def gains_of(jobs: Mapping[str, Known]) -> dict[str, float]:
    """The variance that one more repeat of a job takes off the sum of w_j * (mean log rate of job j).

    It is w**2 * s**2 * (1/n - 1/(n + 1)), with the moderated variance s**2. A job with fewer than two numbers has none.
    """
    known = {name: job for name, job in jobs.items() if len(job.logs) > 1}
    variances = moderated([(_variance(job.logs), len(job.logs) - 1) for job in known.values()])
    return {
        name: job.weight**2 * variance / (len(job.logs) * (len(job.logs) + 1))
        for (name, job), variance in zip(known.items(), variances, strict=True)
    }


def moderated(samples: Sequence[tuple[float, int]]) -> list[float]:
    """Sample variances, each moved towards the typical one: (d0 * s0**2 + d * s**2) / (d0 + d).

    The prior of d0 degrees of freedom around s0**2 is fitted to the logs of the sample variances, whose spread is
    trigamma(d / 2) if all true variances are equal; then d0 is infinite (Smyth 2004, Statistical Applications in
    Genetics and Molecular Biology 3, article 3). d0 = 1 + 2 / (the spread beyond that) inverts trigamma(d0 / 2) from
    above.

    Args:
        samples: variance and degrees of freedom of each.
    """
    if len(samples) < 2:
        return [variance for variance, _ in samples]
    biases, spreads = zip(*(_of_log_variance(df) for _, df in samples), strict=True)
    logs = [
        math.log(max(variance, _LEAST_VARIANCE)) - bias for (variance, _), bias in zip(samples, biases, strict=True)
    ]
    typical = math.exp(statistics.fmean(logs))
    beyond = _variance(logs) - statistics.fmean(spreads)
    if beyond <= 0:
        return [typical] * len(samples)
    prior = 1 + 2 / beyond
    return [(prior * typical + df * variance) / (prior + df) for variance, df in samples]


def _variance(values: Sequence[float]) -> float:
    """The sample variance. `statistics.variance` is exact, and 30 times as slow."""
    center = statistics.fmean(values)
    return math.fsum((value - center) ** 2 for value in values) / (len(values) - 1)


def _of_log_variance(df: int) -> tuple[float, float]:
    """Bias and variance of the log of a sample variance: digamma(df/2) - log(df/2) and trigamma(df/2)."""
    odd = df % 2
    x = 0.5 if odd else 1.0
    digamma = -_EULER - (2 * math.log(2) if odd else 0.0)
    trigamma = math.pi**2 / (2 if odd else 6)
    while x < df / 2:
        digamma, trigamma, x = digamma + 1 / x, trigamma - 1 / x**2, x + 1
    return digamma - math.log(df / 2), trigamma
