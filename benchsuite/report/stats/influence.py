"""Which job moves the score: the share of each job in the variance of the log score between repeats.

The log score is sum(w_j * x_j) / sum(w_j), where x_j is the mean over repeats of the log of job j's rate. Its variance
is the sum of w_j**2 * var(x_j), over the square of the sum of weights, if jobs scatter independently. The share of a
job is its term of that sum. Shares then lie between 0 and 1 and add up to 1.

The covariances of jobs are left out on purpose. With three to ten repeats a chance correlation gives a job that
scatters by a tenth of the noisiest job about +-10 % of the variance, where its own share is 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchsuite.report.read.summary import JobSummary
from benchsuite.report.stats.samples import job_mean
from benchsuite.report.stats.subscores import without_figure


@dataclass(frozen=True)
class Influence:
    """The part of a job in the variance of the score.

    Attributes:
        share: of the variance, 0 to 1.
        weight: of the job.
        total: the weight of all weighed jobs.
        std: standard deviation of the log of the job's rate between repeats (0.06: about 6 %).
    """

    job: str
    share: float
    weight: float
    total: float
    std: float


def influences(jobs: Mapping[str, JobSummary], weights: Mapping[str, float]) -> tuple[Influence, ...]:
    """The weighed jobs, the one of the largest share first.

    Empty if a job has no figure or fewer than three repeats, or if nothing scatters.
    """
    weighed = {name: weight for name, weight in weights.items() if weight > 0}
    if any(without_figure(jobs.get(name)) for name in weighed):
        return ()
    means = {name: job_mean(jobs[name]) for name in weighed}
    variances = {name: of.variance for name, of in means.items() if of and of.variance is not None}
    if len(variances) < len(weighed):
        return ()
    terms = {name: weighed[name] ** 2 * variance for name, variance in variances.items()}
    whole, total = math.fsum(terms.values()), math.fsum(weighed.values())
    if not whole:
        return ()
    found = (
        Influence(
            name, term / whole, weighed[name], total, math.sqrt(variances[name] * (of.n if (of := means[name]) else 1))
        )
        for name, term in terms.items()
    )
    return tuple(sorted(found, key=lambda one: -one.share))
