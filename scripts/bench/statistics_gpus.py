#!/usr/bin/env python
"""Simulate suites of 18 jobs on 8 GPUs: how often the report names an equal GPU, and how often it finds an unlike one.

The report's own functions judge each suite. A suite's rates scatter from repeat to repeat, by themselves on each GPU.
False alarms are suites of equal GPUs in which any GPU is named. The other columns are suites with one unlike GPU in
which that GPU is named. The report names no difference under 2 %: "any effect" counts significant tests without this
limit.

    python scripts/bench/statistics_gpus.py                    # 1,000 suites a row
    python scripts/bench/statistics_gpus.py --suites 100       # a quick look
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from benchsuite.report.stats.gpu_cells import Cell, Cells, GpuKey
from benchsuite.report.stats.gpu_failures import failing_gpus
from benchsuite.report.stats.gpu_tests import compare_speeds
from benchsuite.report.stats.verdict import FAMILY_ERROR

Floats = NDArray[np.float64]
JOBS, GPUS = 18, 8
REPEATS = (3, 5, 10)
FAILING = 0.01
SLOWDOWN = 0.03
FAILS_OFTEN = 0.1
ODD = 3
KEYS = tuple(GpuKey("made-up", index, f"GPU-{index:08d}") for index in range(GPUS))
# Of the suites with equal GPUs, the share that is simulated for each unlike GPU.
_POWER_SHARE = 4


@dataclass(frozen=True)
class Share:
    """`hits` of `suites`, with the standard error of the simulation."""

    hits: int
    suites: int

    def __str__(self) -> str:
        share = self.hits / self.suites
        return f"{100 * share:.1f} ± {100 * math.sqrt(share * (1 - share) / self.suites):.1f}"


@dataclass(frozen=True)
class Row:
    """A row of the table; shares in percent of suites.

    Attributes:
        failing: probability that a task fails.
        significant: equal GPUs, of which any has a significant test of speed, whatever the effect.
        speed_alarms: equal GPUs, of which any is named as slower or faster.
        blamed: equal GPUs beside one that is `SLOWDOWN` slower in all jobs, of which any is named.
        slow: a GPU that is `SLOWDOWN` slower in all jobs.
        slow_in_one: a GPU that is `SLOWDOWN` slower in one job.
        failure_alarms: equal GPUs, of which any is named as failing more often.
        fails_often: a GPU on which a task fails with probability `FAILS_OFTEN`.
        fails_in_one: a GPU on which one job always fails.
    """

    noise: str
    repeats: int
    failing: float
    significant: Share
    speed_alarms: Share
    blamed: Share
    slow: Share
    slow_in_one: Share
    failure_alarms: Share
    fails_often: Share
    fails_in_one: Share


def _alike(std: float) -> Callable[[np.random.Generator], Floats]:
    return lambda _: np.full((JOBS, GPUS), std)


def _unlike_jobs(_: np.random.Generator) -> Floats:
    return np.repeat(np.geomspace(0.003, 0.03, JOBS)[:, None], GPUS, axis=1)


def _one_noisy(_: np.random.Generator) -> Floats:
    return np.where(np.arange(GPUS) == GPUS - 1, 0.03, np.full((JOBS, 1), 0.01))


def _unlike_cells(chance: np.random.Generator) -> Floats:
    return np.exp(chance.uniform(np.log(0.003), np.log(0.03), (JOBS, GPUS)))


# Standard deviations of ln(rate) over repeats, of shape [jobs, gpus].
NOISE: Mapping[str, Callable[[np.random.Generator], Floats]] = {
    "0.2 %": _alike(0.002),
    "1 %": _alike(0.01),
    "10 %": _alike(0.1),
    "0.3 to 3 % over jobs": _unlike_jobs,
    "1 %, one GPU 3 %": _one_noisy,
    "0.3 to 3 % over jobs and GPUs": _unlike_cells,
    "1 %, half of it common to a repeat's jobs": _alike(0.01),
}
_COMMON = "1 %, half of it common to a repeat's jobs"


@dataclass(frozen=True)
class Suites:
    """Suites of one kind.

    Attributes:
        noise: a key of `NOISE`.
        failing: probability that a task fails.
    """

    noise: str
    repeats: int
    failing: float
    chance: np.random.Generator

    def logs(self, slow: float = 0.0, slow_in_one: float = 0.0) -> Floats:
        """ln(rate), of shape [jobs, repeats, gpus], NaN for failed tasks; the GPU `ODD` is slower by these shares."""
        shape = (JOBS, self.repeats, GPUS)
        std = NOISE[self.noise](self.chance)[:, None]
        logs = self.chance.normal(size=shape) * std
        if self.noise == _COMMON:
            logs = (logs + self.chance.normal(size=(1, *shape[1:])) * std) / math.sqrt(2)
        logs[:, :, ODD] += math.log1p(-slow)
        logs[self.chance.integers(JOBS), :, ODD] += math.log1p(-slow_in_one)
        return np.where(self.chance.random(shape) < self.failing, np.nan, logs)

    def failures(self, fails_often: float = 0.0, *, fails_in_one: bool = False) -> Cells:
        """Cells without rates; tasks on the GPU `ODD` fail with probability `fails_often`, or always in one job."""
        failed = self.chance.random((JOBS, self.repeats, GPUS)) < self.failing
        failed[:, :, ODD] |= self.chance.random((JOBS, self.repeats)) < fails_often
        failed[self.chance.integers(JOBS), :, ODD] |= fails_in_one
        counts = enumerate(failed.sum(axis=1).tolist())
        return {
            f"job{j:02d}": {key: Cell(n=self.repeats, fail=fail) for key, fail in zip(KEYS, of_job, strict=True)}
            for j, of_job in counts
        }


def _tests(logs: Floats) -> tuple[bool, set[int]]:
    """Whether any test is significant, whatever the effect; and the GPUs that the report names as slower or faster."""
    jobs, together = compare_speeds(logs)
    assert together is not None
    significant = any((tests.adjusted <= FAMILY_ERROR).any() for tests in (jobs, together))
    return significant, set(np.flatnonzero(jobs.outliers.any(axis=0) | together.outliers).tolist())


def _failing(cells: Cells) -> set[int]:
    """The GPUs that the report names for their failures."""
    return {found.gpu.index for found in failing_gpus(cells, KEYS)}


def rows(suites: int, seed: int) -> Iterator[Row]:
    """A row for each kind of suites.

    Args:
        suites: of equal GPUs in each row; a quarter of this for each unlike GPU.
    """
    few = max(1, suites // _POWER_SHARE)
    kinds = itertools.product(NOISE, REPEATS, (0.0, FAILING))
    for number, (noise, repeats, failing) in enumerate(kinds):
        of = Suites(noise, repeats, failing, np.random.default_rng([seed, number]))
        equal = [_tests(of.logs()) for _ in range(suites)]
        slow = [_tests(of.logs(slow=SLOWDOWN))[1] for _ in range(few)]
        yield Row(
            noise,
            repeats,
            failing,
            significant=Share(sum(significant for significant, _ in equal), suites),
            speed_alarms=Share(sum(bool(named) for _, named in equal), suites),
            blamed=Share(sum(bool(named - {ODD}) for named in slow), few),
            slow=Share(sum(ODD in named for named in slow), few),
            slow_in_one=Share(sum(ODD in _tests(of.logs(slow_in_one=SLOWDOWN))[1] for _ in range(few)), few),
            **_failures(repeats, failing, suites, seed),
        )


@functools.cache
def _failures(repeats: int, failing: float, suites: int, seed: int) -> dict[str, Share]:
    """The columns of failures, which are the same at any noise."""
    few = max(1, suites // _POWER_SHARE)
    of = Suites("", repeats, failing, np.random.default_rng([seed, repeats]))
    return {
        "failure_alarms": Share(sum(bool(_failing(of.failures())) for _ in range(suites)), suites),
        "fails_often": Share(sum(ODD in _failing(of.failures(fails_often=FAILS_OFTEN)) for _ in range(few)), few),
        "fails_in_one": Share(sum(ODD in _failing(of.failures(fails_in_one=True)) for _ in range(few)), few),
    }


HEADER = (
    "noise of a repeat", "repeats", "tasks that fail", "false alarms: speed, any effect", "false alarms: speed",
    "an equal GPU beside a slow one", "found: 3 % slower in all jobs", "found: 3 % slower in one job",
    "false alarms: failures", "found: fails in 10 % of tasks", "found: one job always fails",
)  # fmt: skip


def table(found: Iterator[Row]) -> Iterator[str]:
    """The lines of a Markdown table, in percent of suites."""
    yield f"| {' | '.join(HEADER)} |"
    yield f"|{'---|' * len(HEADER)}"
    for row in found:
        cells = [getattr(row, field.name) for field in fields(row)]
        cells[2] = f"{row.failing:.0%}".replace("%", " %")
        yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suites", type=int, default=1000, help="suites of equal GPUs a row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    chosen = parser.parse_args()
    for line in table(rows(chosen.suites, chosen.seed)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
