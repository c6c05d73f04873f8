"""Figures of a job, derived by hand."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import msgspec
import pytest
from conftest import Call, keep_results, keep_run, make_result, make_run, make_task

from benchsuite.describe import work
from benchsuite.describe.tasks import Job, RerunOf
from benchsuite.describe.training import Training
from benchsuite.errors import OutputError, ResultError
from benchsuite.measurement import Measurement, Slice
from benchsuite.provisions import DataUsed, Tenant
from benchsuite.records import Result
from benchsuite.report.measure.intervals import log_interval, perf_adjusted, relative_std
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.summary_file import read_summary, write_summary
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.summarise import summarise
from benchsuite.schema import to_json


def steady(rate: float, **fields: object) -> Result:
    return make_result(rates=[rate] * 30, **fields)  # type: ignore[arg-type]


def summary_for(folder: Path, *results: Result, plan: bool = True) -> Summary:
    if plan:
        keep_run(folder / "run", results)
    else:
        keep_results(folder / "run", results)
    return summarise(load(folder / "run"))


def job_of(folder: Path, *results: Result) -> JobSummary:
    (job,) = summary_for(folder, *results).jobs
    return job


def test_one_sample_has_no_spread(tmp_path: Path) -> None:
    job = job_of(tmp_path, steady(50))
    assert (job.n, job.fail, job.perf, job.perf_adj, job.std, job.interval) == (1, 0, 50.0, 50.0, None, None)
    assert b'"std":null' in to_json(job)


def test_two_equal_samples_have_a_spread_of_zero(tmp_path: Path) -> None:
    job = job_of(tmp_path, steady(50), steady(50, gpu=1))
    assert (job.n, job.perf, job.std, job.perf_adj) == (2, 50.0, 0.0, 50.0)


def test_a_rate_of_zero_has_no_relative_spread(tmp_path: Path) -> None:
    job = job_of(tmp_path, steady(0), steady(0, gpu=1))
    assert (job.fail, job.perf, job.std, job.perf_adj) == (0, 0.0, None, 0.0)


def test_perf_std_and_failures_make_perf_adj(tmp_path: Path) -> None:
    results = [steady(90), steady(110, gpu=1), make_result(gpu=2, status="oom", rates=())]
    job = job_of(tmp_path, *results)
    # mean 100, population std 10 (10 %), a third failed: 100 * 0.9 * 2/3
    assert (job.n, job.fail, job.perf, job.std, job.min, job.max) == (3, 1, 100.0, 0.1, 90.0, 110.0)
    assert job.perf_adj == pytest.approx(60)
    assert (job.slices, job.seconds) == (36, 18.0)


def test_a_job_that_failed_throughout_has_no_perf(tmp_path: Path) -> None:
    job = job_of(tmp_path, *(make_result(gpu=gpu, status="failed", rates=()) for gpu in range(3)))
    assert (job.n, job.fail, job.perf, job.std, job.perf_adj) == (3, 3, None, None, 0.0)


def test_insufficient_is_a_failure_and_not_run_is_still_to_run(tmp_path: Path) -> None:
    results = [steady(100), make_result(gpu=1, rates=[5, 50])]
    tasks = [make_task(gpu=gpu) for gpu in range(4)]
    keep_run(tmp_path / "run", results, tasks)
    (job,) = summarise(load(tmp_path / "run")).jobs
    assert (job.n, job.fail, job.to_run, job.not_run, job.perf_adj) == (4, 1, 2, 2, 50.0)
    assert [task.status for task in job.tasks] == ["ok", "insufficient", "not run", "not run"]


def test_what_a_run_has_still_to_end_is_no_failure(tmp_path: Path) -> None:
    results = [steady(100), make_result(gpu=1, status="oom", rates=())]
    keep_run(tmp_path / "run", results, [make_task(gpu=gpu) for gpu in range(4)])
    loaded = load(tmp_path / "run")
    (job,) = summarise(dataclasses.replace(loaded, in_progress=True)).jobs
    assert (job.n, job.ended, job.fail, job.to_run, job.not_run, job.perf_adj) == (4, 2, 1, 2, 0, 50.0)
    (job,) = summarise(loaded).jobs
    assert (job.n, job.ended, job.fail, job.to_run, job.not_run, job.perf_adj) == (4, 2, 1, 2, 2, 50.0)
    assert job.state == "unfinished"


def test_perf_adj_is_never_negative() -> None:
    assert perf_adjusted(10.0, 1.5, 4, 0) == 0.0
    assert perf_adjusted(10.0, None, 4, 1) == 7.5
    assert perf_adjusted(None, None, 4, 4) == 0.0


def test_relative_std_is_of_the_population() -> None:
    assert relative_std([80, 120]) == pytest.approx(0.2)
    assert relative_std([5]) is None
    assert relative_std([0, 0]) is None
    assert relative_std([]) is None


def test_the_interval_is_t_on_logs() -> None:
    # logs -0.01, 0, 0.01 around ln 100: s = 0.01, t(0.975, df 2) = 4.302653, half = t * s / sqrt(3) = 0.0248414
    interval = log_interval([100 * math.exp(-0.01), 100.0, 100 * math.exp(0.01)])
    assert interval is not None
    assert interval.low == pytest.approx(97.54646, rel=1e-6)
    assert interval.high == pytest.approx(102.51525, rel=1e-6)
    assert interval.half == pytest.approx(0.0251525, rel=1e-5)
    assert interval.repeats == 3
    assert log_interval([100, 101]) is None
    assert log_interval([100, 0, 100]) is None
    assert log_interval([1e-300, 1e300, 1.0]) is None


def test_the_interval_rests_on_repeats_not_on_gpus(tmp_path: Path) -> None:
    # GPU 1 is always 20 % faster: the mean of each repeat is 110, and nothing varies between repeats.
    results = [steady((100, 120)[gpu], gpu=gpu, repeat=repeat) for repeat in range(3) for gpu in range(2)]
    job = job_of(tmp_path, *results)
    assert [(r.repeat, r.tasks, r.ok, r.perf) for r in job.repeats] == [(i, 2, 2, 110.0) for i in range(3)]
    assert job.interval is not None
    assert (job.interval.half, job.interval.repeats) == (0.0, 3)
    assert job.std == pytest.approx(10 / 110)


def test_jobs_keep_the_plans_order(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, *(make_result(job) for job in ("wlm", "atari", "vae")))
    assert [job.name for job in summary.jobs] == ["wlm", "atari", "vae"]


def test_unsteady_windows_are_counted(tmp_path: Path) -> None:
    job = job_of(tmp_path, make_result(rates=[60] * 19 + [140] * 11), steady(100, gpu=1))
    assert job.unsteady == 1
    assert [task.steady for task in job.tasks] == [False, True]
    assert job.tasks[0].spread == pytest.approx(0.4)


def test_what_stands_beside_a_score(tmp_path: Path) -> None:
    fenced = Tenant(asked="share", cpu="cpuset", memory="max", reason="cgroup v2")
    results = [
        steady(100, tenant=fenced, data=DataUsed(name="synthetic", real=False)),
        steady(100, gpu=1, origin_s=1004.0, data=DataUsed(name="cifar10", version="1", real=True, cached=0.01)),
        steady(100, gpu=1, repeat=1),
    ]
    summary = summary_for(tmp_path, *results)
    # The window of the later one, of 9 s, ends 3 s after the other has ended.
    assert summary.overlap == pytest.approx(6 / 9)
    assert summary.isolation == {"CPU none, memory none (not fenced)": 2, "CPU cpuset, memory max (cgroup v2)": 1}
    held = "cifar10 1 (real, page cache cold)"
    assert summary.data == {"generated in memory": 1, held: 1, "not recorded": 1}
    assert (summary.gpus_used, summary.gpus_present) == (2, 2)
    assert summary.profile is not None
    assert (summary.profile.name, summary.profile.official) == ("suite", False)


def test_a_neighbour_that_holds_still_trains(tmp_path: Path) -> None:
    first = steady(100)
    (stream,) = first.measurement.streams
    hold = Slice(start_s=15.0, end_s=19.0, steps=80, items=400, phase="hold")
    held = msgspec.structs.replace(stream, slices=(*stream.slices, hold))
    first = msgspec.structs.replace(first, measurement=Measurement(streams=(held,)))
    assert summary_for(tmp_path, first, steady(100, gpu=1, origin_s=1004.0)).overlap == pytest.approx(1.0)


def test_windows_that_never_meet_overlap_by_nothing(tmp_path: Path) -> None:
    assert summary_for(tmp_path, steady(1), steady(1, gpu=1, origin_s=2000.0)).overlap == 0.0
    assert summary_for(tmp_path / "b", steady(1), steady(1, repeat=1)).overlap is None


def test_a_rerun_stands_beside_its_original_and_in_no_figure(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (original,) = keep_run(folder, [steady(100)])
    rerun = make_task(rerun_of=RerunOf(result=original.name, changes=("precision: fp32 -> bf16",)))
    keep_results(folder, [steady(150, task=rerun)])
    summary = summarise(load(folder))
    assert (summary.jobs[0].n, summary.jobs[0].perf) == (1, 100.0)
    (found,) = summary.reruns
    assert (found.of, found.original_perf, found.task.perf) == (original.name, 100.0, 150.0)
    assert found.changes == ("precision: fp32 -> bf16",)


def hash_of(job: Job) -> str:
    return work.workload(work.settings(job))


def test_workload_is_what_is_trained() -> None:
    job = Job(name="vae", model="vae", params={"a": 1, "b": 2.0})
    renamed = Job(name="other", model="vae", params={"b": 2.0, "a": 1}, min_time_s=3, tags=("x",))
    assert hash_of(job) == hash_of(renamed)
    changes = (
        {"params": {"a": 2, "b": 2.0}},
        {"training": Training(precision="bf16")},
        {"training": Training(accumulate=2)},
        {"data": "d"},
    )
    for change in changes:
        assert hash_of(msgspec.structs.replace(job, **change)) != hash_of(job)


def test_tasks_of_one_name_that_train_different_things_are_said(tmp_path: Path, call: Call) -> None:
    """As of variants run into one folder. What changes no figure of it, as a time limit does, is not named."""
    one = make_task()
    job = msgspec.structs.replace(
        one.job, training=Training(channels_last=True), max_time_s=99.0, params={"batch_size": 64}
    )
    other = msgspec.structs.replace(one, job=job)
    keep_results(tmp_path, [make_result(task=one), make_result(task=other), make_result(task=other)])
    assert summary_of(tmp_path).jobs[0].unlike == ("channels_last false -> true", "params.batch_size none -> 64")
    _, out, _ = call("report", tmp_path)
    assert "vae (channels_last false -> true; params.batch_size none -> 64): a mean over different work" in out
    keep_results(tmp_path / "alike", [make_result(task=other), make_result(task=other)])
    assert summary_of(tmp_path / "alike").jobs[0].unlike == ()


def test_a_summary_survives_its_file(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, steady(100), steady(101, gpu=1), make_result("x", status="oom", rates=()))
    write_summary(tmp_path / "s.json", summary)
    assert read_summary(tmp_path / "s.json") == summary
    assert summary_of(tmp_path / "s.json") == summary_of(tmp_path / "run")


def test_a_summary_overwrites_nothing(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, steady(100))
    (tmp_path / "s.json").write_text("mine")
    with pytest.raises(OutputError, match=r"s\.json: exists already"):
        write_summary(tmp_path / "s.json", summary)
    assert (tmp_path / "s.json").read_text() == "mine"
    with pytest.raises(OutputError, match="no such folder"):
        write_summary(tmp_path / "none" / "s.json", summary)


def test_other_files_are_no_summary(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"kind": "other"}')
    with pytest.raises(ResultError, match="not a summary of benchsuite"):
        summary_of(file)


def test_without_run_json_the_profile_comes_from_the_results(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, steady(100), plan=False)
    assert not summary.planned
    assert (summary.profile and summary.profile.name, summary.machine, summary.gpus_present) == ("suite", None, None)
    assert make_run().profile.name == "suite"


@pytest.mark.parametrize(
    "wrong",
    [
        {"fail": 50},
        {"n": -3, "fail": -9},
        {"perf": -5.0},
        {"perf_adj": 1e12},
        {"perf_adj": -1.0},
        {"unit_factor": -2.0},
    ],
)
def test_a_summary_with_figures_that_cannot_be_is_refused(wrong: dict[str, float], tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result()])
    summary = summarise(load(tmp_path / "run"))
    write_summary(tmp_path / "good.json", summary)
    assert read_summary(tmp_path / "good.json") == summary
    (job,) = summary.jobs
    write_summary(tmp_path / "s.json", msgspec.structs.replace(summary, jobs=(msgspec.structs.replace(job, **wrong),)))
    with pytest.raises(ResultError, match=r"s\.json: job 'vae': "):
        read_summary(tmp_path / "s.json")
