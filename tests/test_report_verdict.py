"""Verdicts and what stands before a ratio: rules, arithmetic against known results, and a summary beside its folder."""

from __future__ import annotations

import functools
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import scipy  # which imports its parts on first use: `scipy.stats` takes a second
from conftest import keep_run, make_result, make_run, make_task
from made_summaries import made_job, made_run
from outputs import unwrapped

from benchsuite import cli
from benchsuite.describe.tasks import Job
from benchsuite.describe.training import Training
from benchsuite.provisions import DataUsed
from benchsuite.records import Code, Result, Run
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Repeat, Summary
from benchsuite.report.read.summary_file import read_summary, write_summary
from benchsuite.report.read.wall import JobTime, WallTime
from benchsuite.report.stats.compare import Comparison, compare, find_base
from benchsuite.report.stats.differences import Difference, differences
from benchsuite.report.stats.samples import LogMean, weighted_mean
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.verdict import Verdict, holm, judge
from benchsuite.report.stats.weights import Weights, weigh
from benchsuite.report.stats.welch import Side

# Rates of one repeat around 100, with a standard deviation of logs near 1 %.
BASE = (100.0, 101.0, 99.0, 100.5, 99.5)


def scaled(factor: float, values: Sequence[float] = BASE) -> list[float]:
    return [factor * value for value in values]


def exactly(n: int, mean: float, sd: float) -> list[float]:
    """Rates whose logs have this mean and sample standard deviation."""
    logs = np.linspace(-1, 1, n)
    return list(np.exp(mean + sd * logs / logs.std(ddof=1)))


def side(rates: Sequence[float]) -> Side:
    """The mean of these rates, one of each repeat."""
    found = weighted_mean({"job": {(0, repeat): rate for repeat, rate in enumerate(rates)}}, {"job": 1.0})
    return found or "no rate"


Pairs = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def judged(pairs: Pairs, margin: float = 0.02, **options: Any) -> dict[str, Verdict]:
    """Verdicts on rates of both sides, one of each repeat."""
    return judge({name: (side(here), side(base)) for name, (here, base) in pairs.items()}, margin, **options)


def one(here: Sequence[float], base: Sequence[float], margin: float = 0.02) -> Verdict:
    return judged({"job": (here, base)}, margin)["job"]


@pytest.mark.parametrize(
    ("here", "base", "margin", "word"),
    [
        (scaled(1.05), BASE, 0.02, "FASTER"),
        (scaled(0.95), BASE, 0.02, "SLOWER"),
        (scaled(1.001), BASE, 0.02, "SAME"),
        (scaled(1.001), BASE, 0.005, "AMBIGUOUS"),
        # 0 is excluded, and it is the same all the same.
        (scaled(1.015, (100, 100.1, 99.9)), (100, 100.1, 99.9), 0.02, "SAME"),
        (scaled(1.015, (100, 100.1, 99.9)), (100, 100.1, 99.9), 0.01, "FASTER"),
        # Without any scatter.
        ([100.0] * 3, [100.0] * 3, 0.02, "SAME"),
        ([110.0] * 3, [100.0] * 3, 0.02, "FASTER"),
        # The interval holds both 1 and the margin.
        (scaled(1.01, (100, 103, 97)), (100, 103, 97), 0.02, "AMBIGUOUS"),
    ],
)
def test_words(here: Sequence[float], base: Sequence[float], margin: float, word: str) -> None:
    found = one(here, base, margin)
    assert (found.word, found.reason) == (word, None)
    assert (found.decides is not None) is (word == "AMBIGUOUS")


@pytest.mark.parametrize(
    ("here", "base", "reason"),
    [
        (side(BASE), LogMean(math.log(100), None, 0.0, 0), "the baseline keeps no numbers per repeat"),
        (side(BASE), side(BASE[:2]), "the baseline has 2 ok repeats; 3 are needed"),
        (side(BASE[:1]), side(BASE), "this run has 1 ok repeat; 3 are needed"),
        ("this run has a reason", side(BASE), "this run has a reason"),
        ("this run has one", "the baseline has another", "this run has one; the baseline has another"),
    ],
)
def test_no_word_without_repeats(here: Side, base: Side, reason: str) -> None:
    found = judge({"job": (here, base)})["job"]
    assert (found.word, found.low, found.high, found.df, found.reason) == (None, None, None, None, reason)


