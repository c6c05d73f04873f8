"""Ratios: above 1 is faster, identical content is exactly 1, and both scores cover the same jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import keep_run, make_result

from benchsuite.errors import ProfileError
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import JobSummary, ProfileRef, Summary
from benchsuite.report.read.summary_file import write_summary
from benchsuite.report.stats.compare import Comparison, compare, find_base
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.weights import Weights, weigh


def job(name: str, perf: float | None, adjusted: float | None = None, **fields: Any) -> JobSummary:
    return JobSummary(
        name=name, job=name, n=1, fail=perf is None, perf=perf, perf_adj=adjusted or perf or 0.0, **fields
    )


def run(*jobs: JobSummary, profile: str = "suite", based_on: str | None = None) -> Summary:
    return Summary(source="run", jobs=jobs, profile=ProfileRef(name=profile, based_on=based_on))


def against(here: Summary, base: Summary, weights: dict[str, float] | None = None) -> Comparison:
    return compare(here, base, weigh(Weights(weights, "w.json"), here), "base")


def test_more_is_better() -> None:
    found = against(run(job("a", 120, 110)), run(job("a", 100, 100)))
    (row,) = found.jobs
    assert (row.ratio, row.ratio_adj, found.ratio) == (1.2, 1.1, pytest.approx(1.1))


def test_a_run_against_itself_is_exactly_one(tmp_path: Path) -> None:
    results = [make_result(rates=[97.3 + gpu] * 30, gpu=gpu, repeat=r) for r in range(3) for gpu in range(2)]
    results += [make_result("x", rates=[3.7] * 30), make_result("x", gpu=1, status="oom", rates=())]
    keep_run(tmp_path / "run", results)
    summary = summarise(load(tmp_path / "run"))
    write_summary(tmp_path / "base.json", summary)
    for base in (tmp_path / "run", tmp_path / "base.json"):
        found = against(summary, find_base(str(base)))
        assert [(row.ratio, row.ratio_adj) for row in found.jobs] == [(1.0, 1.0)] * 2
        assert found.ratio == 1.0


def test_scores_cover_the_common_jobs_only() -> None:
    here = run(job("a", 100), job("b", 400), job("mine", 7))
    found = against(here, run(job("a", 100), job("b", 100), job("theirs", 9)))
    assert (found.only_here, found.only_base, found.scored) == (("mine",), ("theirs",), ("a", "b"))
    assert (found.score, found.base_score) == (pytest.approx(200), pytest.approx(100))
    assert found.ratio == pytest.approx(2)


def test_a_job_without_throughput_on_one_side_leaves_both_scores() -> None:
    found = against(run(job("a", 100), job("x", None)), run(job("a", 50), job("x", 10)))
    assert (found.scored, found.left_out, found.ratio) == (("a",), ("x",), pytest.approx(2))
    assert (found.jobs[1].ratio, found.jobs[1].ratio_adj) == (None, 0.0)
    nothing = against(run(job("x", None)), run(job("x", None)))
    assert (nothing.score, nothing.base_score, nothing.ratio) == (None, None, None)
    assert (nothing.jobs[0].ratio, nothing.jobs[0].ratio_adj) == (None, None)


def test_weights_count_and_weight_zero_leaves_both_scores() -> None:
    here, base = run(job("a", 200), job("b", 100), job("z", 1)), run(job("a", 100), job("b", 100), job("z", 9))
    # 2 ** (1 / 4)
    assert against(here, base, {"a": 1, "b": 3, "z": 0}).ratio == pytest.approx(1.189207)


def test_excluded_jobs_leave_both_scores_and_keep_their_row() -> None:
    base = run(job("a", 100), job("b", 1, excluded="counted other items"))
    found = against(run(job("a", 100), job("b", 100)), base)
    assert (found.scored, found.left_out, found.ratio) == (("a",), (), 1.0)
    assert found.jobs[1].excluded == "counted other items"


def test_a_unit_factor_converts_the_base() -> None:
    base = run(job("a", 1.0, unit_factor=128.0))
    found = against(run(job("a", 256.0)), base)
    assert (found.jobs[0].base_perf, found.jobs[0].ratio, found.ratio) == (128.0, 2.0, pytest.approx(2))
    assert against(base, base).ratio == 1.0


def test_another_workload_is_named() -> None:
    here = run(job("a", 1, workload="1"), job("b", 1, workload="1"), job("c", 1))
    base = run(job("a", 1, workload="2"), job("b", 1, workload="1"), job("c", 1, workload="1"))
    assert [row.same_workload for row in against(here, base).jobs] == [False, True, None]
    assert [row.unknown for row in against(here, base).jobs] == [None, None, "this run"]


def test_tasks_that_train_different_things_under_one_name_compare_with_nothing() -> None:
    mixed = run(job("a", 1, workload="1", unlike=("compile none -> default",)))
    for here, base in ((mixed, run(job("a", 1, workload="1"))), (run(job("a", 1, workload="1")), mixed)):
        (row,) = against(here, base).jobs
        assert (row.same_workload, row.ratio, row.fields) == (False, None, ("compile none -> default",))


def test_another_workload_leaves_both_scores_and_has_no_ratio() -> None:
    here = run(job("a", 100, workload="1"), job("b", 400, workload="2"))
    found = against(here, run(job("a", 50, workload="1"), job("b", 1, workload="3")))
    assert (found.scored, found.different, found.left_out, found.ratio) == (("a",), ("b",), (), pytest.approx(2))
    assert (found.jobs[1].perf, found.jobs[1].base_perf) == (400, 1)
    assert (found.jobs[1].ratio, found.jobs[1].ratio_adj) == (None, None)
    nothing = against(run(here.jobs[1]), run(job("b", 1, workload="3")))
    assert (nothing.score, nothing.base_score, nothing.ratio) == (None, None, None)


@pytest.mark.parametrize(
    ("here", "base", "same"),
    [
        (("standard", "standard"), ("standard", None), None),
        (("tweaked", "standard"), ("standard", None), None),
        (("mine", None), ("mine", None), None),
        (("smoke", "smoke"), ("standard", None), False),
        (("mine", None), ("standard", None), False),
    ],
)
def test_an_unknown_workload_is_taken_for_the_same_only_within_a_profile(
    here: tuple[str, str | None], base: tuple[str, str | None], same: bool | None
) -> None:
    known, unknown = job("a", 100, workload="1"), job("a", 50)
    there = run(unknown, profile=base[0], based_on=base[1])
    (row,) = against(run(known, profile=here[0], based_on=here[1]), there).jobs
    assert (row.same_workload, row.ratio) == (same, 2.0 if same is None else None)
    nameless = msgspec.structs.replace(there, profile=None)
    assert against(run(known, profile=here[0]), nameless).jobs[0].same_workload is False
    assert against(msgspec.structs.replace(nameless, jobs=(known,)), nameless).jobs[0].same_workload is False


@pytest.mark.parametrize(("profile", "scored"), [("standard", True), ("smoke", False)])
def test_the_shipped_baseline_compares_with_its_own_profile_only(profile: str, scored: bool) -> None:
    base = find_base("v100")
    jobs = [job(name.name, 100, workload="known") for name in base.jobs]
    found = against(run(*jobs, profile=profile, based_on=profile), base)
    # The translator's figures are excluded.
    assert (len(found.scored), len(found.different)) == ((24, 0) if scored else (0, 25))
    assert (found.ratio is None) is not scored


def test_failures_of_the_base_count_too(tmp_path: Path) -> None:
    results = [make_result(), make_result(gpu=1, status="failed", rates=())]
    keep_run(tmp_path / "run", results)
    summary = summarise(load(tmp_path / "run"))
    whole = msgspec.structs.replace(summary, jobs=(msgspec.structs.replace(summary.jobs[0], fail=0, perf_adj=100.0),))
    (row,) = against(whole, summary).jobs
    assert (row.ratio, row.ratio_adj) == (1.0, 2.0)


def test_an_unknown_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no such file.* no shipped file of baselines"):
        find_base(str(tmp_path / "none.json"))
