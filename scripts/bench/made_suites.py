"""Simulated suites whose truth is known: log rates of jobs, and whole summaries of runs.

A rate is exp(truth + effect of its GPU + noise of its repeat + noise of its own). The effects of GPUs are fixed: both
sides of a comparison measure the same machine.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchsuite.report.measure.intervals import perf_adjusted, relative_std
from benchsuite.report.read.summary import JobSummary, ProfileRef, Repeat, Summary, TaskGpu, TaskSummary

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
JOBS = 18
NAMES = tuple(f"job{place}" for place in range(JOBS))
# The standard deviation of the fixed effects of GPUs.
GPU_EFFECT = 0.02
_RATE = 1000.0


@dataclass(frozen=True)
class Scatter:
    """The noise of a suite: standard deviations of log rates.

    Attributes:
        least, most: of the repeats of a job; the jobs lie between them at equal ratios.
        here: this run's noise over the base's.
        spread: the standard deviation over jobs of the log of that ratio.
        crossed: half the jobs have 10 times the noise in this run, the other half in the base.
        shared: the share of the variance that all jobs of a repeat have in common, in this run and in the base.
        own: of each task, besides the noise of its repeat.
        heavy: the noise has Student's t distribution with 5 degrees of freedom, at the same variance.
        failing: the probability that a task fails.
    """

    name: str
    least: float = 0.01
    most: float = 0.01
    here: float = 1.0
    spread: float = 0.0
    crossed: bool = False
    shared: tuple[float, float] = (0.0, 0.0)
    own: float = 0.0
    heavy: bool = False
    failing: float = 0.0

    def sigmas(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The noise of each job's repeats in this run and in the base."""
        base = np.geomspace(self.least, self.most, JOBS)
        ratio = self.here * np.exp(self.spread * rng.normal(size=JOBS))
        if self.crossed:
            ratio = np.where(np.arange(JOBS) % 2, 10.0, 0.1)
            base = np.where(np.arange(JOBS) % 2, base, base * 10)
        return base * ratio, base

    def noise(self, rng: np.random.Generator, sigma: Floats, repeats: int, place: int) -> Floats:
        """The noise of repeats, of shape [jobs, repeats].

        Args:
            place: 0 for this run, 1 for the base.
        """
        own, common = (self._drawn(rng, shape) for shape in ((JOBS, repeats), (1, repeats)))
        return sigma[:, None] * (math.sqrt(1 - self.shared[place]) * own + math.sqrt(self.shared[place]) * common)

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return rng.standard_t(5, shape) / math.sqrt(5 / 3) if self.heavy else rng.normal(size=shape)


def rates(logs: Floats, ok: Bools) -> dict[str, dict[tuple[int, int], float]]:
    """Job -> its rate in each repeat that is ok, as `samples.repeat_rates` gives it."""
    of = zip(NAMES, np.exp(logs).tolist(), ok.tolist(), strict=True)
    return {name: {(0, k): rate for k, rate in enumerate(row) if good[k]} for name, row, good in of}


def effects(rng: np.random.Generator, gpus: int) -> Floats:
    """The fixed effects of a machine's GPUs, of shape [jobs, GPUs]."""
    return rng.normal(0, GPU_EFFECT, (JOBS, gpus))


def true_logs(effect: Floats, own: float) -> dict[str, float]:
    """The expected log rate of each job in a repeat: the mean over GPUs, to the second order in `own`."""
    shares = np.exp(effect) / np.exp(effect).sum(axis=1, keepdims=True)
    curved = own**2 / 2 * (1 - (shares**2).sum(axis=1))
    return dict(zip(NAMES, (math.log(_RATE) + np.log(np.exp(effect).mean(axis=1)) + curved).tolist(), strict=True))


def made_summary(
    rng: np.random.Generator,
    scatter: Scatter,
    sigma: Floats,
    effect: Floats,
    repeats: int,
    place: int,
) -> Summary:
    """A run's summary with a task for each job, GPU and repeat.

    Args:
        effect: of GPUs, of shape [jobs, GPUs].
        place: 0 for this run, 1 for the base.
    """
    shape = (JOBS, effect.shape[1], repeats)
    logs = effect[:, :, None] + scatter.noise(rng, sigma, repeats, place)[:, None, :]
    values = _RATE * np.exp(logs + scatter.own * rng.normal(size=shape))
    ok = rng.random(shape) >= scatter.failing
    jobs = [_job(name, values[j], ok[j]) for j, name in enumerate(NAMES)]
    return Summary(source="simulated", profile=ProfileRef(name="simulated"), gpus_used=shape[1], jobs=tuple(jobs))


def _job(name: str, values: Floats, ok: Bools) -> JobSummary:
    """A job of a summary from rates of shape [GPUs, repeats]."""
    gpus, repeats = values.shape
    perfs = values[ok].tolist()
    perf, std, fail = statistics.fmean(perfs) if perfs else None, relative_std(perfs), int((~ok).sum())
    return JobSummary(
        name=name,
        job=name,
        workload=name,
        n=ok.size,
        fail=fail,
        perf=perf,
        std=std,
        perf_adj=perf_adjusted(perf, std, ok.size, fail),
        repeats=tuple(_repeat(k, values[:, k], ok[:, k]) for k in range(repeats)),
        tasks=tuple(_task(name, g, k, values[g, k], bool(ok[g, k])) for k in range(repeats) for g in range(gpus)),
    )


def _repeat(repeat: int, values: Floats, ok: Bools) -> Repeat:
    perf = float(values[ok].mean()) if ok.any() else None
    return Repeat(repeat=repeat, tasks=ok.size, ok=int(ok.sum()), perf=perf)


def _task(name: str, gpu: int, repeat: int, rate: float, ok: bool) -> TaskSummary:
    return TaskSummary(
        id=f"{name}.r{repeat}.D{gpu}",
        host="simulated",
        repeat=repeat,
        device=f"D{gpu}",
        status="ok" if ok else "failed",
        workload=name,
        perf=float(rate) if ok else None,
        gpus=(TaskGpu(index=gpu, uuid=f"GPU-{gpu}"),),
    )
