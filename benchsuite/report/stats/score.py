"""The score: a weighted geometric mean of adjusted throughputs, with its interval, its coverage and failure rate."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from benchsuite.report.measure.intervals import MIN_REPEATS, Interval, log_interval, perf_adjusted, relative_std
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.format import count
from benchsuite.report.stats.weights import Weighing

FAILURE_LIMIT = 0.01
NO_THROUGHPUT = "no weighed job has a throughput"
NO_WEIGHT = "the weights of this run's jobs add up to 0"


@dataclass(frozen=True)
class Score:
    """The score of a run.

    Attributes:
        value: the weighted geometric mean of perf_adj; None for the `reason`.
        machine: the same of all GPUs together; None if any job keeps no figures per repeat.
        interval: 95 % around `unpenalized`, not around `value`, since the penalty is a bias that grows with the number
            of repeats and not a sampled quantity.
        n: planned tasks.
        ended: the tasks that `fail` is out of; fewer than `n` only while the run is in progress.
        incomplete: the reasons why the score does not cover every weighed job.
        coverage: the share of the weight that it covers, 0 to 1.
        repeats: the number of repeats in which every scored job has a figure.
        penalized: perf_adj includes the variance penalty.
        unpenalized: the score without the variance penalty.
    """

    weighing: Weighing
    value: float | None
    machine: float | None
    interval: Interval | None
    reason: str | None
    n: int
    ended: int
    fail: int
    incomplete: tuple[str, ...]
    coverage: float | None
    repeats: int
    in_progress: bool
    penalized: bool = True
    unpenalized: float | None = None

    @property
    def failure_rate(self) -> float | None:
        """The share of failed tasks among those that have ended; None if none has."""
        return self.fail / self.ended if self.ended else None

    @property
    def verdict(self) -> Literal["PASS", "FAIL", "UNFINISHED"]:
        if self.in_progress:
            return "UNFINISHED"
        return "PASS" if self.failure_rate is not None and self.failure_rate <= FAILURE_LIMIT else "FAIL"

    @property
    def provisional(self) -> bool:
        return self.repeats < MIN_REPEATS


def without_penalty(summary: Summary) -> Summary:
    """A summary whose perf_adj counts failures only: perf * (1 - fail/n)."""
    jobs = (replace(job, perf_adj=perf_adjusted(job.perf, None, job.ended, job.fail)) for job in summary.jobs)
    return replace(summary, jobs=tuple(jobs))


def score(summary: Summary, weighing: Weighing, *, penalized: bool = True) -> Score:
    """Score a run: exp(sum(w * ln(perf_adj)) / sum(w)) over the weighed jobs that have a throughput.

    Jobs of weight 0 and jobs without a throughput are left out before any logarithm; the latter make it incomplete.

    Args:
        penalized: false for a summary `without_penalty`; the machine score then has no variance penalty either.
    """
    weighed = {job.name: job for job in summary.jobs if weighing.jobs.get(job.name, 0.0) > 0}
    scored = {name: job for name, job in weighed.items() if job.perf_adj > 0}
    total = math.fsum(weighing.jobs[name] for name in weighed) + math.fsum(weighing.missing.values())
    weights = {name: weighing.jobs[name] for name in scored}
    value = geometric_mean({name: job.perf_adj for name, job in scored.items()}, weights)
    machines = {name: machine_throughput(job, penalized=penalized) for name, job in scored.items()}
    known = {name: rate for name, rate in machines.items() if rate}
    samples = repeat_means(scored, weights)
    around = log_interval(samples)
    plain, interval = unpenalized(scored, weights), None
    if plain and around:
        factor = 1 + around.half
        interval = Interval(low=plain / factor, high=plain * factor, half=around.half, repeats=around.repeats)
    return Score(
        weighing=weighing,
        value=value,
        machine=geometric_mean(known, weights) if len(known) == len(machines) else None,
        interval=interval,
        reason=None if value else NO_THROUGHPUT if total else NO_WEIGHT,
        n=sum(job.n for job in summary.jobs),
        ended=sum(job.ended for job in summary.jobs),
        fail=sum(job.fail for job in summary.jobs),
        incomplete=tuple(_incomplete(summary, weighed.values(), weighing)),
        coverage=math.fsum(weights.values()) / total if total else None,
        repeats=len(samples),
        in_progress=summary.in_progress,
        penalized=penalized,
        unpenalized=plain,
    )


def unpenalized(jobs: Mapping[str, JobSummary], weights: Mapping[str, float]) -> float | None:
    """The weighted geometric mean of perf * (1 - fail/n)."""
    rates = {name: perf_adjusted(job.perf, None, job.ended, job.fail) for name, job in jobs.items()}
    return geometric_mean(rates, weights) if all(rates.values()) else None


def geometric_mean(rates: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    """exp(sum(w * ln(rate)) / sum(w)); None if the weights add up to 0."""
    total = math.fsum(weights[name] for name in rates)
    if not total:
        return None
    return math.exp(math.fsum(weights[name] * math.log(rate) for name, rate in rates.items()) / total)


def machine_throughput(job: JobSummary, *, penalized: bool = True) -> float | None:
    """Items/s of all GPUs together, adjusted; None if the job keeps no figures per repeat.

    Each repeat gives the mean of its ok tasks times its *planned* tasks. A failed task then counts once, by the failure
    factor; in a plain sum its throughput would be missing as well. std is over repeats, since the scatter between GPUs
    evens out in their sum.
    """
    totals = [r.perf * r.tasks * job.per for r in job.repeats if r.perf is not None]
    if not totals:
        return None
    std = relative_std(totals) if penalized else None
    return perf_adjusted(statistics.fmean(totals), std, job.ended, job.fail)


def repeat_means(jobs: Mapping[str, JobSummary], weights: Mapping[str, float]) -> list[float]:
    """The weighted geometric mean of perf in each repeat in which every job has one."""
    by_repeat: dict[int, dict[str, float]] = defaultdict(dict)
    for name, job in jobs.items():
        for repeat in job.repeats:
            if repeat.perf and repeat.perf > 0:
                by_repeat[repeat.repeat][name] = repeat.perf
    complete = (rates for _, rates in sorted(by_repeat.items()) if len(rates) == len(jobs))
    return [mean for rates in complete if (mean := geometric_mean(rates, weights))]


def _incomplete(summary: Summary, weighed: Iterable[JobSummary], weighing: Weighing) -> Iterable[str]:
    if summary.in_progress:
        to_run, n = sum(job.to_run for job in summary.jobs), sum(job.n for job in summary.jobs)
        yield f"in progress: {to_run} of {count(n, 'task')} still to run"
    ended = [job for job in weighed if not job.to_run]
    reasons = {
        "not in this run": list(weighing.missing),
        "no ok task": [job.name for job in ended if job.fail == job.n],
        "perf_adj is 0": [job.name for job in ended if job.fail < job.n and job.perf_adj <= 0],
        "tasks not run": [f"{job.name} ({job.not_run} of {job.n})" for job in summary.jobs if job.not_run],
    }
    yield from (f"{reason}: {', '.join(names)}" for reason, names in reasons.items() if names)
