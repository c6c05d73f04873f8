"""Files of milarun 2020: its published scores, its own report of the same results, and comparisons with benchsuite."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import milarun2020
import pytest
from conftest import Call, keep_run, make_result
from milarun2020 import PUBLISHED, kept, write_baseline, write_results, write_weights
from msgspec.structs import replace
from outputs import unwrapped

from benchsuite.errors import ResultError
from benchsuite.report.format import number
from benchsuite.report.milarun.suite import UNITS, common_suite, converted
from benchsuite.report.read.summary import JobSummary, ProfileRef, Summary
from benchsuite.report.read.summary_file import read_summary, write_summary
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.compare import compare, find_base
from benchsuite.report.stats.score import score, without_penalty
from benchsuite.report.stats.weights import Weights, weigh, weights_for

ROOT = Path(__file__).resolve().parents[1]
# Of each published baseline: the score without and with the variance penalty.
SCORES = {
    "standard/v100": (1054.78, 1026.56),
    "standard/v100-nocg": (1041.76, 1000.78),
    "standard/rtx8000": (925.42, 904.70),
    "standard/rtx8000-nocg": (914.95, 881.83),
    "10gb/v100": (993.52, 967.81),
    "10gb/v100-nocg": (972.91, 933.83),
    "10gb/rtx8000": (992.09, 969.40),
    "10gb/rtx8000-nocg": (983.77, 949.43),
    "5gb/v100": (886.88, 863.15),
    "5gb/v100-nocg": (876.97, 845.74),
    "5gb/rtx8000": (900.09, 879.94),
    "5gb/rtx8000-nocg": (886.51, 853.45),
}
# --- the published baselines ------------------------------------------------------------------------------------------


def scored(summary: Summary, weights: Path | None, penalized: bool) -> float | None:
    summary = summary if penalized else without_penalty(summary)
    laid = weigh(weights_for(summary.profile, str(weights) if weights else None), summary)
    found = score(summary, laid, penalized=penalized)
    assert (found.coverage, found.incomplete, found.verdict) == (1.0, (), "PASS")
    assert laid.weights.official
    return found.value


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the files that milarun published are not here")
def test_the_figures_kept_for_these_tests_are_the_published_ones() -> None:
    """Each baseline is read from the original file and from the kept figures: whatever is kept is the same."""
    for name, groups in kept("baselines").items():
        suite = name.partition("/")[0]
        published = json.loads((PUBLISHED / f"baselines/{name}.json").read_text())
        assert published.keys() == {f"{suite}.{job}" for job in groups}
        for job, group in milarun2020.summary(suite, groups).items():
            assert {key: published[job][key] for key in ("n", "failures", "train")}.items() <= group.items()
            assert group["pergpu"] in ({}, published[job]["pergpu"])
            assert group.get("peak_memory") in (None, published[job].get("peak_memory"))
    for suite, about in kept("suites").items():
        if about["weights"]:
            published = json.loads((PUBLISHED / f"weights/{suite}.json").read_text())
            assert milarun2020.weights(suite, about["weights"]) == published


@pytest.mark.parametrize("penalized", [False, True])
@pytest.mark.parametrize("name", SCORES)
def test_published_baselines_give_the_published_scores(name: str, penalized: bool, tmp_path: Path) -> None:
    summary = summary_of(write_baseline(tmp_path, name))
    suite = name.partition("/")[0]
    assert len(summary.jobs) == {"standard": 25}.get(suite, 17)
    for weights in (write_weights(tmp_path, suite), None):
        assert scored(summary, weights, penalized) == pytest.approx(SCORES[name][penalized], abs=0.005)


@pytest.mark.parametrize("penalized", [False, True])
def test_one_published_baseline_against_another_is_as_published(penalized: bool, call: Call, tmp_path: Path) -> None:
    here, base = (write_baseline(tmp_path, f"standard/{name}") for name in ("rtx8000", "v100"))
    option = "--penalize-variance" if penalized else "--no-penalize-variance"
    code, out, _ = call(
        "report", "--full", here, "--compare", base, option, "--weights", write_weights(tmp_path, "standard")
    )
    scores = [re.escape(number(SCORES[f"standard/{name}"][penalized])) for name in ("rtx8000", "v100")]
    assert re.search(rf"Score +{scores[0]}", out)
    assert re.search(rf"Baseline's score +{scores[1]}, with its penalties", out)
    assert re.search(r"Speed +925\.4", out), "the score without its penalties"
    # The ratios are of speeds, over the jobs whose rate does not depend on the number of GPUs.
    assert re.search(r"per GPU 1\.00x, whole machine (1\.00x|n/a) \(8 GPUs against 8\)", unwrapped(out))
    assert "over 17 common jobs" in out
    assert "scaling.8 (depends on the number of GPUs)" in unwrapped(out)
    assert ("Variance not penalized" in unwrapped(out), "(1 - std%)" in out) == (not penalized, penalized)
    assert (code, "another implementation" in out) == (0, True)


def test_figures_of_a_published_baseline_are_kept_whole(tmp_path: Path) -> None:
    jobs = {job.name: job for job in summary_of(write_baseline(tmp_path, "standard/v100")).jobs}
    assert list(jobs) == [*list(UNITS)[:-1], *(f"scaling.{n}" for n in range(1, 9))]
    atari = jobs["atari"]
    assert (atari.n, atari.fail, atari.perf) == (80, 0, 14.706429309768188)
    assert atari.std == pytest.approx(0.17468668196302725 / 14.706429309768188)
    assert (atari.min, atari.max) == (14.316870444924042, 15.12049481853118)
    assert atari.peak_memory_bytes == 1953 * 2**20
    assert [gpu.gpu for gpu in atari.gpus] == [f"GPU {n}" for n in range(8)]
    assert (atari.gpus[4].n, atari.gpus[4].perf) == (10, 14.65034434025651)
    for gpus in range(1, 9):
        job = jobs[f"scaling.{gpus}"]
        assert (job.n, job.devices, job.per, job.ranks) == (10, "progression", gpus, gpus)


# --- the original tool's output of its own result files ---------------------------------------------------------------


@pytest.fixture(name="original")
def original_fixture(tmp_path: Path) -> Path:
    """A folder with results of milarun's, its summary of them, a base and weights."""
    write_results(tmp_path / "original")
    return tmp_path / "original"


