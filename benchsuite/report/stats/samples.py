"""The samples behind every interval and verdict: log rates per repeat, or per session where there are several runs.

GPUs are fixed, since the machine is what is bought; repeats are the sample. With `MIN_SESSIONS` runs of one machine the
sessions are the sample, so that an interval includes the variation between them.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchsuite.report.measure.intervals import CONFIDENCE, MIN_REPEATS, Interval
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.stats.clustered import degrees_of_freedom

MIN_SESSIONS = 3
# The place of a sample: (session, repeat).
Key = tuple[int, int]
# A log beyond this overflows as a rate.
_LARGEST_LOG = 300.0
_FILL_ROUNDS = 100


@dataclass(frozen=True)
class LogMean:
    """A mean of log rates with its error.

    Attributes:
        variance: of the mean; None below `MIN_REPEATS` samples.
        df: degrees of freedom of `variance`.
        n: samples.
        of: what a sample is.
        fewest: the samples of the job with the fewest, if it has fewer than `n`.
    """

    mean: float
    variance: float | None
    df: float
    n: int
    of: Literal["repeat", "session"] = "repeat"
    fewest: int | None = None

    @property
    def rate(self) -> float | None:
        """exp(mean): the geometric mean of the rates; None if it overflows."""
        return math.exp(self.mean) if abs(self.mean) < _LARGEST_LOG else None

    @property
    def interval(self) -> Interval | None:
        """95 % interval around `rate`, by Student's t on logs; None below `MIN_REPEATS` samples."""
        if self.variance is None:
            return None
        from scipy.special import stdtrit  # as in `log_interval`

        half = float(stdtrit(self.df, (1 + CONFIDENCE) / 2)) * math.sqrt(self.variance)
        if abs(self.mean) + half > _LARGEST_LOG:
            return None
        low, high = math.exp(self.mean - half), math.exp(self.mean + half)
        return Interval(low=low, high=high, half=math.expm1(half), repeats=self.fewest or self.n, of=self.of)

    def scaled(self, factor: float) -> LogMean:
        """The same mean with all rates multiplied by `factor`."""
        return replace(self, mean=self.mean + math.log(factor))