def test_identical_content_is_the_same_whatever_its_repeats() -> None:
    pairs = {"a": (side((100.0,)), side((100.0,))), "b": ("no rate", "no rate"), "c": (side(BASE), side(BASE))}
    found = judge(pairs, 0.02, ["a", "b"])
    assert [(v.word, v.low, v.high) for v in (found["a"], found["b"])] == [("SAME", 1.0, 1.0)] * 2
    assert found["a"].words == "SAME (identical)"
    assert found["c"].df is not None
    assert not found["c"].identical


def welch(here: Sequence[float], base: Sequence[float]) -> tuple[float, float]:
    """Welch's 95 % interval of the ratio of two geometric means.

    Satterthwaite's formula takes the sample variances without the bias of their logarithms, E ln(s^2) - ln(sigma^2).
    The log of the ratio of both variances moves by 0.3 standard errors towards the side with fewer repeats.
    """
    logs = np.log(here), np.log(base)
    parts = [of.var(ddof=1) / len(of) for of in logs]
    unbiased = [part / np.exp(_bias(len(of) - 1)) for part, of in zip(parts, logs, strict=True)]
    spread = np.sqrt(sum(_log_variance(len(of) - 1) for of in logs))
    unbiased[0] *= np.exp(0.3 * spread * np.sign(len(base) - len(here)))
    df = sum(unbiased) ** 2 / sum(part**2 / (len(of) - 1) for part, of in zip(unbiased, logs, strict=True))
    half = scipy.stats.t.ppf(0.975, df) * np.sqrt(sum(parts))
    difference = logs[0].mean() - logs[1].mean()
    return float(np.exp(difference - half)), float(np.exp(difference + half))


@functools.cache
def _bias(df: int) -> float:
    """The mean log of chi squared over its degrees of freedom, by integration."""
    return float(scipy.stats.chi2(df).expect(lambda x: np.log(x / df)))


@functools.cache
def _log_variance(df: int) -> float:
    """The variance of the log of chi squared, by integration."""
    return float(scipy.stats.chi2(df).expect(lambda x: np.log(x) ** 2) - scipy.stats.chi2(df).expect(np.log) ** 2)


def test_the_interval_of_one_job_is_welchs() -> None:
    rng = np.random.default_rng(3)
    here, base = np.exp(rng.normal(0, 0.02, 4)).tolist(), np.exp(rng.normal(0.01, 0.005, 7)).tolist()
    found = one(here, base)
    assert (found.low, found.high) == pytest.approx(welch(here, base))
    assert found.repeats == (4, 7)


def test_with_equal_numbers_of_repeats_the_interval_is_that_of_scipy() -> None:
    rng = np.random.default_rng(3)
    here, base = np.exp(rng.normal(0, 0.02, 4)).tolist(), np.exp(rng.normal(0.01, 0.005, 4)).tolist()
    plain = scipy.stats.ttest_ind(np.log(here), np.log(base), equal_var=False).confidence_interval(0.95)
    found = one(here, base)
    assert (found.low, found.high) == pytest.approx((np.exp(plain.low), np.exp(plain.high)))


@pytest.mark.parametrize("repeats", [(3, 3), (3, 10), (5, 5)])
def test_each_job_keeps_its_own_variance_whatever_the_others_have(repeats: tuple[int, int]) -> None:
    """18 jobs with noise of 0.3 to 10 %: no interval is narrower than the job's own, and none wider for the others."""
    rng = np.random.default_rng(7)
    pairs = {
        f"j{i}": tuple(np.exp(rng.normal(0, noise, n)).tolist() for n in repeats)
        for i, noise in enumerate(np.geomspace(0.003, 0.1, 18))
    }
    for name, verdict in judged(pairs).items():
        assert (verdict.low, verdict.high) == pytest.approx(welch(*pairs[name]))