def test_results_give_the_original_summary(original: Path) -> None:
    summary = summary_of(original / "results")
    expected = json.loads((original / "summary.json").read_text())
    assert {f"fixture.{job.name}" for job in summary.jobs} == expected.keys()
    for job in summary.jobs:
        group = expected[f"fixture.{job.name}"]
        train = group["train"]
        assert (job.n, job.fail) == (group["n"], group["failures"])
        assert (job.perf, job.min, job.max) == pytest.approx((train["mean"], train["min"], train["max"]))
        assert job.std == pytest.approx(train["std"] / train["mean"])
        assert job.peak_memory_bytes == group["peak_memory"] * 2**20
        for index, figures in group["pergpu"].items():
            perfs = [task.perf for task in job.tasks if task.device == f"GPU {index}" and task.perf is not None]
            assert (len(perfs), statistics.fmean(perfs)) == (figures["n"], pytest.approx(figures["mean"]))
    assert (summary.gpus_used, summary.planned, summary.bad_files) == (2, False, ())


def test_results_and_their_original_summary_give_the_same_figures(original: Path) -> None:
    folder, file = summary_of(original / "results"), summary_of(original / "summary.json")
    fields = ("name", "unit", "devices", "per", "ranks", "n", "fail", "peak_memory_bytes")
    figures = ("perf", "std", "perf_adj", "min", "max")
    for here, there in zip(folder.jobs, file.jobs, strict=True):
        assert [getattr(here, name) for name in fields] == [getattr(there, name) for name in fields]
        assert [getattr(here, name) for name in figures] == pytest.approx([getattr(there, name) for name in figures])
    assert (folder.profile, folder.gpus_used) == (file.profile, file.gpus_used)


@pytest.mark.parametrize(("report", "penalized"), [("report", False), ("report_penalize", True)])
def test_the_original_reports_are_reproduced(report: str, penalized: bool, original: Path) -> None:
    rows, scores = kept("results")[report]["jobs"], kept("results")[report]["scores"]
    summary = summary_of(original / "results")
    summary = summary if penalized else without_penalty(summary)
    laid = weigh(weights_for(None, str(original / "weights.json")), summary)
    found = score(summary, laid, penalized=penalized)
    assert len(rows) == len(summary.jobs) == 5
    for job in summary.jobs:
        row = rows[job.name]
        assert (job.n, job.fail, laid.jobs[job.name]) == (row["n"], row["fail"], row["weight"])
        assert job.perf == pytest.approx(row["perf"], abs=0.0051)
        assert job.perf_adj == pytest.approx(row["perf_adj"], abs=0.0051)
        assert job.std is not None
        assert 100 * job.std == pytest.approx(row["std%"], abs=0.051)
    assert found.value == pytest.approx(scores["Score"], abs=0.0051)
    assert found.failure_rate is not None
    assert (100 * found.failure_rate, found.verdict) == (scores["Failure rate"], "FAIL")


