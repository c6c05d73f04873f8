#!/usr/bin/env python
"""Measure on simulated suites what a budget does to the intervals: their coverage, and their width at equal time.

The rates are random numbers whose truth is known. The rounds of a run are chosen by `benchsuite.launch.rounds`, and the
intervals and verdicts are the report's own. The output is the table of docs/statistics.md, in Markdown. The exit status
is 1 if a coverage or an error rate misses its limits.

    python scripts/bench/budget_rates.py                # 1,000 suites a row: about ten minutes on two processors
    python scripts/bench/budget_rates.py --suites 100   # to see that it works
    python scripts/bench/budget_rates.py --one-by-one   # instead, the next repeat is always that of the largest gain
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from made_suites import JOBS, NAMES, Bools, Floats, Scatter

from benchsuite.launch.rounds import FULL_ROUNDS, Known, gains_of, jobs_of_round
from benchsuite.report.stats.samples import LogMean, weighted_mean
from benchsuite.report.stats.verdict import judge

WEIGHTS = dict.fromkeys(NAMES, 1.0)
# The most rounds of a run.
ROUNDS = 60
# Passes over the suite that the budget has time for, and repeats of the base of a comparison.
PASSES, BASE_REPEATS = (4, 6, 10), 5
WIDE = (0.0001, 0.15)
SCATTERS = (
    Scatter("1 %"),
    Scatter("0.3 to 3 % over jobs", 0.003, 0.03),
    Scatter("0.01 to 15 % over jobs", *WIDE),
    Scatter("0.01 to 15 %, heavy tails", *WIDE, heavy=True),
    Scatter("1 %, half common", shared=(0.5, 0.5)),
    Scatter("0.3 to 3 %, half common", 0.003, 0.03, shared=(0.5, 0.5)),
    Scatter("0.01 to 15 %, half common", *WIDE, shared=(0.5, 0.5)),
    Scatter("0.3 to 3 %, 1 % of repeats fail", 0.003, 0.03, failing=0.01),
)
COVERAGE, ALARMS, SLACK = (93.0, 97.0), 5.0, 3.0
Rates = dict[str, dict[tuple[int, int], float]]


@dataclass(frozen=True)
class Row:
    """A kind of suite.

    Attributes:
        passes: for which it has time.
        one_by_one: the repeats after the first rounds are chosen one by one, without rounds.
    """

    scatter: Scatter
    passes: int
    one_by_one: bool = False


def with_budget(logs: Floats, ok: Bools, times_s: Sequence[float], limit_s: float) -> Rates:
    """The rates of a run with a budget.

    Args:
        logs, ok: the log rate of each job in each round, and whether it is ok, of shape [jobs, rounds].
        times_s: of a repeat of each job.
    """
    rates: Rates = {name: {} for name in NAMES}
    runs, spent_s = dict.fromkeys(NAMES, 0), 0.0
    for number in range(ROUNDS):
        if spent_s + min(times_s) > limit_s:
            break
        known = {
            name: Known(1.0, [math.log(rate) for rate in rates[name].values()], runs[name], times_s[place])
            for place, name in enumerate(NAMES)
        }
        for name in jobs_of_round(number, known):
            place = NAMES.index(name)
            if spent_s + times_s[place] <= limit_s + 1e-9:
                spent_s, runs[name] = spent_s + times_s[place], runs[name] + 1
                if ok[place, number]:
                    rates[name][0, number] = math.exp(logs[place, number])
    return rates


def chosen_one_by_one(logs: Floats, ok: Bools, times_s: Sequence[float], limit_s: float) -> Rates:
    """The rates of a run whose next repeat is always that of the largest gain for each second.

    A job that has a repeat in the present round begins the next round.
    """
    rates = equal(logs, ok, FULL_ROUNDS)
    number, spent_s = FULL_ROUNDS, FULL_ROUNDS * sum(times_s)
    while number < ROUNDS:
        known = {name: Known(1.0, [math.log(rate) for rate in of.values()], len(of), 0.0) for name, of in rates.items()}
        gains = gains_of(known)
        fitting = [place for place in range(JOBS) if spent_s + times_s[place] <= limit_s]
        if not fitting:
            break
        place = max(fitting, key=lambda place: gains.get(NAMES[place], 0.0) / times_s[place])
        number += (0, number) in rates[NAMES[place]]
        spent_s += times_s[place]
        if number < ROUNDS and ok[place, number]:
            rates[NAMES[place]][0, number] = math.exp(logs[place, number])
    return rates


def equal(logs: Floats, ok: Bools, repeats: int) -> Rates:
    """The rates of a run in which each job has this number of repeats."""
    return {
        name: {(0, k): math.exp(logs[place, k]) for k in range(repeats) if ok[place, k]}
        for place, name in enumerate(NAMES)
    }


def suite(row: Row, seed: int) -> dict[str, float]:
    """One suite: whether each interval covers the truth, which is a log rate of 0, and how wide it is."""
    rng = np.random.default_rng([seed, row.passes, SCATTERS.index(row.scatter)])
    sigma, _ = row.scatter.sigmas(rng)
    order = rng.permutation(JOBS)
    times_s = np.geomspace(10.0, 40.0, JOBS)[rng.permutation(JOBS)].tolist()
    found: dict[str, float] = {}
    sides: dict[str, tuple[dict[str, LogMean], LogMean]] = {}
    for name in ("budget", "equal", "base"):
        logs = row.scatter.noise(rng, sigma[order], ROUNDS, 0)
        ok = rng.random(logs.shape) >= row.scatter.failing
        if name == "budget":
            run = chosen_one_by_one if row.one_by_one else with_budget
            rates = run(logs, ok, times_s, row.passes * sum(times_s))
        else:
            rates = equal(logs, ok, row.passes if name == "equal" else BASE_REPEATS)
        rates = {job: of or {(0, 0): 1.0} for job, of in rates.items()}
        jobs = {job: known(weighted_mean({job: of}, {job: 1.0})) for job, of in rates.items()}
        sides[name] = jobs, known(weighted_mean(rates, WEIGHTS))
        found |= covered(name, *sides[name], [len(of) for of in rates.values()])
    verdicts = judge(
        {job: (sides["budget"][0][job], sides["base"][0][job]) for job in NAMES},
        scores={"score": (sides["budget"][1], sides["base"][1])},
    )
    score = verdicts["score"]
    found["cover ratio"] = math.nan
    if score.low is not None and score.high is not None:
        found["cover ratio"] = float(score.low <= 1 <= score.high)
    found["alarm jobs"] = float(any(verdicts[job].word in ("FASTER", "SLOWER") for job in NAMES))
    found["alarm score"] = float(score.word in ("FASTER", "SLOWER"))
    return found


def covered(name: str, jobs: Mapping[str, LogMean], score: LogMean, counts: Sequence[int]) -> dict[str, float]:
    interval = score.interval
    if interval is None:  # two repeats of a job failed
        return dict.fromkeys(measures(name), math.nan)
    covers = [of.low <= 1 <= of.high for job in jobs.values() if (of := job.interval)]
    values = (
        float(interval.low <= 1 <= interval.high),
        statistics.fmean(covers),
        math.log(interval.high / interval.low) / 2,
        score.mean**2,
        min(counts),
        max(counts),
    )
    return dict(zip(measures(name), values, strict=True))


def measures(name: str) -> list[str]:
    """What is measured of one side."""
    return [f"{what} {name}" for what in ("cover", "cover jobs", "width", "square", "fewest", "most")]


def known(mean: LogMean | None) -> LogMean:
    assert mean is not None
    return mean


def line(row: Row, found: Sequence[Mapping[str, float]]) -> tuple[str, list[str]]:
    """The row of the table, and what misses its limits."""
    column = {name: [one[name] for one in found if not math.isnan(one[name])] for name in found[0]}
    cells, missed = [row.scatter.name, str(row.passes)], []
    cells.append(f"{statistics.fmean(column['fewest budget']):.1f} to {statistics.fmean(column['most budget']):.1f}")
    for name in ("cover equal", "cover budget", "cover jobs budget", "cover ratio", "alarm jobs", "alarm score"):
        rate = 100 * statistics.fmean(column[name])
        error = 100 * statistics.stdev(column[name]) / math.sqrt(len(found))
        cells.append(f"{rate:.1f} ± {error:.1f}")
        low, high = (0.0, ALARMS) if name.startswith("alarm") else COVERAGE
        if "equal" not in name and not low - SLACK * error <= rate <= high + SLACK * error:
            missed.append(f"{row.scatter.name}, {row.passes} passes: {name} {cells[-1]} %")
    widths = [statistics.median(column[f"width {name}"]) for name in ("budget", "equal")]
    errors = [math.sqrt(statistics.fmean(column[f"square {name}"])) for name in ("budget", "equal")]
    cells += [f"{widths[0] / widths[1]:.2f}", f"{errors[0] / errors[1]:.2f}"]
    return f"| {' | '.join(cells)} |", missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", type=int, default=1000, help="suites a row (default: 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one-by-one", action="store_true", help="choose each repeat by itself, without rounds")
    asked = parser.parse_args()
    heads = ("noise", "passes of time", "repeats", "coverage, equal repeats", "coverage, budget", "job", "score ratio")
    heads = (*heads, "false alarm, jobs", "false alarm, score", "width", "error")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    missed: list[str] = []
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for row in (Row(scatter, passes, asked.one_by_one) for scatter in SCATTERS for passes in PASSES):
            seeds = range(asked.seed * 10**6, asked.seed * 10**6 + asked.suites)
            words, troubles = line(row, list(pool.map(suite, [row] * asked.suites, seeds, chunksize=25)))
            print(words, flush=True)
            missed += troubles
    print(*missed, sep="\n", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