def test_a_job_that_scatters_widely_among_quiet_ones_is_not_drawn_to_them() -> None:
    quiet = {f"q{i}": (exactly(5, 0.0, 0.001), exactly(5, 0.0, 0.001)) for i in range(17)}
    wild = (exactly(5, 0.1, 0.1), exactly(5, 0.0, 0.1))
    found = judged({**quiet, "wild": wild})
    assert found["wild"].word == "AMBIGUOUS"
    assert (found["wild"].low, found["wild"].high) == pytest.approx(welch(*wild))
    assert {found[name].word for name in quiet} == {"SAME"}


def test_unlike_numbers_of_repeats_rest_on_the_fewer_degrees_of_freedom() -> None:
    """Three repeats leave open which side is noisier: the degrees of freedom are those of the worse case."""
    rng = np.random.default_rng(2)
    pairs = {f"j{i}": (np.exp(rng.normal(0, 0.01, 3)).tolist(), BASE * 2) for i in range(18)}
    for verdict in judged(pairs).values():
        assert verdict.df is not None
        # Equal noise would give 3.2, and a noisy side of 10 repeats up to 11.
        assert 2 <= verdict.df < 3.3


def test_no_word_contradicts_the_interval_beside_it() -> None:
    """17 clear differences leave the last job the whole level; its own variances give it fewer degrees of freedom."""
    clear = {f"j{i}": (exactly(5, 0.5, 0.01), exactly(5, 0.0, 0.01)) for i in range(17)}
    error = math.sqrt((0.01**2 + 0.0001**2) / 5)
    own, of_family = (float(scipy.stats.t.ppf(0.975, df)) * error for df in (4, 8))
    # Between the half width of its interval and the one of equal noise on both sides.
    shift = (2 * own + of_family) / 3
    last = (exactly(5, shift, 0.01), exactly(5, 0.0, 0.0001))
    found = judged({**clear, "last": last}, 0.001)["last"]
    assert found.low is not None
    assert found.df is not None
    assert float(scipy.stats.t.sf(shift / error, found.df)) < 0.025
    assert (found.low < 1, found.word) == (True, "AMBIGUOUS")


def test_same_is_the_interval_inside_the_margin() -> None:
    """The interval at the degrees of freedom of the test: one job alone does not show which side is noisier."""
    here, base = exactly(5, 0.0, 0.01), exactly(5, 0.0, 0.01)
    found = one(here, base)
    assert found.df is not None
    assert found.high is not None
    margin = math.expm1(float(scipy.stats.t.ppf(0.975, found.df)) * math.sqrt(2 * 0.01**2 / 5))
    assert margin > found.high - 1
    assert one(here, base, margin + 1e-9).word == "SAME"
    assert one(here, base, margin - 1e-9).word == "AMBIGUOUS"


@pytest.mark.parametrize("shift", [0.0, 0.004, 0.008, 0.012])
def test_the_repeats_that_would_decide(shift: float) -> None:
    def again(n: int) -> Verdict:
        return one(exactly(n, shift, 0.02), exactly(n, 0.0, 0.02))

    decides = again(4).decides
    assert decides is not None
    # More repeats also show better which side is noisier: one fewer may do.
    assert again(decides - 2).word == "AMBIGUOUS"
    assert again(decides).word in ("SAME", "FASTER")
    never = one(exactly(4, 0.01, 3.0), exactly(4, 0.0, 3.0))
    assert (never.decides, never.words) == (None, "AMBIGUOUS (over 1,000 repeats)")


def test_holm() -> None:
    # By hand: 4 x 0.005; 3 x 0.01; 2 x 0.03; then 0.04, which cannot be below the step before it.
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_a_family_needs_more_than_one_job_alone() -> None:
    """The interval without 1 is the job's own; the word is the family's."""
    shift = one(exactly(5, 0.0, 0.01), exactly(5, 0.0, 0.01)).high
    assert shift is not None
    here, base = exactly(5, 1.1 * np.log(shift), 0.01), exactly(5, 0.0, 0.01)
    assert one(here, base, 0.001).word == "FASTER"
    family = judged({**{str(i): (base, base) for i in range(2)}, "job": (here, base)}, 0.001)["job"]
    assert family.word == "AMBIGUOUS"
    assert family.low is not None
    assert family.low > 1