def test_the_original_comparison_is_reproduced_but_for_failures_of_the_base(original: Path) -> None:
    """Milarun ignores failures of the baseline; here they count on both sides, so a run against itself is 1."""
    rows, scores = (kept("results")["report_compare"][part] for part in ("jobs", "scores"))
    summary, base = (without_penalty(summary_of(original / name)) for name in ("results", "base.json"))
    laid = weigh(weights_for(None, str(original / "weights.json")), summary)
    found = compare(summary, base, laid, "base")
    passed = {job.name: 1 - job.fail / job.n for job in base.jobs}
    assert passed["half"] == 0.5
    for job in found.jobs:
        row, share = rows[job.name], passed[job.name]
        assert (job.perf, job.base_perf) == pytest.approx((row["perf"], row["perf_base"]), abs=0.0051)
        assert job.ratio == pytest.approx(row["perf_ratio"], abs=0.0051)
        assert job.perf_adj == pytest.approx(row["perf_adj"], abs=0.0051)
        assert job.base_perf_adj == pytest.approx(row["perf_base_adj"] * share, abs=0.0051)
        assert job.ratio_adj == pytest.approx(row["perf_ratio_adj"] / share, abs=0.011)
    paid = math.prod(share ** laid.jobs[name] for name, share in passed.items()) ** (1 / sum(laid.jobs.values()))
    assert score(summary, laid, penalized=False).value == pytest.approx(scores["Score"], abs=0.0051)
    assert found.base_score.value == pytest.approx(scores["Score (baseline)"] * paid, abs=0.0051)


def test_milaruns_results_from_the_front_door(call: Call, original: Path, tmp_path: Path) -> None:
    results, weights = original / "results", original / "weights.json"
    code, out, _ = call("report", "--full", results, "--weights", weights, "--no-penalize-variance")
    assert (code, "106.0" in out or "106.1" in out, "Variance not penalized" in unwrapped(out)) == (0, True, True)
    assert re.search(r"failed +half\.J0\.1 J1\.1 +ValueError: synthetic failure", out)
    assert "Provenance" in out
    assert "103.9" in call("report", "--full", results, "--weights", weights)[1]
    assert call("summary", results, "-o", tmp_path / "s.json")[0] == 0
    assert read_summary(tmp_path / "s.json") == summary_of(results)
    same = call("report", tmp_path / "s.json", "--compare", results)[1]
    assert "per GPU 1.00x, whole machine 1.00x" in unwrapped(same)
    assert "Both SAME (identical content)" in unwrapped(same)


# --- one result -------------------------------------------------------------------------------------------------------


def result(job_id: str | None = "0.0", *, rates: list[float] | None = None, **fields: Any) -> dict[str, Any]:
    """A result file as milarun wrote it, on the GPU that its job id names."""
    gpu = (job_id or "0.0").rpartition(".")[2]
    train = {"rates": [1.0, 2.0, *([100.0] * 18), 7.0, 8.0] if rates is None else rates, "sample_duration": 0.5}
    content = {
        "name": "suite.a",
        "job_id": job_id,
        "job": {"partition_scheme": {"type": "per-gpu"}},
        "devices": [int(gpu)],
        "success": True,
        "error": None,
        "hostname": "vm",
        "device_count": 1,
        "environ": {"CUDA_VISIBLE_DEVICES": gpu},
        "metrics": {"loss": 0.5},
        "timings": {"program": {"start": "2020-01-01 00:00:00", "time": 20.0}, "train": train},
        "gpu_monitor": {gpu: {"memory": {"min": 1.0, "mean": 5.0, "max": 10.0}}},
    }
    return {**content, **fields}


