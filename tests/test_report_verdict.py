"""Verdicts and what stands before a ratio: rules, arithmetic against known results, and a summary beside its folder."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import keep_run, make_result, make_run, make_task
from outputs import unwrapped
from scipy import stats

from benchsuite import cli
from benchsuite.describe.tasks import Job
from benchsuite.describe.training import Training
from benchsuite.records import Code, DataUsed, Result, Run
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Repeat, Summary
from benchsuite.report.read.summary_file import read_summary, write_summary
from benchsuite.report.stats.compare import Comparison, compare, find_base
from benchsuite.report.stats.differences import differences
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.verdict import Verdict, holm, judge, moderated
from benchsuite.report.stats.weights import Weights, weigh

# Rates of one repeat around 100, with a standard deviation of logs near 1 %.
BASE = (100.0, 101.0, 99.0, 100.5, 99.5)


def scaled(factor: float, values: Sequence[float] = BASE) -> list[float]:
    return [factor * value for value in values]


def exactly(n: int, mean: float, sd: float) -> list[float]:
    """Rates whose logs have this mean and sample standard deviation."""
    logs = np.linspace(-1, 1, n)
    return list(np.exp(mean + sd * logs / logs.std(ddof=1)))


def one(here: Sequence[float], base: Sequence[float], margin: float = 0.02) -> Verdict:
    return judge({"job": (here, base)}, margin)["job"]


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
        (BASE, (), "the base keeps no figures per repeat"),
        (BASE, BASE[:2], "5 and 2 repeats (this run, base); both sides need 3"),
        (BASE[:1], BASE, "1 and 5 repeats (this run, base); both sides need 3"),
        ((100, 100, 0), BASE, "a repeat with a throughput of 0"),
    ],
)
def test_no_word_without_repeats(here: Sequence[float], base: Sequence[float], reason: str) -> None:
    found = one(here, base)
    assert (found.word, found.low, found.high, found.df, found.reason) == (None, None, None, None, reason)


def test_identical_content_is_the_same_whatever_its_repeats() -> None:
    found = judge({"a": ((100.0,), (100.0,)), "b": ((), ()), "c": (BASE, BASE)}, 0.02, ["a", "b"])
    assert [(v.word, v.low, v.high) for v in (found["a"], found["b"])] == [("SAME", 1.0, 1.0)] * 2
    assert found["a"].words == "SAME (identical)"
    assert found["c"].df is not None
    assert not found["c"].identical


def test_few_jobs_are_plain_welch() -> None:
    rng = np.random.default_rng(3)
    here, base = rng.normal(0, 0.02, 4), rng.normal(0.01, 0.005, 7)
    expected = stats.ttest_ind(here, base, equal_var=False).confidence_interval(0.95)
    found = one(np.exp(here).tolist(), np.exp(base).tolist())
    assert (found.low, found.high) == pytest.approx((np.exp(expected.low), np.exp(expected.high)))
    assert found.repeats == (4, 7)


def test_same_is_the_interval_inside_the_margin() -> None:
    found = one(exactly(5, 0.0, 0.01), exactly(5, 0.0, 0.01))
    assert found.high is not None
    assert one(exactly(5, 0.0, 0.01), exactly(5, 0.0, 0.01), found.high - 1 + 1e-9).word == "SAME"
    assert one(exactly(5, 0.0, 0.01), exactly(5, 0.0, 0.01), found.high - 1 - 1e-9).word == "AMBIGUOUS"


@pytest.mark.parametrize("shift", [0.0, 0.004, 0.012])
def test_the_repeats_that_would_decide(shift: float) -> None:
    def again(n: int) -> Verdict:
        return one(exactly(n, shift, 0.02), exactly(n, 0.0, 0.02))

    decides = again(4).decides
    assert decides is not None
    assert again(decides - 1).word == "AMBIGUOUS"
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
    family = judge({str(i): (base, base) for i in range(2)} | {"job": (here, base)}, 0.001)["job"]
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
    there = judge({name: (base, here) for name, (here, base) in pairs.items()})
    for name, found in judge(pairs).items():
        back = there[name]
        assert found.low and found.high and found.word
        assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))
        assert (back.word, back.decides) == (mirror.get(found.word, found.word), found.decides)


def test_variances_are_drawn_together_and_one_that_is_far_off_is_not() -> None:
    df = np.full(6, 4.0)
    alike, alike_df = moderated(np.array([1.0, 1.2, 0.8, 1.1, 0.9, 1.0]), df)
    # 4 degrees of freedom of the common level, 1.0, beside 4 of its own.
    assert alike.tolist() == pytest.approx([(4 + 4 * v) / 8 for v in (1.0, 1.2, 0.8, 1.1, 0.9, 1.0)])
    assert alike_df.tolist() == [8.0] * 6
    # Of 3 repeats, 2 beside 2.
    assert moderated(np.array([1.0, 1.2, 0.8, 1.0]), np.full(4, 2.0))[1].tolist() == [4.0] * 4
    wild, wild_df = moderated(np.array([1.0, 1.2, 0.8, 1.1, 0.9, 50.0]), df)
    assert (wild[-1], wild_df[-1]) == (50.0, 4.0)
    spread, spread_df = moderated(np.array([0.001, 0.1, 1.0, 10.0, 100.0, 1000.0]), df)
    assert spread.tolist() == pytest.approx([0.001, 0.1, 1.0, 10.0, 100.0, 1000.0], rel=0.5, abs=0.01)
    assert all(4 <= more < 5 for more in spread_df)
    few, few_df = moderated(np.array([1.0, 9.0, 1.0]), df[:3])
    assert (few.tolist(), few_df.tolist()) == ([1.0, 9.0, 1.0], [4.0] * 3)


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


def test_the_score_ratio_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    here = run_in(tmp_path / "here", results({"a": 1.1, "b": 1.1}, seed=1))
    base = run_in(tmp_path / "base", results({"a": 1.0, "b": 1.0}, seed=2))
    found, back = against(here, base), against(base, here)
    assert found.ratio and back.ratio and found.verdict.low and found.verdict.high
    assert (found.verdict.word, back.verdict.word) == ("FASTER", "SLOWER")
    assert found.unpenalized
    assert found.verdict.low < found.unpenalized < found.verdict.high
    assert found.unpenalized**2 == pytest.approx(found.verdict.low * found.verdict.high)
    assert (back.ratio, back.verdict.low) == pytest.approx((1 / found.ratio, 1 / found.verdict.high))
    same = against(here, here)
    assert (same.ratio, same.verdict.word, same.verdict.identical) == (1.0, "SAME", True)
    assert [(job.ratio, job.verdict.identical) for job in same.jobs] == [(1.0, True)] * 2


def test_the_verdict_of_the_score_does_not_rest_on_how_many_repeats_there_are(tmp_path: Path) -> None:
    """The penalty of three repeats is smaller than that of thirty: the same machine must not look faster for it."""
    few = run_in(tmp_path / "few", results({"a": 1.0}, repeats=3, noise=0.1, seed=1))
    many = run_in(tmp_path / "many", results({"a": 1.0}, repeats=30, noise=0.1, seed=2))
    found = against(few, many)
    assert found.verdict.low and found.verdict.high and found.unpenalized and found.ratio
    a, b = few.jobs[0], many.jobs[0]
    assert found.unpenalized == pytest.approx((a.perf or 0) / (b.perf or 1))
    assert found.ratio == pytest.approx(a.perf_adj / b.perf_adj)
    assert math.sqrt(found.verdict.low * found.verdict.high) == pytest.approx(found.unpenalized)


def test_a_published_baseline_gives_the_ratio_alone() -> None:
    base = find_base("v100")
    jobs = tuple(msgspec.structs.replace(job, perf=2 * (job.perf or 0)) for job in base.jobs)
    found = against(msgspec.structs.replace(base, jobs=jobs), base)
    assert {round(job.ratio or 0, 3) for job in found.jobs} == {2.0}
    reason = "the base keeps no figures per repeat"
    judged = [job for job in found.jobs if not job.excluded]
    assert 0 < len(judged) < len(found.jobs)
    assert {(job.verdict.word, job.verdict.reason) for job in judged} == {(None, reason)}
    assert (found.verdict.word, found.verdict.reason) == (None, reason)


def test_another_workload_is_refused_unless_asked(tmp_path: Path) -> None:
    here = run_in(
        tmp_path / "here", results({"a": 1.0, "b": 1.5}, params={"batch_size": 64}, training=Training(precision="bf16"))
    )
    base = run_in(tmp_path / "base", results({"a": 1.0, "b": 1.0}))
    refused, forced = against(here, base), against(here, base, unlike=True)
    fields = ("params.batch_size 128 -> 64", "precision fp32 -> bf16")
    assert [(job.refused, job.ratio, job.fields, job.verdict.word) for job in refused.jobs] == [
        (True, None, fields, None)
    ] * 2
    assert (refused.different, refused.scored, refused.ratio) == (("a", "b"), (), None)
    assert [(job.forced, round(job.ratio or 0, 2)) for job in forced.jobs] == [(True, 1.0), (True, 1.5)]
    assert (forced.different, forced.scored) == ((), ("a", "b"))
    assert forced.ratio == pytest.approx(1.5**0.5, rel=0.01)


def machine(**changes: Any) -> Callable[[Summary], Summary]:
    def changed(summary: Summary) -> Summary:
        return msgspec.structs.replace(summary, machines=(msgspec.structs.replace(summary.machines[0], **changes),))

    return changed


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
    assert differences(here, bare).unknown == (*(f"{what} (base)" for what in of_base), "data (both)")
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
        cli.main(["report", *map(str, arguments)])
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
    keep_run(tmp_path / "few", results(dict.fromkeys(jobs, 1.0), repeats=2, params={"batch_size": 64}), run=first)
    return tmp_path


def test_several_bases_each_have_a_section_in_order(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bases = [runs / "few", runs / "base", runs / "here"]
    code, out, err = report(capsys, runs / "here", *(f"--compare={base}" for base in bases))
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 120
    places = [out.index(f"\nAgainst {base} ") for base in bases]
    assert places == sorted(places)
    few, base, same = (out[a:b] for a, b in zip(places, [*places[1:], out.index("\nScore ")], strict=True))
    assert few.count("other workload: params.batch_size 128 -> 64") == 0
    assert few.count("other workload: params.batch_size 64 -> 128") == 4
    assert base.index("driver") < base.index("ratio")
    row = next(line for line in base.splitlines() if line.strip().startswith("convnet_fp16"))
    assert row.split()[3] == "0.90"
    assert "SLOWER" in row
    assert "margin 2.0 %, family-wise error at most 5 % over 4 jobs (Holm), 4 against 4 repeats" in base
    assert same.count("SAME (identical)") == 4
    score = unwrapped(out[out.index("\nScore ") :])
    assert f"No ratio / {bases[0]} another workload: a, convnet_fp16, fast_style, translator; no weighed job" in score
    assert re.search(rf"Per GPU / {re.escape(str(bases[1]))} 0\.97x SLOWER over 4 common jobs; 95 %: 0\.9", score)
    assert f"Per GPU / {bases[2]} 1.00x SAME (identical) over 4 common jobs Whole machine" in score
    first = unwrapped(out[: out.index("\n\n")])
    assert f"No ratio to {bases[0]}: another workload" in first
    assert f"Against {bases[2]}: per GPU 1.00x, whole machine 1.00x (2 GPUs against 2). Both SAME" in first


def test_too_few_repeats_and_unlike_jobs_that_are_compared(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = report(capsys, runs / "here", "--compare", runs / "few", "--compare-unlike")
    flat = unwrapped(out)
    assert "The ratio alone, 4 and 2 repeats ok (this run, base); both sides need 3: a, convnet_fp16" in flat
    assert "* Not the same workload, compared because of --compare-unlike: a (other workload: params.batch" in flat
    assert "whole machine 0.97x (2 GPUs against 2), over 4 common jobs, 4 of another workload. No verdict: 4" in flat
    assert "over 4 common jobs, 4 of another workload; no interval: 4 and 2 repeats ok" in flat
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