def test_swapped_sides_give_reciprocals() -> None:
    rng = np.random.default_rng(11)
    sizes = ((3, 5), (5, 5), (4, 10), (3, 3), (5, 3), (10, 10))
    shifts = (0.0, 0.05, -0.05, 0.001, 0.02, -0.01)
    pairs = {
        str(i): (np.exp(shift + rng.normal(0, 0.01, n)).tolist(), np.exp(rng.normal(0, 0.02, m)).tolist())
        for i, ((n, m), shift) in enumerate(zip(sizes, shifts, strict=True))
    }
    mirror = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
    there = judged({name: (base, here) for name, (here, base) in pairs.items()})
    for name, found in judged(pairs).items():
        back = there[name]
        assert found.low and found.high and found.word
        assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))
        assert (back.word, back.decides) == (mirror.get(found.word, found.word), found.decides)


def test_a_score_is_a_family_of_its_own() -> None:
    """A difference that 18 jobs cannot show is one that their score shows at the whole level of 5 %."""
    jobs = {f"j{i}": (side(exactly(5, 0.03, 0.012)), side(exactly(5, 0.0, 0.012))) for i in range(18)}
    alone = judge({"j0": jobs["j0"]})["j0"]
    found = judge(jobs, scores={"score": jobs["j0"]})
    assert (alone.word, found["score"].word, found["j0"].word) == ("FASTER", "FASTER", "AMBIGUOUS")
    assert judge(jobs)["j0"] == found["j0"]
    score = found["score"]
    assert (score.low, score.high) == (alone.low, alone.high)


def test_the_test_of_a_score_rests_on_its_own_noise_not_on_that_of_the_jobs() -> None:
    """Jobs that scatter together on one side leave each job's noise as it is, and make that of the score larger."""
    jobs = {f"j{i}": (side(exactly(5, 0.0, 0.01)), side(exactly(5, 0.0, 0.01))) for i in range(18)}
    alike = (side(exactly(5, 0.0, 0.003)), side(exactly(5, 0.0, 0.003)))
    together = (side(exactly(5, 0.0, 0.01)), side(exactly(5, 0.0, 0.003)))
    dfs = [judge(jobs, scores={"score": both})["score"].df for both in (alike, together)]
    assert dfs[0] is not None
    assert dfs[1] is not None
    assert dfs[1] < dfs[0] - 1
    assert 4 <= dfs[1] < 5


# --- whole runs -------------------------------------------------------------------------------------------------------


def results(
    factors: dict[str, float], repeats: int = 4, seed: int = 0, noise: float = 0.005, **changes: Any
) -> list[Result]:
    """Jobs on two GPUs with repeat noise of 0.5 % or another; `changes` are of every job's fields."""
    rng = np.random.default_rng(seed)
    found = []
    for repeat in range(repeats):
        for name, factor in factors.items():
            rate = 10_000 * factor * np.exp(rng.normal(0, noise))
            job = Job(name=name, model="vae", **{"params": {"batch_size": 128}, **changes})
            tasks = [msgspec.structs.replace(make_task(name, repeat, gpu), job=job) for gpu in range(2)]
            found += [make_result(rates=[rate * (1 + g / 50)] * 30, task=task) for g, task in enumerate(tasks)]
    return found


def run_in(folder: Path, found: Sequence[Result], run: Run | None = None) -> Summary:
    keep_run(folder, found, run=run)
    return summarise(load(folder))


def against(here: Summary, base: Summary, **options: Any) -> Comparison:
    return compare(here, base, weigh(Weights(), here), "base", **options)