def keep(folder: Path, *contents: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for place, content in enumerate(contents):
        (folder / f"{place}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def only_job(folder: Path, *contents: Any) -> JobSummary:
    (job,) = summary_of(keep(folder, *contents)).jobs
    return job


@pytest.mark.parametrize(
    ("rates", "perf", "slices"),
    [
        ([1.0, 2.0, *([100.0] * 18), 7.0, 8.0], 100.0, 18),  # of twenty-two: neither the first nor the last two
        ([10.0, 20.0, 30.0, 99.0, 99.0], 20.0, 3),  # few: with the warm-up
        ([10.0, 99.0, 99.0], 10.0, 1),
    ],
)
def test_the_rate_of_a_run(tmp_path: Path, rates: list[float], perf: float, slices: int) -> None:
    job = only_job(tmp_path, result(rates=rates))
    assert (job.perf, job.min, job.max, job.std, job.slices, job.seconds) == (
        perf,
        perf,
        perf,
        None,
        slices,
        slices / 2,
    )
    (task,) = job.tasks
    assert (task.perf, task.items, task.seconds, task.status) == (perf, round(perf * slices / 2), slices / 2, "ok")


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"success": False, "error": "Traceback\n  File x\nValueError: bad"}, "failed", "ValueError: bad"),
        ({"success": False}, "failed", "no error is recorded"),
        ({"metrics": {"a": 1, "loss": math.nan}}, "failed", "its metric 'loss' is NaN"),
        ({"rates": [5.0, 5.0]}, "insufficient", "no more than the two rates"),
        ({"rates": []}, "insufficient", "no more than the two rates"),
        ({"timings": {"program": {}}}, "insufficient", "no more than the two rates"),
        ({"rates": [math.nan, 5.0, 5.0]}, "insufficient", "not all numbers"),
        ({"rates": [1e300, 5.0, 5.0]}, "insufficient", "not all numbers"),
    ],
)
def test_what_is_no_success(tmp_path: Path, fields: dict[str, Any], status: str, reason: str) -> None:
    job = only_job(tmp_path, result(), result("0.1", **fields))
    assert (job.n, job.fail, job.perf, job.perf_adj) == (2, 1, 100.0, 50.0)
    assert job.tasks[1].status == status
    assert reason in (job.tasks[1].reason or "")
    assert (job.tasks[1].perf, job.tasks[1].items, job.tasks[1].slices) == (None, 0, 0)


def test_an_infinite_metric_passes_and_a_text_is_none(tmp_path: Path) -> None:
    assert only_job(tmp_path, result(metrics={"loss": math.inf, "note": "nan"})).fail == 0


def test_all_failed_is_a_row_and_no_crash(tmp_path: Path, call: Call) -> None:
    job = only_job(tmp_path, result(success=False), result("0.1", success=False))
    assert (job.n, job.fail, job.perf, job.perf_adj, job.peak_memory_bytes) == (2, 2, None, 0.0, None)
    assert call("report", tmp_path)[0] == 1


def test_ranks_are_samples_of_their_number_of_gpus(tmp_path: Path) -> None:
    timings = {f"train_{rank}": {"rates": [rate] * 20} for rank, rate in enumerate((90.0, 110.0))}
    group = {"job": {"partition_scheme": {"type": "gpu-progression"}}, "device_count": 2, "timings": timings}
    group |= {"environ": {"CUDA_VISIBLE_DEVICES": "0,1"}, "devices": [0, 1]}
    group |= {"gpu_monitor": {str(gpu): {"memory": {"max": gpu + 1.0}} for gpu in range(3)}}
    job = only_job(tmp_path, result("0.1", **group))
    assert (job.name, job.devices, job.per, job.n) == ("a.2", "progression", 2, 1)
    assert (job.perf, job.min, job.max, job.std) == (100.0, 90.0, 110.0, pytest.approx(0.1))
    # 200 items/s of both ranks for nine seconds; the memory is the host's.
    assert (job.tasks[0].items, job.seconds, job.tasks[0].device) == (1800, 9.0, "GPU 0,1")
    assert job.peak_memory_bytes == 3 * 2**20


def test_a_group_of_ranks_and_a_test_may_be_named_alike(tmp_path: Path) -> None:
    group = {"name": "scaling", "job": {"partition_scheme": {"type": "gpu-progression"}}}
    summary = summary_of(keep(tmp_path, result(**group), result("0.1", **group, device_count=2)))
    assert ([job.name for job in summary.jobs], summary.profile) == (["scaling.1", "scaling.2"], None)


