"""The report's statistics on suites whose truth is known, and its definition of perf on recorded rates.

A simulated suite has 12 jobs on 8 GPUs. A GPU's effect on a job is fixed (it is the machine that is bought), and a
repeat has a noise of 1 % that all GPUs share: the harder case, since noise of each GPU's own is evened out in the mean
over them. Seeds are fixed.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchsuite.measurement import Slice, Stream, read_clock
from benchsuite.report.measure.intervals import log_interval, perf_adjusted, relative_std
from benchsuite.report.measure.window import stream_window, window_slices
from benchsuite.report.read.summary import JobSummary, ProfileRef, Repeat, Summary
from benchsuite.report.stats.compare import compare
from benchsuite.report.stats.score import score
from benchsuite.report.stats.verdict import Verdict, judge
from benchsuite.report.stats.weights import Weights, weigh

Floats = NDArray[np.float64]
JOBS, GPUS, PLANTED = 12, 8, 4
NOISE = np.full(JOBS, 0.01)
THREEFOLD = np.geomspace(0.006, 0.018, JOBS)
TENFOLD = np.geomspace(0.003, 0.03, JOBS)
UNLIKE = np.geomspace(0.0005, 0.1, JOBS)
ONE_WILD = np.r_[np.full(JOBS - 1, 0.01), 0.05]
ARCHIVES = Path(__file__).resolve().parents[2] / "shared/data/milabench"


def per_repeat(rng: np.random.Generator, rates: Floats, noise: Floats, repeats: int) -> Floats:
    """Perf of each job and repeat, as a summary keeps it: the mean over GPUs of `rates`, of shape [jobs, GPUs]."""
    shared = np.exp(noise[:, None] * rng.normal(0, 1, (JOBS, repeats)))
    perfs: Floats = (rates[:, None, :] * shared[:, :, None]).mean(axis=2)
    return perfs


def machine(rng: np.random.Generator) -> Floats:
    """Rates of a machine, of shape [jobs, GPUs]: GPUs differ by 2 %."""
    rates: Floats = 1000 * np.exp(rng.normal(0, 0.02, (JOBS, GPUS)))
    return rates


def verdicts(
    seed: int, noise: Floats, repeats: tuple[int, int], suites: int, planted: float = 1.0
) -> Iterator[list[Verdict]]:
    """A machine against itself, so often, but that the job `PLANTED` is changed by a factor on one side."""
    rng = np.random.default_rng(seed)
    factors = np.ones((JOBS, 1))
    factors[PLANTED] = planted
    for _ in range(suites):
        rates = machine(rng)
        here = per_repeat(rng, rates * factors, noise, repeats[0]).tolist()
        base = per_repeat(rng, rates, noise, repeats[1]).tolist()
        found = judge({str(i): (here[i], base[i]) for i in range(JOBS)}, 0.02)
        yield [found[str(i)] for i in range(JOBS)]


def holds(low: float | None, high: float | None, truth: float) -> bool:
    assert low is not None
    assert high is not None
    return low <= truth <= high


def alarm(found: Sequence[Verdict]) -> bool:
    return any(verdict.word in ("FASTER", "SLOWER") for verdict in found)


@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_intervals_of_jobs_cover_the_truth(repeats: int) -> None:
    rng = np.random.default_rng(repeats)
    hits = []
    for _ in range(300):
        rates = machine(rng)
        perfs = per_repeat(rng, rates, NOISE, repeats).tolist()
        for values, truth in zip(perfs, rates.mean(axis=1).tolist(), strict=True):
            interval = log_interval(values)
            assert interval is not None
            hits.append(holds(interval.low, interval.high, truth))
    assert 0.93 <= statistics.fmean(hits) <= 0.97


@pytest.mark.parametrize(("repeats", "least_same"), [(3, 0.0), (5, 0.05), (10, 0.9)])
def test_a_machine_against_itself(repeats: int, least_same: float) -> None:
    found = list(verdicts(100 + repeats, NOISE, (repeats, repeats), 1500))
    every = [verdict for suite in found for verdict in suite]
    assert 0.93 <= statistics.fmean(holds(v.low, v.high, 1.0) for v in every) <= 0.97
    assert statistics.fmean(map(alarm, found)) <= 0.05
    assert statistics.fmean(v.word == "SAME" for v in every) >= least_same


@pytest.mark.parametrize(
    ("noise", "repeats", "rate"),
    [
        (NOISE, (3, 10), 0.05),
        (NOISE, (5, 10), 0.05),
        (ONE_WILD, (5, 5), 0.05),
        (THREEFOLD, (3, 3), 0.05),
        (THREEFOLD, (5, 5), 0.055),
        (THREEFOLD, (10, 10), 0.05),
        # What moderation costs: where jobs are least alike there are more alarms, until there are repeats enough.
        (TENFOLD, (3, 3), 0.09),
        (TENFOLD, (5, 5), 0.07),
        (TENFOLD, (10, 10), 0.05),
    ],
)
def test_alarms_where_sides_or_jobs_are_not_alike(noise: Floats, repeats: tuple[int, int], rate: float) -> None:
    """`rate` is what very many simulations give at most; three standard errors of these few are let pass."""
    found = list(verdicts(7, noise, repeats, 400))
    assert statistics.fmean(map(alarm, found)) <= rate + 3 * math.sqrt(rate * (1 - rate) / len(found))
    assert statistics.fmean(holds(v.low, v.high, 1.0) for suite in found for v in suite) >= 0.93


@pytest.mark.parametrize(("repeats", "least"), [(3, 0.35), (5, 0.9), (10, 0.99)])
def test_a_planted_slowdown_is_found(repeats: int, least: float) -> None:
    """3 % at a margin of 2 %. At 5 repeats plain Welch finds it in 67 % of cases, a pooled t test in 77 %."""
    found = list(verdicts(200 + repeats, NOISE, (repeats, repeats), 1200, planted=0.97))
    words = [suite[PLANTED].word for suite in found]
    assert words.count("SLOWER") >= least * len(words)
    assert "FASTER" not in words
    assert statistics.fmean(alarm(suite[:PLANTED] + suite[PLANTED + 1 :]) for suite in found) <= 0.05


@pytest.mark.parametrize("planted", [1.03, 1 / 1.03])
def test_a_change_beyond_the_margin_is_hardly_ever_called_the_same(planted: float) -> None:
    found = list(verdicts(300, NOISE, (10, 10), 300, planted))
    assert statistics.fmean(suite[PLANTED].word == "SAME" for suite in found) <= 0.025


# --- the score, which pays for scatter --------------------------------------------------------------------------------


def suite(perfs: Floats) -> Summary:
    """A run's summary from its perfs of shape [jobs, repeats], one GPU."""
    jobs = []
    for name, values in enumerate(perfs.tolist()):
        perf, std = statistics.fmean(values), relative_std(values)
        jobs.append(
            JobSummary(
                name=str(name),
                job=str(name),
                n=len(values),
                fail=0,
                perf=perf,
                std=std,
                perf_adj=perf_adjusted(perf, std, len(values), 0),
                repeats=tuple(Repeat(repeat=i, tasks=1, ok=1, perf=value) for i, value in enumerate(values)),
            )
        )
    return Summary(source="run", profile=ProfileRef(name="s"), jobs=tuple(jobs))


