"""Error rates, coverage and power of the report's statistics, measured on simulated suites."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import statistics_gpus
from made_suites import JOBS, NAMES, Scatter, effects, made_summary, rates, true_logs

from benchsuite.report.measure.intervals import Interval
from benchsuite.report.stats.compare import Comparison, compare
from benchsuite.report.stats.failures import compare_failures
from benchsuite.report.stats.planning import DIFFERENCE, power
from benchsuite.report.stats.samples import LogMean, job_mean, weighted_mean
from benchsuite.report.stats.score import speed
from benchsuite.report.stats.verdict import MARGIN, Verdict, judge
from benchsuite.report.stats.weights import Weights, weigh

SUITES, QUICK_SUITES = 400, 50
# A whole report takes about 20 times as long as a suite of rates.
WHOLE_SHARE, MOST_WHOLE = 0.3, 300
MOST_OF_GPUS = 1000
WEIGHTS = dict.fromkeys(NAMES, 1.0)
# The job that gets slower or faster where power is measured: of median noise.
CHANGED = NAMES[JOBS // 2]
FASTER, OUTSIDE = 1 + DIFFERENCE, (1 + MARGIN) * (1 + 1e-6)
# Measure -> its limits in per cent. Standard errors up to `SLACK` are let pass.
LIMITS = {"alarm": (0.0, 5.0), "cover": (93.0, 97.0), "same": (0.0, 2.5)}
SLACK = 3.0

REPEATS = ((3, 3), (5, 5), (10, 10), (3, 4), (3, 10))
ALIKE = tuple(Scatter(f"{100 * sigma:g} %", sigma, sigma) for sigma in (0.002, 0.01, 0.03, 0.1))
TENFOLD = Scatter("0.3 to 3 % over jobs", 0.003, 0.03)
UNLIKE = (
    TENFOLD,
    Scatter("this run 3 times as noisy", here=3.0),
    Scatter("this run 10 times as noisy", here=10.0),
    Scatter("ratio differs by job", 0.003, 0.03, spread=1.0),
    Scatter("half the jobs 10 times here, half in the base", 0.003, 0.003, crossed=True),
    Scatter("half the variance common to a repeat", shared=(0.5, 0.5)),
    Scatter("tenfold, half common", 0.003, 0.03, shared=(0.5, 0.5)),
    Scatter("half common in this run only", shared=(0.5, 0.0)),
    Scatter("half common in the base only", shared=(0.0, 0.5)),
    Scatter("heavy tails (t, 5 df)", heavy=True),
    Scatter("1 %, 1 % of tasks fail", failing=0.01),
    Scatter("tenfold, 1 % of tasks fail", 0.003, 0.03, failing=0.01),
)
# Only where the numbers of repeats differ.
MIRRORED = (
    Scatter("this run 2 times as noisy", here=2.0),
    Scatter("base 3 times as noisy", here=1 / 3),
    Scatter("base 10 times as noisy", here=0.1),
)
ON_GPUS = Scatter("1 % of a repeat, 1 % of a task", own=0.01)
ON_GPUS_TENFOLD = Scatter("0.3 to 3 % of a repeat, 1 % of a task", 0.003, 0.03, own=0.01)

Found = dict[str, float]


@dataclass(frozen=True)
class Cell:
    """A kind of suite to simulate.

    Attributes:
        repeats, gpus: of this run and of the base.
    """

    simulate: Callable[[np.random.Generator, Cell, int], Found]
    repeats: tuple[int, int]
    scatter: Scatter
    gpus: tuple[int, int] = (1, 1)

    def about(self) -> dict[str, str]:
        """The columns that describe the cell, in words."""
        return {
            "GPUs": f"{self.gpus[0]} v {self.gpus[1]}",
            "noise": self.scatter.name,
            "failing": f"{self.scatter.failing:.0%}".replace("%", " %"),
            "repeats": f"{self.repeats[0]} v {self.repeats[1]}",
        }


@dataclass(frozen=True)
class Estimate:
    """A mean over suites with its standard error."""

    mean: float
    error: float
    n: int
    median: float


def suite_of_rates(rng: np.random.Generator, cell: Cell, nth: int) -> Found:
    """One suite by `weighted_mean` and `judge`: alarms and coverage; in one suite of four wrong SAME, in one power."""
    jobs, scores = _simulated(rng, cell)
    verdicts = judge({name: (jobs[0][name], jobs[1][name]) for name in NAMES}, scores={"score": scores})
    found = _alarms(verdicts) | _covered([*jobs[0].values(), *jobs[1].values()], scores, verdicts)
    if nth % 4 == 0:
        found |= _wrong_same(jobs, scores)
    elif nth % 4 == 2:
        found |= _power(jobs, scores)
    return found


def _simulated(
    rng: np.random.Generator, cell: Cell
) -> tuple[tuple[dict[str, LogMean], dict[str, LogMean]], tuple[LogMean, LogMean]]:
    """The mean of each job, and the score, of both sides. All true log rates are 0."""
    jobs, scores = [], []
    for place, sigma in enumerate(cell.scatter.sigmas(rng)):
        logs = cell.scatter.noise(rng, sigma, cell.repeats[place], place)
        of = rates(logs, rng.random(logs.shape) >= cell.scatter.failing)
        of = {name: row or {(0, 0): 1.0} for name, row in of.items()}
        jobs.append({name: _known(weighted_mean({name: row}, {name: 1.0})) for name, row in of.items()})
        scores.append(_known(weighted_mean(of, WEIGHTS)))
    return (jobs[0], jobs[1]), (scores[0], scores[1])


def _known(mean: LogMean | None) -> LogMean:
    assert mean is not None
    return mean


def _alarms(verdicts: Mapping[str, Verdict]) -> Found:
    return {
        "alarm jobs": float(any(verdicts[name].word in ("FASTER", "SLOWER") for name in NAMES)),
        "alarm score": float(verdicts["score"].word in ("FASTER", "SLOWER")),
    }


def _covered(jobs: Iterable[LogMean], scores: Iterable[LogMean], verdicts: Mapping[str, Verdict]) -> Found:
    return {
        **_share("cover job", (_holds(of.interval, 0.0) for of in jobs)),
        **_share("cover score", (_holds(of.interval, 0.0) for of in scores)),
        **_share("cover job ratio", (_within(verdicts[name], 0.0) for name in NAMES)),
        **_share("cover score ratio", [_within(verdicts["score"], 0.0)]),
    }


def _share(name: str, hits: Iterable[bool | None]) -> Found:
    """The share of hits among the intervals that there are."""
    known = [hit for hit in hits if hit is not None]
    return {name: statistics.fmean(known)} if known else {}


def _holds(interval: Interval | None, truth: float) -> bool | None:
    return interval.low <= math.exp(truth) <= interval.high if interval else None


def _within(verdict: Verdict, truth: float) -> bool | None:
    if verdict.low is None or verdict.high is None:
        return None
    return verdict.low <= math.exp(truth) <= verdict.high


def _wrong_same(jobs: Sequence[Mapping[str, LogMean]], scores: tuple[LogMean, LogMean]) -> Found:
    """All ratios are just outside the margin."""
    pairs = {name: (jobs[0][name].scaled(OUTSIDE), jobs[1][name]) for name in NAMES}
    found = judge(pairs, scores={"score": (scores[0].scaled(OUTSIDE), scores[1])})
    any_job = any(found[name].word == "SAME" for name in NAMES)
    return {"same jobs": float(any_job), "same score": float(found["score"].word == "SAME")}


def _power(jobs: Sequence[Mapping[str, LogMean]], scores: tuple[LogMean, LogMean]) -> Found:
    """One job, and in a test of its own the score, is faster; what planning predicts for the job."""
    pairs = {name: (jobs[0][name], jobs[1][name]) for name in NAMES}
    predicted = power(pairs)
    pairs[CHANGED] = (jobs[0][CHANGED].scaled(FASTER), jobs[1][CHANGED])
    found = judge(pairs, scores={"score": (scores[0].scaled(FASTER), scores[1])})
    words = {"power job": float(found[CHANGED].word == "FASTER"), "power score": float(found["score"].word == "FASTER")}
    plan = {"planned": predicted.found, "needed": float(predicted.needed or math.inf)} if predicted else {}
    return words | plan


def power_alone(rng: np.random.Generator, cell: Cell, nth: int) -> Found:
    return _power(*_simulated(rng, cell))


def whole_report(rng: np.random.Generator, cell: Cell, nth: int) -> Found:
    """One suite by `compare` on two summaries. The base's GPUs are the first ones of this run, or the reverse."""
    effect = effects(rng, max(cell.gpus))
    sigmas = cell.scatter.sigmas(rng)
    sides = []
    for place in (0, 1):
        of = effect[:, : cell.gpus[place]]
        made = made_summary(rng, cell.scatter, sigmas[place], of, cell.repeats[place], place)
        sides.append((made, true_logs(of, cell.scatter.own)))
    (run, truth), (base, base_truth) = sides
    found = compare(run, base, weigh(Weights(), run), "base")
    own: list[bool | None] = []
    scores: list[bool | None] = []
    for made, true in sides:
        own += [_holds(mean.interval, true[job.name]) if (mean := job_mean(job)) else None for job in made.jobs]
        over = speed({job.name: job for job in made.jobs}, WEIGHTS)
        scores.append(_holds(over.interval, statistics.fmean(true.values())) if over else None)
    by_job = {name: truth[name] - base_truth[name] for name in NAMES}
    equal = cell.gpus[0] == cell.gpus[1]
    return {
        **_share("cover job", own),
        **_share("cover score", scores),
        **_share("cover job ratio", (_within(of.verdict, by_job[of.name]) for of in found.jobs)),
        **_overall(found, statistics.fmean(by_job.values()), cell),
        **(_report_alarms(found) if equal else {}),
    }