def test_repeats_give_an_interval(tmp_path: Path) -> None:
    contents = [result(f"{repeat}.{gpu}", rates=[100.0 + repeat] * 30) for repeat in range(3) for gpu in range(2)]
    job = only_job(tmp_path, *contents)
    assert [(r.repeat, r.tasks, r.ok, r.perf) for r in job.repeats] == [(i, 2, 2, 100.0 + i) for i in range(3)]
    assert job.interval is not None
    assert (job.interval.repeats, job.interval.low < 101 < job.interval.high) == (3, True)


@pytest.mark.parametrize("uuid", ["GPU-8f1c", "MIG-GPU-8f1c/1/0"])
def test_a_gpu_named_by_its_uuid(tmp_path: Path, uuid: str) -> None:
    job = only_job(tmp_path, result(environ={"CUDA_VISIBLE_DEVICES": uuid}))
    assert (job.tasks[0].device, job.devices, job.peak_memory_bytes) == (f"GPU {uuid}", "each", 10 * 2**20)


@pytest.mark.parametrize("monitor", [{}, {"0": {"memory": {"max": -1}}}, {"0": {}}])
def test_memory_that_was_not_sampled_is_absent(tmp_path: Path, monitor: dict[str, Any]) -> None:
    assert only_job(tmp_path, result(gpu_monitor=monitor)).peak_memory_bytes is None


def test_what_counts_and_what_is_named_as_unusable(tmp_path: Path, call: Call) -> None:
    contents = [
        result(),
        result(None, sub_job=True),  # a rank's own file
        result(None),
        "{",
        result(timings=[]),
        {"suite.a": {"weight": 8}},
        GROUPS,
        {"x": 1},
    ]
    summary = summary_of(keep(tmp_path, *contents))
    assert [(job.name, job.n) for job in summary.jobs] == [("a", 1)]
    assert {bad.file: bad.reason.partition(":")[0] for bad in summary.bad_files} == {
        "2.json": "a result of milarun 2020 without a job_id (a single run, or a rerun), which is in no report",
        "3.json": summary.bad_files[1].reason.partition(":")[0],
        "4.json": "not a valid result of milarun 2020",
        "7.json": "not a result of benchsuite",
    }
    assert "not valid JSON" in summary.bad_files[1].reason
    assert "Files that cannot be used (4" in call("report", tmp_path)[1]


def test_beside_a_run_of_benchsuites_they_do_not_count(tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result()])
    keep(tmp_path / "run", result())
    summary = summary_of(tmp_path / "run")
    assert ([job.name for job in summary.jobs], summary.origin) == (["vae"], None)
    assert [bad.file for bad in summary.bad_files] == ["0.json"]


def test_results_without_any_that_counts_are_reported(tmp_path: Path, call: Call) -> None:
    keep(tmp_path, result(None))
    code, out, _ = call("report", tmp_path)
    assert (code, "without a job_id" in out) == (1, True)


# --- summaries and weights, known by their shape ---------------------------------------------------------------------


def figures(mean: float, n: int = 4, **fields: float) -> dict[str, float]:
    return {"n": n, "min": mean - 1, "max": mean + 1, "mean": mean, "std": mean / 10, **fields}


def group(mean: float = 100.0, **fields: Any) -> dict[str, Any]:
    """A group of two GPUs in a summary of milarun's."""
    pergpu = {"1": figures(mean, 2), "0": figures(mean, 2)}
    return {"n": 4, "failures": 0, "total": figures(20), "train": figures(mean), "pergpu": pergpu, **fields}


GROUPS = {"suite.b": group(), "suite.a": group(50.0, failures=1, peak_memory=7.0)}


def write(tmp_path: Path, content: Any, name: str = "any.name") -> Path:
    (tmp_path / name).write_text(json.dumps(content))
    return tmp_path / name


