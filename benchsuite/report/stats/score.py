"""The score: a weighted geometric mean of adjusted throughputs, with its coverage and failures; and the speed under it.

A score covers every weighed job, or there is none: a mean over the jobs that survive rises with each job that fails.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from benchsuite.report.format import count, few
from benchsuite.report.measure.intervals import MIN_REPEATS, Interval, perf_adjusted, relative_std
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.stats.failures import Never, never_ok
from benchsuite.report.stats.samples import LogMean, repeat_rates, stalls, weighted_mean
from benchsuite.report.stats.smoke import NO_SCORE, smoke_check
from benchsuite.report.stats.weights import Weighing, needs_more_gpus, was_left_out

FAILURE_LIMIT = 0.01
NO_THROUGHPUT = "no weighed job has a throughput"
# The number of jobs named.
_NAMED = 8
NO_WEIGHT = "the weights of this run's jobs add up to 0"


@dataclass(frozen=True)
class Score:
    """The score of a run.

    Attributes:
        value: the weighted geometric mean of perf_adj; None for the `reason`.
        machine: the same of all GPUs together; None if any job keeps no numbers per repeat.
        speed: the weighted geometric mean of perf, over ok tasks and without any penalty: what intervals and ratios
            are of. The penalty is no sampled quantity, and it grows with the number of repeats and GPUs.
        machine_speed: the same of all GPUs together.
        interval: 95 % around `speed`.
        reason: why there is no score.
        n: planned tasks.
        ended: the tasks that `fail` is out of; fewer than `n` in an unfinished run.
        never: the jobs that never succeed on a GPU, or on the machine.
        incomplete: the reasons why not every weighed job has a figure.
        blocking: those of them that leave no score, unless the user asks for a part.
        scored, weighed: the numbers of jobs that the score covers, and should cover.
        coverage: the share of the weight that has a figure, 0 to 1.
        repeats: the number of samples behind `interval`; without one, the fewest of any scored job.
        partial: the score is over a part of the jobs, since the user asks for it or the profile has no more.
        penalized: perf_adj includes the variance penalty.
    """

    weighing: Weighing
    value: float | None
    machine: float | None
    speed: float | None
    machine_speed: float | None
    interval: Interval | None
    reason: str | None
    n: int
    ended: int
    fail: int
    never: tuple[Never, ...]
    incomplete: tuple[str, ...]
    blocking: tuple[str, ...]
    scored: int
    weighed: int
    coverage: float | None
    repeats: int
    in_progress: bool
    partial: bool = False
    penalized: bool = True

    @property
    def failure_rate(self) -> float | None:
        """The share of failed tasks among those that have ended; None if none has."""
        return self.fail / self.ended if self.ended else None

    @property
    def verdict(self) -> Literal["PASS", "FAIL", "UNFINISHED"]:
        """UNFINISHED with tasks to run; FAIL above `FAILURE_LIMIT`, or if a job never succeeds on a GPU."""
        if self.unfinished:
            return "UNFINISHED"
        passes = self.failure_rate is not None and self.failure_rate <= FAILURE_LIMIT and not self.never
        return "PASS" if passes else "FAIL"

    @property
    def unfinished(self) -> bool:
        """Whether the run is in progress, or was interrupted and has tasks to run."""
        return self.in_progress or self.ended < self.n

    @property
    def provisional(self) -> bool:
        return self.repeats < MIN_REPEATS


def without_penalty(summary: Summary) -> Summary:
    """A summary whose perf_adj counts failures only: perf * (1 - fail/n)."""
    jobs = (replace(job, perf_adj=perf_adjusted(job.perf, None, job.ended, job.fail)) for job in summary.jobs)
    return replace(summary, jobs=tuple(jobs))


def score(summary: Summary, weighing: Weighing, *, penalized: bool = True, partial: bool = False) -> Score:
    """Score a run: exp(sum(w * ln(perf_adj)) / sum(w)) over the weighed jobs.

    Jobs of weight 0 are left out before any logarithm.

    Args:
        penalized: false for a summary `without_penalty`; the machine score then has no variance penalty either.
        partial: score the jobs that have a figure; without it, a weighed job without one, or with a task that is
            still to run, leaves no score.
    """
    weighed = {job.name: job for job in summary.jobs if weighing.jobs.get(job.name, 0.0) > 0}
    scored = {name: job for name, job in weighed.items() if job.perf_adj > 0 and not stalls(job)}
    total = math.fsum(weighing.jobs[name] for name in weighed) + math.fsum(weighing.missing.values())
    weights = {name: weighing.jobs[name] for name in scored}
    blocking = tuple(_blocking(summary, weighed.values(), weighing))
    incomplete = (*blocking, *_beside_the_profile(summary, weighing))
    given = {} if blocking and not partial else scored
    machines = {name: machine_throughput(job, penalized=penalized) for name, job in given.items()}
    known = {name: rate for name, rate in machines.items() if rate}
    around = speed(given, weights)
    factor = machine_factor((weights[name], job) for name, job in given.items())
    return Score(
        weighing=weighing,
        value=geometric_mean({name: job.perf_adj for name, job in given.items()}, weights),
        machine=geometric_mean(known, weights) if len(known) == len(machines) else None,
        speed=around.rate if around else None,
        machine_speed=around.scaled(factor).rate if around and factor else None,
        interval=around.interval if around else None,
        reason=_reason(scored, total, () if partial else blocking, incomplete),
        n=sum(job.n for job in summary.jobs),
        ended=sum(job.ended for job in summary.jobs),
        fail=sum(job.fail for job in summary.jobs),
        never=never_ok(summary),
        incomplete=incomplete,
        blocking=blocking,
        scored=len(given),
        weighed=len(weighed) + len(weighing.missing),
        coverage=math.fsum(weights.values()) / total if total else None,
        repeats=around.n if around else 0,
        in_progress=summary.in_progress,
        partial=bool(incomplete) and (partial or not blocking),
        penalized=penalized,
    )


def _reason(
    scored: Mapping[str, JobSummary], total: float, blocking: tuple[str, ...], incomplete: tuple[str, ...]
) -> str | None:
    if not total:
        return NO_WEIGHT
    if not scored:
        return f"{NO_THROUGHPUT} ({'; '.join(incomplete)})"
    return "; ".join(blocking) or None


def speed(jobs: Mapping[str, JobSummary], weights: Mapping[str, float]) -> LogMean | None:
    """The weighted mean of the jobs' log rates per task; None without jobs, weights or a rate above 0 in each.

    A job that keeps no numbers per repeat counts by its perf; the mean then has no variance.
    """
    rates = {name: repeat_rates(job) for name, job in jobs.items()}
    if jobs and all(rates.values()):
        return weighted_mean(rates, weights)
    perfs = {name: job.perf for name, job in jobs.items() if job.perf}
    mean = geometric_mean(perfs, weights) if perfs and len(perfs) == len(jobs) else None
    return LogMean(math.log(mean), None, 0.0, 0) if mean else None


def tasks_at_once(job: JobSummary) -> int | None:
    """The number of rates like perf that a machine delivers at once: tasks of a repeat times `per`.

    A published job counts its GPUs. None if neither is known.
    """
    if job.repeats:
        return max(repeat.tasks for repeat in job.repeats) * job.per
    if job.devices in ("each", "none") and job.gpus:
        return len(job.gpus)
    return None


def machine_factor(jobs: Iterable[tuple[float, JobSummary]]) -> float | None:
    """The weighted geometric mean of `tasks_at_once` over (weight, job); None without jobs, or if one is not known."""
    counts = [(weight, tasks_at_once(job)) for weight, job in jobs]
    if not counts or not all(number for _, number in counts):
        return None
    total = math.fsum(weight for weight, _ in counts)
    return math.exp(math.fsum(weight * math.log(number or 1) for weight, number in counts) / total)


def geometric_mean(rates: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    """exp(sum(w * ln(rate)) / sum(w)); None if the weights add up to 0."""
    total = math.fsum(weights[name] for name in rates)
    if not total:
        return None
    return math.exp(math.fsum(weights[name] * math.log(rate) for name, rate in rates.items()) / total)


def machine_throughput(job: JobSummary, *, penalized: bool = True) -> float | None:
    """Items/s of all GPUs together, adjusted; None if the job keeps no numbers per repeat.

    Each repeat gives the mean of its ok tasks times its *planned* tasks. A failed task then counts once, by the failure
    factor; in a plain sum its throughput would be missing as well. std is over repeats, since the scatter between GPUs
    evens out in their sum.
    """
    totals = [r.perf * r.tasks * job.per for r in job.repeats if r.perf is not None]
    if not totals:
        return None
    std = relative_std(totals) if penalized else None
    return perf_adjusted(statistics.fmean(totals), std, job.ended, job.fail)


def _blocking(summary: Summary, weighed: Collection[JobSummary], weighing: Weighing) -> Iterable[str]:
    """Each reason why there is no score: a weighed job has no figure, or the figures are not of the whole plan."""
    if smoke_check(summary):
        yield NO_SCORE
    if summary.in_progress:
        to_run, n = sum(job.to_run for job in summary.jobs), sum(job.n for job in summary.jobs)
        yield f"in progress: {to_run} of {count(n, 'task')} still to run"
    yield from (why for job in weighed if job.to_run == job.not_run and (why := _no_figure(job)))
    unlike = [job.name for job in weighed if job.unlike_machines]
    if unlike:
        yield f"results of unlike machines: {', '.join(few(unlike, _NAMED))}"
    not_run = [f"{job.name} ({job.not_run} of {job.n})" for job in weighed if job.not_run]
    if not_run:
        yield f"tasks to run: {', '.join(few(not_run, _NAMED))}"
    sessions = len(summary.sessions)
    lacking = [f"{job.name} ({found} of {sessions})" for job in weighed if (found := _sessions(job)) < sessions]
    if lacking:
        yield f"not in every session: {', '.join(lacking)}"
    left_out = [name for name in weighing.missing if was_left_out(name, summary)]
    if left_out:
        yield f"left out by --name or --exclude: {', '.join(few(left_out, _NAMED))}"
    hidden = [name for name in weighing.missing if needs_more_gpus(name, summary)]
    if hidden:
        yield f"more GPUs needed than are visible: {', '.join(few(hidden, _NAMED))}"
    absent = [name for name in weighing.missing if name not in (*left_out, *hidden)]
    if absent and not _has_own_profile(summary):
        yield f"not in this run: {', '.join(few(absent, _NAMED))}"


def _beside_the_profile(summary: Summary, weighing: Weighing) -> Iterable[str]:
    """The jobs of the weights that the run's own profile does not have: no gap of the run, but a smaller suite."""
    given = [name for name in weighing.missing if not needs_more_gpus(name, summary)]
    absent = [name for name in given if not was_left_out(name, summary)]
    if absent and _has_own_profile(summary):
        yield f"not in this profile: {', '.join(few(absent, _NAMED))}"


def _has_own_profile(summary: Summary) -> bool:
    """Whether the run's profile is known, and is not a shipped one."""
    return summary.complete is not None and summary.profile is not None and not summary.profile.official


def _sessions(job: JobSummary) -> int:
    return len({task.session for task in job.tasks})


def _no_figure(job: JobSummary) -> str | None:
    """Why a job has no figure, though tasks of it ran."""
    if job.unlike_machines:
        return None
    if job.perf is None:
        return f"{job.name} fails in {job.fail:,} of {count(job.ended, 'task')}" if job.fail else None
    if job.perf_adj <= 0:
        return f"perf_adj of {job.name} is 0"
    return f"a repeat of {job.name} has a throughput of 0" if stalls(job) else None