def _overall(found: Comparison, truth: float, cell: Cell) -> Found:
    assert found.overall.per_gpu
    assert found.overall.machine
    of_machine = truth + math.log(cell.gpus[0] / cell.gpus[1])
    return {
        **_share("cover score ratio", [_within(found.overall.per_gpu.verdict, truth)]),
        **_share("cover machine ratio", [_within(found.overall.machine.verdict, of_machine)]),
    }


def _report_alarms(found: Comparison) -> Found:
    assert found.overall.per_gpu
    assert found.overall.machine
    words = {
        "alarm jobs": [job.verdict for job in found.jobs],
        "alarm score": [found.overall.per_gpu.verdict],
        "alarm machine": [found.overall.machine.verdict],
    }
    alarms = {name: float(any(v.word in ("FASTER", "SLOWER") for v in of)) for name, of in words.items()}
    failing = [job.failures.adjusted for job in found.jobs if job.failures]
    return alarms | {
        "alarm failures": float(found.failures.p <= 0.05),
        "alarm failures of jobs": float(min(failing, default=1.0) <= 0.05),
    }


def failures(rng: np.random.Generator, cell: Cell, nth: int) -> Found:
    """Failures alone, by `compare_failures`: equal machines; one job that fails in 20 %; all jobs at 5 times."""
    n, base_n = (cell.repeats[place] * cell.gpus[place] for place in (0, 1))
    p = np.full(JOBS, cell.scatter.failing)
    fail, base = rng.binomial(n, p), rng.binomial(base_n, p)
    more, one = rng.binomial(n, 5 * p), np.r_[rng.binomial(n, 0.2), fail[1:]]
    return {
        "alarm failures": float(_pooled(fail, n, base, base_n) <= 0.05),
        "alarm failures of jobs": float(min(_by_job(fail, n, base, base_n)) <= 0.05),
        "power failures": float(_pooled(more, n, base, base_n) <= 0.05),
        "power failures of a job": float(_by_job(one, n, base, base_n)[0] <= 0.05),
    }