def test_a_summary_is_known_by_its_shape(tmp_path: Path) -> None:
    summary = summary_of(write(tmp_path, GROUPS))
    a, b = summary.jobs
    assert (summary.profile, summary.gpus_used, summary.planned) == (ProfileRef(name="suite"), 2, False)
    assert (a.name, a.n, a.fail, a.perf, a.std, a.perf_adj) == ("a", 4, 1, 50.0, 0.1, pytest.approx(50 * 0.9 * 0.75))
    assert (a.peak_memory_bytes, b.peak_memory_bytes, a.devices) == (7 * 2**20, None, "each")
    assert [(gpu.gpu, gpu.n, gpu.perf) for gpu in a.gpus] == [("GPU 0", 2, 50.0), ("GPU 1", 2, 50.0)]


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (
            {"s.a": group(n="4")},
            r"'s\.a': not a summary of milarun 2020: Expected `int`, got `str` - at `\$\.n`; write",
        ),
        ({"s.b": group(), "s.a": {"n": 4}}, r"'s\.a': .*missing required field `failures`"),
        ({"s.b": group(), "s.a": 3}, r"'s\.a': .*Expected `object`, got `int`"),
        ({"s.a": group(failures=5)}, r"'s\.a': 5 failures of n = 4"),
        ({"s.a": group(n=0)}, r"'s\.a': .*Expected `int` >= 1"),
        ({"s.a": {"weight": 1}}, r"weights, not a summary; .* --weights"),
        (result(), r"a single result of milarun 2020; name the folder"),
        ({"s.\ud800": group()}, "not valid JSON"),
        ({}, "not a summary of benchsuite"),
        ([], "not a summary of benchsuite"),
    ],
)
def test_a_file_that_is_no_summary_is_refused(tmp_path: Path, content: Any, reported: str) -> None:
    with pytest.raises(ResultError, match=rf"^{re.escape(str(tmp_path))}/any\.name: ?.*{reported}"):
        summary_of(write(tmp_path, content))


def test_a_group_without_a_rate_has_none(tmp_path: Path) -> None:
    nan = figures(math.nan)
    (job,) = summary_of(write(tmp_path, {"s.a": group(train=nan, pergpu={"0": nan})})).jobs
    assert (job.perf, job.std, job.perf_adj, job.min, job.gpus[0].perf) == (None, None, 0.0, None, None)
    write_summary(tmp_path / "kept.json", summary_of(tmp_path / "any.name"))
    assert summary_of(tmp_path / "kept.json").jobs == (job,)


@pytest.mark.parametrize(
    ("names", "suite"),
    [
        (["standard.vae", "standard.scaling.2"], "standard"),
        (["standard.vae", "10gb.vae"], None),
        (["standard.vae", "vae"], None),
        (["scaling.1", "scaling.2"], None),
        (["published.models.vae:main"], None),
        ([], None),
    ],
)
def test_the_suite_is_what_all_names_begin_with(names: list[str], suite: str | None) -> None:
    assert common_suite(names) == suite


@pytest.mark.parametrize(
    ("name", "pergpu", "gpus"),
    [
        ("s.x.2", {}, 2),
        ("s.x.1", {"0": figures(9)}, 1),
        ("s.x.2", {"0": figures(9)}, None),
        ("s.x.1", {"0": figures(9), "1": figures(9)}, None),
        ("s.x", {}, None),
    ],
)
def test_a_progression_has_no_figure_of_a_single_gpu(
    tmp_path: Path, name: str, pergpu: dict[str, Any], gpus: int | None
) -> None:
    (job,) = summary_of(write(tmp_path, {name: group(pergpu=pergpu)})).jobs
    assert (job.devices, job.per) == (("progression", gpus) if gpus else ("each", 1))


@pytest.mark.parametrize(
    ("keys", "profile", "weighed"),
    [
        (["standard.a", "standard.b"], "standard", {"a": 2.0}),
        (["standard.a", "standard.b"], "mine", {"a": 2.0}),
        (["other.a", "other.b"], "standard", {"a": 2.0}),
        (["a", "standard.b"], "mine", {"a": 2.0}),
        (["net.x", "net.y"], "mine", {}),
    ],
)
def test_weights_may_bear_their_suites_name(keys: list[str], profile: str, weighed: dict[str, float]) -> None:
    jobs = tuple(JobSummary(name=name, job=name, n=1, fail=0, perf=1.0, perf_adj=1.0) for name in ("a", "net.z"))
    laid = weigh(
        Weights(dict.fromkeys(keys, 2.0), "w"), Summary(source="", profile=ProfileRef(name=profile), jobs=jobs)
    )
    assert (laid.jobs, len(laid.missing)) == (weighed, 2 - len(weighed))


def test_numbers_of_gpus_beyond_the_machine_do_not_weigh(tmp_path: Path) -> None:
    summary = summary_of(write(tmp_path, {"s.a": group(), "s.scaling.1": group(pergpu={"0": figures(9)})}))
    laid = weigh(Weights({"s.a": 1, **{f"s.scaling.{n}": 1 for n in (1, 2, 4)}}, "w"), summary)
    assert (laid.beyond, list(laid.missing)) == (("s.scaling.4",), ["s.scaling.2"])