def repeat_rates(job: JobSummary) -> dict[Key, float]:
    """Items/s in each repeat with an ok task: the mean over the places (GPU and copy) where tasks run.

    A task that is not ok would move the mean of its repeat if GPUs differ. Its rate is therefore filled in by the
    two-way fit log rate = place + repeat. A place without any ok task is left out of every repeat. Nothing is filled in
    where the fit has no single answer: for two groups of places that are never ok in the same repeat.
    """
    if job.unlike_machines:
        return {}
    if all(task.perf is None for task in job.tasks):
        return {(r.session, r.repeat): r.perf for r in job.repeats if r.perf is not None}
    sessions: dict[int, dict[tuple[object, ...], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for task in job.tasks:
        if task.perf is not None:
            sessions[task.session][task.host, task.device, task.copy][task.repeat] = task.perf
    found: dict[Key, float] = {}
    for session, places in sorted(sessions.items()):
        for repeat, rates in _complete(places).items():
            found[session, repeat] = statistics.fmean(rates)
    return found


def planned_repeats(summary: Summary) -> int:
    """The number of repeats that a run planned, over all its sessions; 0 if it keeps none."""
    return max((len(job.repeats) for job in summary.jobs), default=0)


def too_few_ok(summary: Summary, names: Collection[str]) -> str:
    """ "big is ok in 1 of 3 repeats only", of the job with the fewest ok repeats; empty from `MIN_REPEATS` on.

    Args:
        names: the jobs that count.
    """
    counts = [(len(repeat_rates(job)), job) for job in summary.jobs if job.name in names and job.repeats]
    ok, job = min(counts, key=lambda one: one[0], default=(MIN_REPEATS, None))
    return f"{job.name} is ok in {ok} of {len(job.repeats)} repeats only" if job and ok < MIN_REPEATS else ""


def stalls(job: JobSummary) -> bool:
    """Whether a repeat of the job has a rate of 0, so that no mean of log rates exists."""
    return min(repeat_rates(job).values(), default=1.0) <= 0


def _complete(places: Mapping[tuple[object, ...], Mapping[int, float]]) -> dict[int, list[float]]:
    """The rates of every place in every repeat that has any, missing ones filled in."""
    repeats = sorted({repeat for rates in places.values() for repeat in rates})
    missing = any(len(rates) < len(repeats) for rates in places.values())
    zero = min(rate for rates in places.values() for rate in rates.values()) <= 0
    if not missing or zero or not _connected([set(rates) for rates in places.values()]):
        return {repeat: [rates[repeat] for rates in places.values() if repeat in rates] for repeat in repeats}
    logs = [{repeat: math.log(rate) for repeat, rate in rates.items()} for rates in places.values()]
    effect = dict.fromkeys(repeats, 0.0)
    own = [0.0] * len(logs)
    for _ in range(_FILL_ROUNDS):
        own = [statistics.fmean(log - effect[repeat] for repeat, log in of.items()) for of in logs]
        before = effect
        effect = {r: statistics.fmean(of[r] - own[i] for i, of in enumerate(logs) if r in of) for r in repeats}
        if max(abs(effect[r] - before[r]) for r in repeats) < 1e-12:
            break
    return {r: [math.exp(of.get(r, own[i] + effect[r])) for i, of in enumerate(logs)] for r in repeats}


def _connected(places: Sequence[set[int]]) -> bool:
    """Whether a chain of common repeats connects all places, each given by its repeats."""
    first, *others = places
    reached = set(first)
    while near := [repeats for repeats in others if repeats & reached]:
        reached.update(*near)
        others = [repeats for repeats in others if not repeats & reached]
    return not others


def job_mean(job: JobSummary) -> LogMean | None:
    """The mean log rate of a job; None without a rate, or with a rate of 0."""
    return weighted_mean({job.name: repeat_rates(job)}, {job.name: 1.0})


def weighted_mean(jobs: Mapping[str, Mapping[Key, float]], weights: Mapping[str, float]) -> LogMean | None:
    """The weighted mean over jobs of their mean log rates.

    The variance allows for any dependence between jobs within a repeat: with u_k = sum_j w_j / n_j * e_jk over the
    jobs' residuals e_jk in sample k, it is K / (K - 1) * sum_k u_k^2, the variance clustered by sample (Liang and
    Zeger 1986). Residuals of a job that lacks samples are enlarged by sqrt((n_j / (n_j - 1)) / (K / (K - 1))), so that
    its part stays its own sample variance / n_j. If no job lacks a sample, all this is the t interval of the samples'
    weighted means; if one does, `degrees_of_freedom` finds those of the variance.

    Args:
        jobs: job -> its rate in each repeat.

    Returns:
        None if a job has no rate or a rate of 0, or if the weights add up to 0.
    """
    total = math.fsum(weights[name] for name in jobs)
    if not total or not all(rates and min(rates.values()) > 0 for rates in jobs.values()):
        return None
    by_session = len({session for rates in jobs.values() for session, _ in rates}) >= MIN_SESSIONS
    logs = {name: _samples(rates, by_session) for name, rates in jobs.items()}
    means = {name: statistics.fmean(of.values()) for name, of in logs.items()}
    mean = math.fsum(weights[name] * value for name, value in means.items()) / total
    keys = {key for of in logs.values() for key in of}
    n = len(keys)
    of_what: Literal["repeat", "session"] = "session" if by_session else "repeat"
    if n < MIN_REPEATS or any(len(of) < 2 for of in logs.values()):
        return LogMean(mean, None, 0.0, min(len(of) for of in logs.values()), of_what)
    moves = dict.fromkeys(keys, 0.0)
    scales = []
    for name, of in logs.items():
        enlarged = math.sqrt((len(of) / (len(of) - 1)) / (n / (n - 1)))
        factor = weights[name] / total / len(of) * enlarged
        for key, log in of.items():
            moves[key] += factor * (log - means[name])
        squares = math.fsum((log - means[name]) ** 2 for log in of.values())
        scales.append((factor * math.sqrt(squares / (len(of) - 1)), of.keys()))
    variance = n / (n - 1) * math.fsum(move * move for move in moves.values())
    fewest = min(len(of) for of in logs.values())
    df = n - 1.0 if fewest == n else degrees_of_freedom(scales, sorted(keys))
    return LogMean(mean, variance, df, n, of_what, fewest)


def _samples(rates: Mapping[Key, float], by_session: bool) -> dict[Key, float]:
    """Log rates by repeat, or the mean of a session's repeats by session."""
    if not by_session:
        return {key: math.log(rate) for key, rate in rates.items()}
    sessions: dict[int, list[float]] = defaultdict(list)
    for (session, _), rate in rates.items():
        sessions[session].append(math.log(rate))
    return {(session, 0): statistics.fmean(of) for session, of in sessions.items()}