def _pooled(fail: np.ndarray, n: int, base: np.ndarray, base_n: int) -> float:
    return compare_failures({"all": (int(fail.sum()), JOBS * n, int(base.sum()), JOBS * base_n)})["all"].p


def _by_job(fail: np.ndarray, n: int, base: np.ndarray, base_n: int) -> list[float]:
    tables = {name: (int(a), n, int(b), base_n) for name, a, b in zip(NAMES, fail, base, strict=True)}
    return [test.adjusted for test in compare_failures(tables).values()]


def simulate(cell: Cell, suites: int, seed: Sequence[int]) -> dict[str, Estimate]:
    """The mean of every measure over suites."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = defaultdict(list)
    for nth in range(suites):
        for name, value in cell.simulate(rng, cell, nth).items():
            found[name].append(value)
    return {name: _estimate(values) for name, values in found.items()}


def _estimate(values: Sequence[float]) -> Estimate:
    mean = statistics.fmean(values)
    error = statistics.pstdev(values) / math.sqrt(len(values)) if math.isfinite(mean) else math.inf
    return Estimate(mean, error, len(values), statistics.median(values))


# --- cells and tables -------------------------------------------------------------------------------------------------


def cells() -> dict[str, list[Cell]]:
    """The cells of each table."""
    by_rates = [Cell(suite_of_rates, n, scatter) for scatter in (*ALIKE, *UNLIKE) for n in REPEATS]
    by_rates += [Cell(suite_of_rates, n, scatter) for scatter in MIRRORED for n in REPEATS if n[0] != n[1]]
    whole = [
        Cell(whole_report, n, dataclasses.replace(ON_GPUS, failing=failing), (gpus, gpus))
        for gpus in (1, 8)
        for failing in (0.0, 0.01)
        for n in REPEATS
    ]
    whole += [Cell(whole_report, n, dataclasses.replace(ON_GPUS_TENFOLD, failing=0.01), (8, 8)) for n in REPEATS]
    whole += [Cell(whole_report, (5, 5), dataclasses.replace(ON_GPUS, failing=0.01), gpus) for gpus in ((8, 1), (1, 8))]
    failed = [
        Cell(failures, n, Scatter("", failing=p), (gpus, gpus))
        for gpus in (1, 8)
        for p in (0.01, 0.05)
        for n in REPEATS
    ]
    return {"rates": by_rates, "whole": whole, "failures": failed}


Row = tuple[Cell, dict[str, Estimate]]


@dataclass(frozen=True)
class Simulation:
    """The settings of a call.

    Attributes:
        only: a part of the cells' descriptions; other cells are not simulated.
    """

    suites: int
    seed: int
    only: re.Pattern[str] | None = None

    def run(self, pool: ProcessPoolExecutor, cells: Sequence[Cell], table: int, share: float = 1.0) -> list[Row]:
        """The cells of a table, with a share of the suites. A cell has the same random numbers whatever others run."""
        seeded = [(cell, (self.seed, table, place)) for place, cell in enumerate(cells) if self._asked(cell)]
        if not seeded:
            return []
        chosen, seeds = zip(*seeded, strict=True)
        suites = [max(1, round(self.suites * share))] * len(chosen)
        return list(zip(chosen, pool.map(simulate, chosen, suites, seeds), strict=True))

    def _asked(self, cell: Cell) -> bool:
        about = f"{cell.simulate.__name__}: {', '.join(cell.about().values())}"
        return self.only is None or self.only.search(about) is not None


def as_table(rows: Sequence[Row], of: Sequence[str], columns: Mapping[str, str]) -> Iterator[str]:
    """A Markdown table of percentages with standard errors.

    Args:
        of: the columns that describe a cell.
        columns: measure -> heading.
    """
    yield f"| {' | '.join([*of, *columns.values()])} |"
    yield "|" + "---|" * (len(of) + len(columns))
    for cell, found in rows:
        cells = [cell.about()[name] for name in of]
        yield f"| {' | '.join([*cells, *(_shown(name, found.get(name)) for name in columns)])} |"


def _shown(name: str, found: Estimate | None) -> str:
    if found is None:
        return ""
    text = f"{100 * found.mean:.1f} ± {100 * found.error:.1f}"
    return f"**{text}**" if missed(name, found) else text


def missed(name: str, found: Estimate) -> bool:
    """Whether a measure misses its limits by more than `SLACK` standard errors."""
    if name.split()[0] not in LIMITS:
        return False
    low, high = (limit / 100 for limit in LIMITS[name.split()[0]])
    if name.startswith("cover"):
        # With few suites all intervals may cover, and the standard error is 0.
        slack = SLACK * max(found.error, 1 / found.n)
        return not low - slack <= found.mean <= high + slack
    return found.mean > high + SLACK * math.sqrt(high * (1 - high) / found.n)


ERRORS = {
    "alarm jobs": "false alarm, jobs",
    "alarm score": "false alarm, score",
    "cover job": "coverage, job",
    "cover score": "coverage, score",
    "cover job ratio": "coverage, job ratio",
    "cover score ratio": "coverage, score ratio",
    "same jobs": "wrong SAME, jobs",
    "same score": "wrong SAME, score",
    "power job": "power, job",
    "planned": "power predicted, job",
    "power score": "power, score",
}
WHOLE = {
    "alarm jobs": "false alarm, jobs",
    "alarm score": "per GPU",
    "alarm machine": "machine",
    "alarm failures": "failures, suite",
    "alarm failures of jobs": "failures, jobs",
    "cover job": "coverage, job",
    "cover score": "score",
    "cover job ratio": "job ratio",
    "cover score ratio": "ratio per GPU",
    "cover machine ratio": "ratio of machines",
}
FAILURES = {
    "alarm failures": "false alarm, suite",
    "alarm failures of jobs": "false alarm, jobs",
    "power failures": "power, suite",
    "power failures of a job": "power, one job",
}


def tables(pool: ProcessPoolExecutor, of: Simulation) -> Iterator[tuple[str, list[Row], list[str]]]:
    """Each table: its heading, its rows, and its lines."""
    chosen = cells()
    of_gpus = None if of.only else pool.submit(_gpus, min(MOST_OF_GPUS, of.suites), of.seed)
    rows = of.run(pool, chosen["rates"], 0)
    yield "Jobs and score, from rates", rows, list(as_table(rows, ("noise", "repeats"), ERRORS))
    if not of.only:
        yield "Repeats that are needed", *_needed(pool, rows, of)
    rows = of.run(pool, chosen["whole"], 2, min(WHOLE_SHARE, MOST_WHOLE / of.suites))
    yield "Whole reports", rows, list(as_table(rows, ("GPUs", "noise", "failing", "repeats"), WHOLE))
    rows = of.run(pool, chosen["failures"], 3)
    yield "Failures", rows, list(as_table(rows, ("GPUs", "failing", "repeats"), FAILURES))
    if of_gpus:
        yield "GPUs", [], of_gpus.result()


def _gpus(suites: int, seed: int) -> list[str]:
    return list(statistics_gpus.table(statistics_gpus.rows(suites, seed)))


def _needed(pool: ProcessPoolExecutor, rows: Sequence[Row], of: Simulation) -> tuple[list[Row], list[str]]:
    """The median prediction of `planning.power` for like noise, and the power with as many repeats."""
    needs = [(cell, found["needed"].median) for cell, found in rows if cell.scatter in ALIKE[1:]]
    planned = [(cell, int(needed)) for cell, needed in needs if max(cell.repeats) < needed < math.inf]
    chosen = [Cell(power_alone, (needed, needed), cell.scatter) for cell, needed in planned]
    checked = of.run(pool, chosen, 1, 1 / 4)
    lines = ["| noise | measured with | repeats needed | power with as many |", "|---|---|---|---|"]
    for (cell, needed), (_, found) in zip(planned, checked, strict=True):
        repeats, measured = f"{cell.repeats[0]} v {cell.repeats[1]}", _shown("power job", found["power job"])
        lines.append(f"| {cell.scatter.name} | {repeats} | {needed} | {measured} |")
    return checked, lines


def main(about: str | None) -> int:
    parser = argparse.ArgumentParser(prog="statistics.py", description=(about or "").partition("\n")[0])
    parser.add_argument("--suites", type=int, default=SUITES, metavar="N", help="of each cell (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SUITES} suites of each cell")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    parser.add_argument("--workers", type=int, help="processes (default: one for each processor)")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="cells like 'suite_of_rates: .*3 v 10'")
    chosen = parser.parse_args()
    suites = QUICK_SUITES if chosen.quick else chosen.suites
    wrong = 0
    with ProcessPoolExecutor(chosen.workers) as pool:
        for heading, rows, lines in tables(pool, Simulation(suites, chosen.seed, chosen.only)):
            if chosen.only and not rows:
                continue
            print(f"### {heading}\n", *lines, sep="\n", end="\n\n", flush=True)
            wrong += sum(missed(name, of) for _, found in rows for name, of in found.items())
    limits = "false alarms 5 %, wrong SAME 2.5 %, coverage 93 to 97 %"
    print(f"{wrong} figures miss their limits by more than {SLACK:g} standard errors ({limits}).")
    return 1 if wrong else 0