# --- beside benchsuite's figures --------------------------------------------------------------------------------------


def suite(tmp_path: Path, name: str = "standard") -> Summary:
    tests = ("atari", "reso", "toy_lstm", "translator", "vae")
    return summary_of(write(tmp_path, {f"{name}.{test}": group() for test in tests}))


def mine(profile: str, perf: float = 100.0) -> Summary:
    jobs = (
        JobSummary(name=n, job=n, n=1, fail=0, perf=perf, perf_adj=perf) for n in ("atari", "reso", "translator", "vae")
    )
    return Summary(source="mine", profile=ProfileRef(name=profile), jobs=tuple(jobs))


def test_factors_and_exclusions_come_in_beside_figures_of_benchsuite(tmp_path: Path) -> None:
    old, new = suite(tmp_path), mine("standard")
    ones = Weights(None)
    for base in (old, converted(old)):
        found = compare(new, base, weigh(ones, new), "base")
        rows = {job.name: job for job in found.jobs}
        assert [rows[name].base_perf for name in ("atari", "reso", "vae")] == [12800.0, 78.125, 100.0]
        assert found.overall.apart["translator"] == "milarun left waiting for data out of its time"
        assert [name for name, row in rows.items() if row.comparable] == ["atari", "reso", "vae"]
        assert rows["translator"].excluded == "milarun left waiting for data out of its time"
        assert found.overall.apart == {"translator": rows["translator"].excluded}
    back = compare(old, new, weigh(ones, old), "base")
    assert {job.name: job.perf for job in back.jobs}["atari"] == 12800.0
    assert {job.name: job.unit_factor for job in converted(old).jobs}["toy_lstm"] == 0.97


def test_two_runs_of_milarun_count_alike_and_stand_as_published(tmp_path: Path) -> None:
    old = suite(tmp_path)
    found = compare(old, old, weigh(Weights(None), old), "base")
    assert (len(found.overall.jobs), found.overall.apart) == (5, {})
    assert found.overall.per_gpu
    assert (found.overall.per_gpu.value, found.base_score.value) == (1.0, pytest.approx(90.0))
    mixed = compare(old, converted(old), weigh(Weights(None), old), "base").overall
    assert (len(mixed.jobs), list(mixed.apart)) == (4, ["translator"])
    assert mixed.per_gpu and mixed.per_gpu.value == 1.0


def test_other_suites_have_no_factors(tmp_path: Path) -> None:
    old = converted(suite(tmp_path, "own"))
    assert {(job.unit, job.unit_factor, job.excluded) for job in old.jobs} == {(None, None, None)}