@pytest.mark.parametrize("noise", [NOISE, UNLIKE], ids=["alike", "unlike"])
@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_the_interval_of_the_score_covers_the_truth(repeats: int, noise: Floats) -> None:
    rng = np.random.default_rng(400 + repeats)
    rates = machine(rng)
    truth = math.exp(statistics.fmean(np.log(rates.mean(axis=1)).tolist()))
    hits = []
    for _ in range(600):
        run = suite(per_repeat(rng, rates, noise, repeats))
        found = score(run, weigh(Weights(), run))
        assert found.interval and found.value and found.unpenalized
        assert found.value < found.unpenalized
        hits.append(holds(found.interval.low, found.interval.high, truth))
    assert 0.93 <= statistics.fmean(hits) <= 0.97


@pytest.mark.parametrize("repeats", [(3, 3), (3, 10), (10, 10)])
def test_no_machine_beats_itself_by_the_number_of_its_repeats(repeats: tuple[int, int]) -> None:
    rng = np.random.default_rng(500)
    rates = machine(rng)
    alarms = []
    for _ in range(400):
        here, base = (suite(per_repeat(rng, rates, UNLIKE, n)) for n in repeats)
        alarms.append(compare(here, base, weigh(Weights(), here), "base").verdict.word in ("FASTER", "SLOWER"))
    assert statistics.fmean(alarms) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(alarms))