def test_a_summary_compares_exactly_as_its_folder(tmp_path: Path) -> None:
    here = run_in(tmp_path / "here", results({"a": 1.0, "b": 0.9, "c": 1.0, "d": 1.1}, seed=1))
    base = run_in(tmp_path / "base", results({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, seed=2))
    write_summary(tmp_path / "here.json", here)
    write_summary(tmp_path / "base.json", base)
    expected = against(here, base)
    assert [job.verdict.word for job in expected.jobs] == ["SAME", "SLOWER", "SAME", "FASTER"]
    kept = against(read_summary(tmp_path / "here.json"), find_base(str(tmp_path / "base.json")))
    assert kept == expected
    assert kept == against(here, find_base(str(tmp_path / "base")))


def test_the_ratio_over_the_suite_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    here = run_in(tmp_path / "here", results({"a": 1.1, "b": 1.1}, seed=1))
    base = run_in(tmp_path / "base", results({"a": 1.0, "b": 1.0}, seed=2))
    found, back = against(here, base).overall.per_gpu, against(base, here).overall.per_gpu
    assert found and back and found.verdict.low and found.verdict.high
    assert (found.verdict.word, back.verdict.word) == ("FASTER", "SLOWER")
    assert found.verdict.low < found.value < found.verdict.high
    assert found.value**2 == pytest.approx(found.verdict.low * found.verdict.high)
    assert (back.value, back.verdict.low) == pytest.approx((1 / found.value, 1 / found.verdict.high))
    same = against(here, here)
    assert same.overall.per_gpu
    assert same.overall.machine
    for ratio in (same.overall.per_gpu, same.overall.machine):
        assert (ratio.value, ratio.verdict.word, ratio.verdict.identical) == (1.0, "SAME", True)
    assert [(job.ratio, job.verdict.identical) for job in same.jobs] == [(1.0, True)] * 2


def test_the_ratio_does_not_rest_on_how_many_repeats_there_are(tmp_path: Path) -> None:
    """The penalty of three repeats is smaller than that of thirty: the same machine must not look faster for it."""
    few = run_in(tmp_path / "few", results({"a": 1.0}, repeats=3, noise=0.1, seed=1))
    many = run_in(tmp_path / "many", results({"a": 1.0}, repeats=30, noise=0.1, seed=2))
    found = against(few, many)
    ratio = found.overall.per_gpu
    assert ratio and ratio.verdict.low and ratio.verdict.high
    means = [statistics.geometric_mean([repeat.perf for repeat in of.jobs[0].repeats]) for of in (few, many)]
    assert ratio.value == pytest.approx(means[0] / means[1])
    assert math.sqrt(ratio.verdict.low * ratio.verdict.high) == pytest.approx(ratio.value)
    assert ratio.value != pytest.approx(few.jobs[0].perf_adj / many.jobs[0].perf_adj, rel=1e-3)


def test_a_published_baseline_gives_the_ratio_alone() -> None:
    base = find_base("v100")
    jobs = tuple(msgspec.structs.replace(job, perf=2 * (job.perf or 0)) for job in base.jobs)
    found = against(msgspec.structs.replace(base, jobs=jobs), base)
    assert {round(job.ratio or 0, 3) for job in found.jobs} == {2.0}
    reason = "this run keeps no numbers per repeat; the baseline keeps no numbers per repeat"
    compared = [job for job in found.jobs if not job.excluded]
    assert 0 < len(compared) < len(found.jobs)
    assert {(job.verdict.word, job.verdict.reason) for job in compared} == {(None, reason)}
    # Both sides state their 8 GPUs.
    for ratio in (found.overall.per_gpu, found.overall.machine):
        assert ratio
        assert (ratio.value, ratio.verdict.word, ratio.verdict.reason) == (pytest.approx(2), None, reason)


def test_another_workload_is_refused_unless_asked(tmp_path: Path) -> None:
    here = run_in(
        tmp_path / "here", results({"a": 1.0, "b": 1.5}, params={"batch_size": 64}, training=Training(precision="bf16"))
    )
    base = machine(host="elsewhere")(run_in(tmp_path / "base", results({"a": 1.0, "b": 1.0})))
    refused, forced = against(here, base), against(here, base, unlike=True)
    fields = ("params.batch_size 128 -> 64", "precision fp32 -> bf16")
    assert [(job.refused, job.ratio, job.fields, job.verdict.word) for job in refused.jobs] == [
        (True, None, fields, None)
    ] * 2
    assert (refused.different, refused.overall.jobs, refused.overall.per_gpu) == (("a", "b"), (), None)
    assert [(job.forced, round(job.ratio or 0, 2)) for job in forced.jobs] == [(True, 1.0), (True, 1.5)]
    assert (forced.different, forced.overall.jobs) == ((), ("a", "b"))
    assert forced.overall.per_gpu
    assert forced.overall.per_gpu.value == pytest.approx(1.5**0.5, rel=0.01)


def machine(**changes: Any) -> Callable[[Summary], Summary]:
    def changed(summary: Summary) -> Summary:
        return msgspec.structs.replace(summary, machines=(msgspec.structs.replace(summary.machines[0], **changes),))

    return changed


def forked_of_two(forked: int) -> WallTime:
    jobs = (JobTime(name="a", tasks=2, seconds=1.0, phases={}),)
    return WallTime(seconds=2.0, measured_s=1.0, phases={}, jobs=jobs, forked=forked)


def of_run(**changes: Any) -> Callable[[Summary], Summary]:
    return lambda summary: msgspec.structs.replace(summary, **changes)


def of_jobs(**changes: Any) -> Callable[[Summary], Summary]:
    return lambda s: msgspec.structs.replace(s, jobs=tuple(msgspec.structs.replace(j, **changes) for j in s.jobs))


def read(**changes: Any) -> tuple[DataUsed, ...]:
    kept: dict[str, Any] = {"name": "imagenet", "real": True, "version": "1", "sha256": "a", "cached": 1.0, **changes}
    return (DataUsed(**kept),)


OF_JOBS = ("ok tasks", "data", "batch size", "backend", "precision", "params")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (machine(host="hostB"), ("host", "hostA", "hostB")),
        (machine(kernel="6.19"), ("kernel", "6.18", "6.19")),
        (machine(cpu="Other"), ("CPU", "Test CPU", "Other")),
        (machine(memory_bytes=2**35), ("memory", "16.0 GiB", "32.0 GiB")),
        (machine(driver="590.1"), ("driver", "580.0", "590.1")),
        (machine(gpus=()), ("GPUs", "2 x NVIDIA Test", "none")),
        (machine(packages={"torch": "2.12"}), ("package torch", "2.11.0", "2.12")),
        (machine(packages={"torch": "2.11.0", "numpy": "2"}), ("package numpy", "none", "2")),
        (of_run(gpus_used=1), ("GPUs used", "2", "1")),
        (of_run(isolation={"fenced": 4}), ("isolation", "CPU none, memory none (not fenced)", "fenced")),
        (of_run(wall=forked_of_two(2)), ("forked workers", "none", "all")),
        (of_run(wall=forked_of_two(1)), ("forked workers", "none", "some")),
        (of_run(code=(Code(version="0.2"),)), ("benchsuite", "0.1.0", "0.2")),
        (of_run(code=(Code(version="0.1.0", dirty=True),)), ("uncommitted changes", "not known", "yes")),
        (of_jobs(data_used=read(version="2")), ("data.version", "1", "2")),
        (of_jobs(data_used=read(sha256="b")), ("data.sha256", "a", "b")),
        (of_jobs(data_used=read(real=False)), ("data.real", "true", "false")),
        (of_jobs(data_used=read(cached=0.0)), ("data in the page cache", "warm", "cold")),
        (of_jobs(repeats=(Repeat(repeat=0, tasks=2, ok=1, perf=1.0),)), ("ok tasks a repeat", "2", "1")),
        (of_jobs(batch_size=96), ("batch size found", "64", "96")),
        (of_jobs(backend="gloo"), ("backend", "nccl", "gloo")),
        (of_jobs(settings={"precision": "bf16", "params": {"n": 1}}), ("precision", "fp32", "bf16")),
        (of_jobs(settings={"precision": "fp32", "params": {"n": [1, 2]}}), ("params.n", "1", "[1, 2]")),
        (of_jobs(settings={"precision": "fp32", "params": {}}), ("params.n", "1", "none")),
    ],
)
def test_differences(tmp_path: Path, changed: Callable[[Summary], Summary], expected: tuple[str, str, str]) -> None:
    settings = {"precision": "fp32", "params": {"n": 1}}
    common = of_jobs(settings=settings, data_used=read(), batch_size=64, backend="nccl")
    base = common(run_in(tmp_path / "run", results({"a": 1.0, "b": 1.0}, repeats=1)))
    assert differences(base, base).found == ()
    assert differences(base, base).unknown == ()
    found = {(d.what, d.base, d.here): d.jobs for d in differences(changed(base), base).found}
    assert expected in found
    assert found[expected] == (("a", "b") if expected[0].startswith(OF_JOBS) else ())