@pytest.mark.parametrize(("name", "machine"), [("v100", "8 V100 GPUs"), ("rtx8000", "8 RTX 8000 GPUs")])
def test_the_shipped_baselines_are_what_the_script_makes(name: str, machine: str, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("convert_milarun", ROOT / "scripts/convert_milarun.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    original = PUBLISHED / f"baselines/standard/{name}.json"
    figures = original if original.exists() else write_baseline(tmp_path, f"standard/{name}")
    made = script.convert(figures, machine, repeats=10, cgroups=True)
    write_summary(tmp_path / "made.json", made)
    found, base = read_summary(tmp_path / "made.json"), find_base(name)
    if not original.exists():  # figures of each GPU are kept of one job only
        found, base = (replace(one, jobs=tuple(replace(job, gpus=()) for job in one.jobs)) for one in (found, base))
    assert found == base
    with pytest.raises(SystemExit, match="not a summary of milarun"):
        script.convert(ROOT / "baselines/v100.json", machine, repeats=10, cgroups=True)


@pytest.mark.parametrize("name", ["v100", "rtx8000"])
def test_shipped_baselines_hold_the_whole_suite_and_their_published_scores(name: str, call: Call) -> None:
    base = find_base(name)
    factors = {job.name: job.unit_factor for job in base.jobs if job.unit_factor}
    assert (len(base.jobs), {job.name.partition(".")[0] for job in base.jobs}) == (25, set(UNITS))
    assert factors == {"atari": 128, "reso": pytest.approx(0.78, abs=0.005), "toy_lstm": 0.97}
    assert {job.name for job in base.jobs if job.excluded} == {"translator"}
    for penalized in (False, True):
        assert scored(base, None, penalized) == pytest.approx(SCORES[f"standard/{name}"][penalized], abs=0.005)
    code, out, _ = call("report", "--full", ROOT / f"baselines/{name}.json", "--compare", "v100")
    # Without translator and scaling.1 to scaling.8.
    assert (code, "Measured by another" in out, "over 16 common jobs" in out) == (0, True, True)
    assert "excluded: translator" in out
    turned = "Baseline rates were converted to our units: toy_lstm x 0.97, reso x 0.7812, atari x 128"
    assert turned in call("report", "--full", ROOT / "baselines/h200.json", "--compare", name)[1]


@pytest.mark.parametrize(("name", "gpus", "common", "scored"), [("h200", 1, 15, False), ("h200x2", 2, 15, True)])
def test_a_measured_baseline_is_a_whole_official_run_and_compares(
    name: str, gpus: int, common: int, scored: bool, call: Call
) -> None:
    base = find_base(name)
    assert base.profile is not None
    assert (base.profile.name, base.profile.official, base.planned, base.in_progress) == ("standard", True, True, False)
    assert [code.dirty for code in base.code] == [False]
    assert {job.name.partition(".")[0] for job in base.jobs} == set(UNITS)
    assert [job.name for job in base.jobs if job.devices == "progression"] == [f"scaling.{n + 1}" for n in range(gpus)]
    assert all(job.n % len(job.repeats) == 0 and job.perf is not None and not job.fail for job in base.jobs)
    code, out, _ = call("report", "--full", ROOT / f"baselines/{name}.json", "--compare", "v100")
    reported = (f"over {common} common jobs" in out, f"Machine vm: {gpus} x NVIDIA H200" in unwrapped(out))
    assert (code, reported, "PROVISIONAL" in out) == (0, (True, True), not scored)
    code, out, _ = call("report", "--full", ROOT / f"baselines/{name}.json", "--compare", name)
    assert (code, "SAME (identical)" in out) == (0, True)


def test_the_readme_shows_the_baselines_own_report(call: Call) -> None:
    _, out, _ = call("report", ROOT / "baselines/h200x2.json")
    reported = {line.strip() for line in out.splitlines()}
    shown = (ROOT / "README.md").read_text("utf-8").partition("## What a report shows")[2].split("```")[1]
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert len(lines) > 10
    assert [line for line in lines if line not in reported] == []


# --- the penalty ------------------------------------------------------------------------------------------------------


def test_without_the_penalty_only_failures_are_paid_for(tmp_path: Path) -> None:
    results = [make_result(rates=[100 + 20 * gpu] * 30, gpu=gpu, repeat=r) for r in range(2) for gpu in range(2)]
    keep_run(tmp_path / "run", [*results, make_result(repeat=2, status="failed", rates=())])
    summary = summary_of(tmp_path / "run")
    off = without_penalty(summary)
    assert summary.jobs[0].perf_adj == pytest.approx(110 * (1 - 10 / 110) * 4 / 5)
    assert off.jobs[0].perf_adj == pytest.approx(110 * 4 / 5)
    assert replace(off.jobs[0], perf_adj=0.0) == replace(summary.jobs[0], perf_adj=0.0)
    assert without_penalty(off) == off


def test_the_machine_score_pays_for_no_std_either(tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result(rates=[100 + 20 * repeat] * 30, repeat=repeat) for repeat in range(2)])
    summary = summary_of(tmp_path / "run")
    laid = weigh(Weights(None), summary)
    assert score(summary, laid).machine == pytest.approx(100)
    off = score(without_penalty(summary), laid, penalized=False)
    assert (off.value, off.machine) == (pytest.approx(110), pytest.approx(110))


def test_the_penalty_is_on_unless_asked(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result(rates=[100 + 20 * gpu] * 30, gpu=gpu) for gpu in range(2)])
    default, on, off = (
        call("report", "--full", tmp_path / "run", "--compare", tmp_path / "run", *more)[1]
        for more in ((), ("--penalize-variance",), ("--no-penalize-variance",))
    )
    assert default == on
    assert re.search(r"Score +100\.0 ", on)
    assert re.search(r"Score +110\.0 ", off)
    assert ("not penalized" in on, "not penalized" in off) == (False, True)
    for out, base in ((on, "100.0"), (off, "110.0")):
        assert re.search(rf"Baseline's score +{base}, with its penalties", out)
        assert re.search(r"Speed +110\.0 ", out), "the speed has no penalty in either"
        assert "per GPU 1.00x" in unwrapped(out)