# --- recorded rates ---------------------------------------------------------------------------------------------------


def recorded(archive: Path) -> Iterator[tuple[str, list[Slice]]]:
    """Job and slices of each process in an archive of milabench runs whose command line holds a batch size.

    An event holds a rate (items/s) of one batch, no time: it is a slice of batch / rate seconds.
    """
    with zipfile.ZipFile(archive) as opened:
        for name in sorted(name for name in opened.namelist() if name.endswith(".data")):
            lines = opened.read(name).decode(errors="replace").splitlines()
            events = [json.loads(line) for line in lines if line.startswith("{")]
            command = next((" ".join(map(str, e["data"]["command"])) for e in events if e["event"] == "start"), "")
            batch = re.search(r"--(?:\w+[-_])?batch[-_]size[ =](\d+)", command)
            data = [event["data"] for event in events if event["event"] == "data"]
            rates = [d["rate"] for d in data if d.get("task") == "train" and d.get("rate", 0) > 0]
            if batch and rates:
                yield Path(name).name.split(".")[0], list(slices(rates, int(batch[1])))


def slices(rates: Sequence[float], items: int) -> Iterator[Slice]:
    start_s = 0.0
    for rate in rates:
        yield Slice(start_s=start_s, end_s=start_s + items / rate, steps=1, items=items)
        start_s += items / rate


def errors_of_the_mean(processes: Iterable[tuple[str, list[Slice]]]) -> tuple[dict[str, float], int]:
    """By how much the mean of a window's rates is above its work over its time, of each job; the number of windows."""
    ours: dict[str, list[float]] = defaultdict(list)
    theirs: dict[str, list[float]] = defaultdict(list)
    for job, of in processes:
        window = stream_window(Stream(clock=read_clock(), device="GPU", unit="item", origin_s=0.0, slices=tuple(of)))
        if window.perf is not None:
            rates = [s.items / s.elapsed_s for s in window_slices(of)]
            assert window.perf == pytest.approx(statistics.harmonic_mean(rates))
            ours[job].append(window.perf)
            theirs[job].append(statistics.fmean(rates))
    found = {job: statistics.fmean(theirs[job]) / statistics.fmean(ours[job]) - 1 for job in ours}
    return found, sum(map(len, ours.values()))


# Of two archives of milabench: the processes with a window, and errors of some jobs, the largest first.
ERRORS = {
    "8GPUs": (131, {"stargan": 0.153, "resnet50": 0.1455, "convnext_large-fp32": 0.049}),
    "L40S": (66, {"bert-tf32-fp16": 0.0923, "resnet50": 0.0002, "whisper": 0.0001, "resnet152-ddp-gpus": 0.0}),
}


@pytest.mark.parametrize("archive", ERRORS)
def test_the_mean_of_rates_is_above_work_over_time(archive: str) -> None:
    """The slices are those of our window. The rates of these jobs are kept to five digits in tests/data."""
    kept = json.loads((Path(__file__).parent / "data/milabench-rates.json").read_text("utf-8"))[archive]
    found, _ = errors_of_the_mean((job, list(slices(one["rates"], one["batch"]))) for job in kept for one in kept[job])
    assert found == pytest.approx(ERRORS[archive][1], abs=0.001)


@pytest.mark.parametrize("archive", ERRORS)
def test_most_jobs_would_not_show_it(archive: str) -> None:
    path = ARCHIVES / f"{archive}.zip"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    processes, errors = ERRORS[archive]
    found, windows = errors_of_the_mean(recorded(path))
    assert windows == processes
    assert max(found, key=lambda job: found[job]) == next(iter(errors))
    assert {job: found[job] for job in errors} == pytest.approx(errors, abs=0.001)
    assert min(found.values()) > -1e-9
    assert statistics.median(found.values()) < 0.01