def test_which_gpu_the_launcher_named_is_no_difference(tmp_path: Path) -> None:
    here, base = (
        of_jobs(settings={"environ": {"CUDA_VISIBLE_DEVICES": uuid, "OMP_NUM_THREADS": threads}})(
            run_in(tmp_path / uuid, results({"a": 1.0}, repeats=1))
        )
        for uuid, threads in (("GPU-1", "4"), ("GPU-2", "8"))
    )
    assert [d.what for d in differences(here, base).found] == ["environ.OMP_NUM_THREADS"]


def test_what_a_side_does_not_tell_is_no_difference(tmp_path: Path) -> None:
    here = run_in(tmp_path / "run", results({"a": 1.0}, repeats=1))
    bare = of_jobs(settings={}, tasks=())(of_run(machines=(), code=(), isolation={}, gpus_used=0)(here))
    assert differences(here, bare).found == ()
    of_base = ("host", "machine", "GPUs used", "code", "isolation", "settings of jobs")
    assert differences(here, bare).unknown == (*(f"{what} (the baseline)" for what in of_base), "data (both)")
    assert "machine (this run)" in differences(bare, here).unknown
    counted = of_run(gpus_used=8)(bare)
    assert [(d.what, d.base, d.here) for d in differences(here, counted).found] == [("GPUs used", "8", "2")]


def test_a_summary_keeps_what_was_asked(tmp_path: Path) -> None:
    found = results({"a": 1.0}, repeats=1, env={"API_KEY": "secret"}, prepare="fetch secret")
    task = msgspec.structs.replace(found[0].task, environ={"OMP_NUM_THREADS": "4", "API_KEY": "secret"})
    data = DataUsed(name="mnist", real=True, version="1", cached=0.5)
    kept = [msgspec.structs.replace(found[0], task=task, data=data), msgspec.structs.replace(found[1], data=data)]
    (job,) = run_in(tmp_path / "run", kept).jobs
    assert (job.settings["params"], job.settings["precision"]) == ({"batch_size": 128}, "fp32")
    assert job.settings["environ"] == {"OMP_NUM_THREADS": "4"}
    assert "secret" not in msgspec.json.encode(job).decode()
    assert job.data_used == (data,)


# --- the command line -------------------------------------------------------------------------------------------------


def report(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "--full", *map(str, arguments)])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture(name="runs")
def runs_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "120")
    jobs = {"a": 1.0, "convnet_fp16": 0.9, "fast_style": 1.0, "translator": 1.0}
    first = make_run()
    other = msgspec.structs.replace(first, machines=(msgspec.structs.replace(first.machines[0], driver="590.1"),))
    keep_run(tmp_path / "here", results(jobs, seed=1), run=other)
    keep_run(tmp_path / "base", results(dict.fromkeys(jobs, 1.0), seed=2), run=first)
    elsewhere = msgspec.structs.replace(first, machines=(msgspec.structs.replace(first.machines[0], host="elsewhere"),))
    keep_run(tmp_path / "few", results(dict.fromkeys(jobs, 1.0), repeats=2, params={"batch_size": 64}), run=elsewhere)
    return tmp_path


def test_several_bases_each_have_a_section_in_order(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bases = [runs / "few", runs / "base", runs / "here"]
    code, out, err = report(capsys, runs / "here", *(f"--compare={base}" for base in bases))
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 120
    places = [out.index(f"\nAgainst {base} ") for base in bases]
    assert places == sorted(places)
    few, base, same = (out[a:b] for a, b in zip(places, [*places[1:], len(out)], strict=True))
    assert few.count("other workload: params.batch_size 128 -> 64") == 0
    assert few.count("other workload: params.batch_size 64 -> 128") == 4
    assert base.index("driver") < base.index("ratio")
    row = next(line for line in base.splitlines() if line.strip().startswith("convnet_fp16"))
    assert row.split()[3] == "0.90"
    assert "SLOWER" in row
    assert "margin 2.0 %, family-wise error at most 5 % over 4 jobs (Holm), 4 against 4 repeats" in base
    assert same.count("SAME (identical)") == 4
    score = unwrapped(out[out.index("\nScore ") :])
    labels = [f"...{str(base)[-21:]}" for base in bases]
    assert f"No ratio / {labels[0]} another workload: a, convnet_fp16, fast_style, translator (params.ba" in score
    assert re.search(rf"Per GPU / {re.escape(labels[1])} 0\.97x SLOWER over 4 common jobs; 95 %: 0\.9", score)
    assert f"Per GPU / {labels[2]} 1.00x SAME (identical) over 4 common jobs Whole machine" in score
    first = unwrapped(out[: out.index("\n\n")])
    assert f"No ratio to {bases[0]}: another workload" in first
    assert f"Against {bases[2]}: per GPU 1.00x, whole machine 1.00x (2 GPUs against 2). Both SAME" in first


def test_too_few_repeats_and_unlike_jobs_that_are_compared(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = report(capsys, runs / "here", "--compare", runs / "few", "--compare-unlike")
    flat = unwrapped(out)
    assert "No verdict, the baseline has 2 ok repeats; 3 are needed: a, convnet_fp16" in flat
    assert "* Not the same workload, compared because of --compare-unlike: a (other workload: params.batch" in flat
    assert (
        "whole machine 0.97x (2 GPUs against 2), over 4 common jobs, 4 of another workload. "
        "No verdict: the baseline has 2" in flat
    )
    assert "over 4 common jobs, 4 of another workload; no interval: the baseline has 2 ok repeats" in flat
    row = next(line for line in out.splitlines() if line.strip().startswith("convnet_fp16 ") and "*" in line)
    assert row.split()[3:] == ["0.90*", "n/a", "n/a"]


def test_the_margin_decides(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (runs / "here", "--compare", runs / "base")
    assert "SLOWER" in report(capsys, *arguments, "--margin", "2")[1]
    wide = report(capsys, *arguments, "--margin", "20")[1]
    assert "SLOWER" not in wide
    assert "Both SAME" in wide
    assert wide.count(" SAME ") >= 4
    for wrong in ("0", "nan", "-1", "101", "x"):
        code, _, err = report(capsys, *arguments, "--margin", wrong)
        assert (code, err.count("\n")) == (2, 1)
        assert "--margin" in err


def test_values_that_are_long_show_where_they_differ() -> None:
    one, other = (Difference("environ.X", f"{'a' * 300}{end}", f"{'a' * 300}{here}") for end, here in ("bc", "de"))
    assert one.shown(160) == (f"...{'a' * 20}b", f"...{'a' * 20}c")
    assert other.shown(400) == (f"{'a' * 300}d", f"{'a' * 300}e")
    assert Difference("x", "two\nlines", "two\nother lines").shown(160) == ("two lines", "two other lines")


def test_process_ids_are_no_difference_in_isolation() -> None:
    words = "CPU none, memory none (another run of benchsuite is on this machine ({}): its share and ours overlap)"
    fences = (words.format("process 7"), words.format("process 8, process 9"), "fenced")
    here, base, other = (made_run(made_job("a", [1.0]), isolation={fence: 1}) for fence in fences)
    assert "isolation" not in {d.what for d in differences(here, base).found}
    other = made_run(made_job("a", [1.0]), isolation={"CPU affinity, memory none": 1})
    assert "isolation" in {d.what for d in differences(here, other).found}
