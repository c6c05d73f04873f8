"""Ratios: above 1 is faster, identical content is exactly 1, and a ratio covers every job of the common suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import keep_run, make_result
from made_summaries import FAILED, NOT_RUN, flat, made_job, made_run, published_job

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


def against(
    here: Summary, base: Summary, weights: dict[str, float] | None = None, *, partial: bool = False
) -> Comparison:
    return compare(here, base, weigh(Weights(weights, "w.json"), here), "base", partial=partial)


def per_gpu(of: Comparison) -> float | None:
    return of.overall.per_gpu.value if of.overall.per_gpu else None


def machine(of: Comparison) -> float | None:
    return of.overall.machine.value if of.overall.machine else None


def words(of: Comparison) -> dict[str, str | None]:
    """Job -> the word of its verdict."""
    return {job.name: job.verdict.word for job in of.jobs}


def noisy(
    name: str, seed: int, factor: float = 1.0, noise: float = 0.01, gpus: int = 2, repeats: int = 5
) -> JobSummary:
    """A job whose repeats scatter; GPUs differ by a tenth."""
    shared = 100 * factor * np.exp(np.random.default_rng(seed).normal(0, noise, repeats))
    return made_job(name, *((shared * (1 + gpu / 10)).tolist() for gpu in range(gpus)))


def test_more_is_better() -> None:
    found = against(run(job("a", 120, 110)), run(job("a", 100, 100)))
    (row,) = found.jobs
    # Penalties enter neither ratio over the suite.
    assert (row.ratio, row.ratio_adj, per_gpu(found)) == (1.2, 1.1, pytest.approx(1.2))


def test_a_run_against_itself_is_exactly_one(tmp_path: Path) -> None:
    results = [make_result(rates=[97.3 + gpu + r] * 30, gpu=gpu, repeat=r) for r in range(3) for gpu in range(2)]
    results += [make_result("x", rates=[3.7] * 30, gpu=gpu) for gpu in range(2)]
    results += [make_result("x", repeat=1, gpu=1, status="oom", rates=())]
    keep_run(tmp_path / "run", results)
    summary = summarise(load(tmp_path / "run"))
    write_summary(tmp_path / "base.json", summary)
    for base in (tmp_path / "run", tmp_path / "base.json"):
        found = against(summary, find_base(str(base)))
        assert [(row.ratio, row.ratio_adj, row.verdict.word) for row in found.jobs] == [(1.0, 1.0, "SAME")] * 2
        for ratio in (found.overall.per_gpu, found.overall.machine):
            assert ratio
            assert (ratio.value, ratio.verdict.word, ratio.verdict.identical) == (1.0, "SAME", True)


def test_a_job_that_is_not_identical_keeps_the_ratio_from_being_exactly_one() -> None:
    same, other = noisy("a", 1), noisy("b", 2)
    found = against(made_run(same, other, gpus=2), made_run(same, noisy("b", 3), gpus=2))
    assert [row.verdict.identical for row in found.jobs] == [True, False]
    assert found.overall.per_gpu
    assert not found.overall.per_gpu.verdict.identical
    assert found.overall.per_gpu.value != 1.0


def test_ratios_cover_the_common_jobs_only() -> None:
    here = run(job("a", 100), job("b", 400), job("mine", 7))
    found = against(here, run(job("a", 100), job("b", 100), job("theirs", 9)))
    assert (found.only_here, found.only_base) == (("mine",), ("theirs",))
    assert (found.overall.jobs, found.overall.suite) == (("a", "b"), 2)
    assert found.overall.apart == {"mine": "not in the baseline"}
    assert per_gpu(found) == pytest.approx(2)


def test_a_job_without_throughput_on_one_side_leaves_no_ratio_unless_a_part_is_asked_for() -> None:
    here, base = run(job("a", 100), job("x", None)), run(job("a", 50), job("x", 10))
    found = against(here, base)
    assert (per_gpu(found), found.overall.jobs) == (None, ())
    assert found.overall.withheld == ("this run: x fails in 1 of 1 task",)
    assert (found.jobs[1].ratio, found.jobs[1].ratio_adj) == (None, 0.0)
    part = against(here, base, partial=True).overall
    assert part.per_gpu
    assert (part.jobs, part.suite, part.partial) == (("a",), 2, True)
    assert (part.per_gpu.value, part.withheld) == (pytest.approx(2), found.overall.withheld)
    nothing = against(run(job("x", None)), run(job("x", None)), partial=True)
    assert (per_gpu(nothing), machine(nothing)) == (None, None)
    assert nothing.overall.withheld[-1] == "no weighed job can be compared"
    assert (nothing.jobs[0].ratio, nothing.jobs[0].ratio_adj) == (None, None)


IN_PROGRESS = made_job("x", [100, NOT_RUN, NOT_RUN], in_progress=True)
# A side that lacks the job x or a figure of it, and the reason.
LACKS = [
    (made_run(flat("a", 100), flat("x", FAILED)), "x fails in 3 of 3 tasks"),
    (made_run(flat("a", 100), flat("x", NOT_RUN)), "tasks to run: x (3 of 3)"),
    (made_run(flat("a", 100), made_job("x", [100, 100, NOT_RUN])), "tasks to run: x (1 of 3)"),
    (made_run(flat("a", 100), left_out=("x",)), "left out by --name or --exclude: x"),
    (made_run(flat("a", 100), IN_PROGRESS, in_progress=True), "in progress: 2 of 6 tasks still to run"),
    (made_run(flat("a", 100), made_job("x", [100, 0.0, 100])), "a repeat of x has a throughput of 0"),
]
WHOLE = made_run(flat("a", 50), flat("x", 50))
WEIGHTS = [None, {"a": 1.0, "x": 1.0}, {"suite.a": 1.0, "suite.x": 1.0}]


@pytest.mark.parametrize("weights", WEIGHTS, ids=["none", "plain", "with the profile"])
@pytest.mark.parametrize(("side", "reason"), LACKS, ids=[reason for _, reason in LACKS])
def test_no_ratio_unless_both_sides_have_every_weighed_job(
    side: Summary, reason: str, weights: dict[str, float] | None
) -> None:
    if weights and "suite.x" in weights:
        reason = reason.replace("--exclude: x", "--exclude: suite.x")
    for here, base, which in ((side, WHOLE, "this run"), (WHOLE, side, "the baseline")):
        found = against(here, base, weights).overall
        assert (found.per_gpu, found.machine, found.jobs, found.partial) == (None, None, (), False)
        assert found.withheld == (f"{which}: {reason}",)
        part = against(here, base, weights, partial=True).overall
        assert part.per_gpu
        assert part.machine
        assert part.per_gpu.value in (pytest.approx(2), pytest.approx(0.5))
        assert (part.partial, part.withheld) == (True, found.withheld)
        assert part.jobs == (("a", "x") if "x (1 of 3)" in reason or "in progress" in reason else ("a",))


@pytest.mark.parametrize("outcome", [FAILED, NOT_RUN])
def test_a_job_without_a_figure_on_both_sides_leaves_no_ratio(outcome: str) -> None:
    """A run against itself has no score either."""
    side = made_run(flat("a", 100), flat("x", outcome))
    found = against(side, side)
    assert per_gpu(found) is None
    assert [reason.partition(":")[0] for reason in found.overall.withheld] == ["this run", "the baseline"]
    assert words(found) == {"a": "SAME", "x": None}
    assert per_gpu(against(side, side, partial=True)) == 1.0


@pytest.mark.parametrize("outcome", [FAILED, NOT_RUN, 0.0])
def test_a_job_of_weight_zero_is_compared_and_never_keeps_a_ratio_back(outcome: float | str) -> None:
    side, weights = made_run(flat("a", 100), flat("zero", outcome), flat("none", outcome)), {"a": 1.0, "zero": 0.0}
    whole = made_run(flat("a", 100), flat("zero", 200), flat("none", 200))
    for here, base in ((side, whole), (whole, side)):
        found = against(here, base, weights)
        assert (per_gpu(found), found.overall.withheld, found.overall.suite) == (pytest.approx(1), (), 1)
    compared = against(made_run(flat("a", 100), flat("zero", 100)), whole, weights)
    assert [row.ratio for row in compared.jobs] == pytest.approx([1.0, 0.5])
    if outcome == FAILED:
        assert words(against(side, whole, weights)) == {"a": "SAME", "zero": "FAILS", "none": "FAILS"}


def test_a_base_that_its_profile_gave_fewer_jobs_has_no_gap() -> None:
    """An older baseline lacks a job: it stands apart, since the baseline was not to run it."""
    here, base = made_run(flat("a", 100), flat("new", 1)), made_run(flat("a", 50))
    found = against(here, base, {"a": 1, "new": 1})
    assert (per_gpu(found), found.overall.withheld) == (pytest.approx(2), ())
    assert found.overall.apart == {"new": "not in the baseline"}


def test_a_run_that_lacks_a_job_of_the_base_has_a_gap() -> None:
    found = against(made_run(flat("a", 100)), made_run(flat("a", 50), flat("x", 1)), {"a": 1, "x": 1})
    assert (per_gpu(found), found.overall.withheld) == (None, ("this run: not in this run: x",))


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_job_that_fails_on_one_side_only_has_a_verdict_of_its_own() -> None:
    ok, broken = made_run(flat("a", 100), flat("x", 100)), made_run(flat("a", 100), flat("x", FAILED, gpus=2))
    here, base = against(broken, ok).jobs[1].verdict, against(ok, broken).jobs[1].verdict
    assert (here.word, here.reason) == ("FAILS", "fails in 6 of 6 tasks here")
    assert (base.word, base.reason) == ("BASE FAILS", "fails in 6 of 6 tasks in the baseline")
    both = against(broken, broken).jobs[1].verdict
    assert (both.word, both.reason) == (None, "fails in 6 of 6 tasks here; fails in 6 of 6 tasks in the baseline")


@pytest.mark.parametrize(
    ("outcomes", "in_progress", "word", "reason"),
    [
        ([NOT_RUN] * 3, False, None, "not run yet here"),
        ([NOT_RUN] * 3, True, None, "no task has ended yet here, 3 still to run"),
        ([FAILED, FAILED, NOT_RUN], False, None, "fails in 2 of 2 tasks here, 1 still to run"),
        # The last task may still succeed.
        ([FAILED, FAILED, NOT_RUN], True, None, "fails in 2 of 2 tasks here, 1 still to run"),
        ([FAILED, FAILED, 100], False, None, "this run has 1 ok repeat; 3 are needed"),
    ],
)
def test_only_a_job_whose_tasks_all_failed_fails(
    outcomes: list[float | str], in_progress: bool, word: str | None, reason: str
) -> None:
    here = made_run(made_job("a", outcomes, in_progress=in_progress), in_progress=in_progress)
    (row,) = against(here, made_run(flat("a", 100))).jobs
    assert (row.verdict.word, row.verdict.reason) == (word, reason)
    (back,) = against(made_run(flat("a", 100)), here).jobs
    assert back.verdict.word == ("BASE FAILS" if word else None)


def test_speed_is_judged_on_ok_tasks() -> None:
    """One task in a hundred fails, on the slow GPUs: neither the ratios nor the words move."""
    rates = np.random.default_rng(5).normal(100, 0.5, 25).tolist()
    whole = made_job("a", rates, rates, [rate / 2 for rate in rates], [rate / 2 for rate in rates])
    failing = made_job(
        "a", rates, rates, *([FAILED if r == gpu else v / 2 for r, v in enumerate(rates)] for gpu in (2, 3))
    )
    assert (failing.n, failing.fail) == (100, 2)
    base = made_run(made_job("a", *[[100.0, 101, 99, 100, 100]] * 2, *[[50, 50.5, 49.5, 50, 50]] * 2), gpus=4)
    expected, found = against(made_run(whole, gpus=4), base), against(made_run(failing, gpus=4), base)
    assert (per_gpu(found), machine(found)) == pytest.approx((per_gpu(expected), machine(expected)), rel=1e-9)
    assert found.jobs[0].ratio == pytest.approx(expected.jobs[0].ratio, rel=1e-9)
    assert (found.jobs[0].verdict.word, expected.jobs[0].verdict.word) == ("SAME", "SAME")
    # perf_adj pays for them as before.
    assert found.jobs[0].ratio_adj is not None
    assert expected.jobs[0].ratio_adj is not None
    assert found.jobs[0].ratio_adj < expected.jobs[0].ratio_adj


def test_failures_have_exact_tests_per_job_and_over_all() -> None:
    some = made_job("a", *[[100, FAILED, FAILED, FAILED, FAILED, FAILED]] * 2)
    here = made_run(some, flat("b", 100, gpus=2, repeats=6), gpus=2)
    base = made_run(*(flat(name, 100, gpus=2, repeats=6) for name in "ab"), gpus=2)
    found = against(here, base)
    a, b = (row.failures for row in found.jobs)
    assert a
    assert b
    assert (a.fail, a.n, a.base_fail, a.base_n) == (10, 12, 0, 12)
    assert a.adjusted < 0.001
    assert b.p == 1.0
    assert (found.failures.fail, found.failures.n, found.failures.base_n) == (10, 24, 24)
    assert a.p < found.failures.p < 0.001


def test_one_failure_more_is_no_difference() -> None:
    here = made_run(made_job("a", [100, 100, FAILED]))
    assert against(here, made_run(flat("a", 100))).failures.p == 1.0


def test_tasks_that_were_never_run_fail_on_no_side() -> None:
    found = against(made_run(made_job("a", [100, FAILED, NOT_RUN])), made_run(flat("a", 100)))
    assert (found.failures.fail, found.failures.n) == (1, 2)


# --- per GPU and machine ----------------------------------------------------------------------------------------------


def test_eight_equal_gpus_have_the_same_ratio_per_gpu_and_an_eighth_of_the_machines() -> None:
    one = made_run(flat("a", 100), flat("b", 7))
    eight = made_run(flat("a", 100, gpus=8), flat("b", 7, gpus=8), gpus=8)
    more, less = against(eight, one), against(one, eight)
    assert (per_gpu(more), machine(more), more.overall.gpus) == (1.0, pytest.approx(8), (8, 1))
    assert (per_gpu(less), machine(less), less.overall.gpus) == (1.0, pytest.approx(1 / 8), (1, 8))


def test_two_slower_gpus_are_a_faster_machine() -> None:
    two = made_run(noisy("a", 1, 0.84), noisy("b", 2, 0.84), gpus=2)
    one = made_run(noisy("a", 3, gpus=1), noisy("b", 4, gpus=1))
    found = against(two, one)
    # GPUs differ by a tenth, so that two have a mean of 1.05 of the first.
    assert per_gpu(found) == pytest.approx(0.84 * 1.05, rel=0.01)
    assert machine(found) == pytest.approx(2 * 0.84 * 1.05, rel=0.01)
    assert found.overall.per_gpu
    assert found.overall.machine
    assert (found.overall.per_gpu.verdict.word, found.overall.machine.verdict.word) == ("SLOWER", "FASTER")


def test_a_job_on_the_cpu_counts_once_in_the_machines_ratio() -> None:
    """Four GPUs run four tasks of one job and one of the other: weights are equal, so the ratio is sqrt(4)."""
    four = made_run(flat("a", 100, gpus=4), flat("cpu", 10, devices="none"), gpus=4)
    found = against(four, made_run(flat("a", 100), flat("cpu", 10, devices="none")))
    assert (per_gpu(found), machine(found)) == (1.0, pytest.approx(2))
    weighted = against(four, made_run(flat("a", 100), flat("cpu", 10, devices="none")), {"a": 3, "cpu": 1})
    assert machine(weighted) == pytest.approx(4 ** (3 / 4))


def test_the_ratio_over_the_suite_is_the_weighted_mean_of_the_jobs_ratios() -> None:
    """Also beside a base that keeps no numbers per repeat: then all ratios are of perf, however much a job scatters."""
    weights = {"a": 1.0, "b": 3.0}
    here = made_run(noisy("a", 1, noise=0.3), noisy("b", 2, noise=0.1), gpus=2)
    for base in (
        made_run(noisy("a", 3, noise=0.3), noisy("b", 4, noise=0.1), gpus=2),
        made_run(published_job("a", 100, gpus=8), published_job("b", 100, gpus=8)),
    ):
        for found in (against(here, base, weights), against(base, here, weights)):
            a, b = (row.ratio or 0.0 for row in found.jobs)
            assert per_gpu(found) == pytest.approx((a * b**3) ** (1 / 4), rel=1e-9)


def test_a_published_base_counts_its_gpus() -> None:
    base = made_run(published_job("a", 100, gpus=8), gpus=0, machines=(), gpus_used=8)
    found = against(made_run(flat("a", 200)), base)
    assert (per_gpu(found), machine(found)) == (pytest.approx(2), pytest.approx(1 / 4))
    assert found.overall.per_gpu
    assert (found.overall.per_gpu.verdict.word, found.overall.per_gpu.verdict.reason) == (
        None,
        "the baseline keeps no numbers per repeat",
    )


def test_without_a_number_of_tasks_there_is_no_ratio_of_machines() -> None:
    base = made_run(published_job("a", 100, gpus=0), machines=())
    found = against(made_run(flat("a", 200)), base)
    assert (per_gpu(found), machine(found), found.overall.withheld) == (pytest.approx(2), None, ())
    assert found.overall.machine_withheld == "a side does not state how many tasks run at once"


def test_a_machine_on_one_of_whose_gpus_a_job_never_succeeds_has_no_ratio() -> None:
    """The rate of the other GPUs, times all GPUs, is not what the machine does."""
    broken = made_run(flat("a", 100, gpus=2), made_job("b", [100] * 3, [FAILED] * 3), gpus=2)
    whole = made_run(flat("a", 100, gpus=2), flat("b", 100, gpus=2), gpus=2)
    here, base = against(broken, whole), against(whole, broken)
    assert (per_gpu(here), machine(here), here.overall.withheld) == (pytest.approx(1), None, ())
    assert here.overall.machine_withheld == "b never succeeds on GPU 1 on hostA here"
    assert (machine(base), base.overall.machine_withheld) == (
        None,
        "b never succeeds on GPU 1 on hostA in the baseline",
    )
    assert machine(against(broken, whole, {"a": 1, "b": 0})) == pytest.approx(1)


@pytest.mark.parametrize("devices", ["progression", "all"])
def test_jobs_that_depend_on_the_number_of_gpus_stand_apart(devices: str) -> None:
    def side(rate: float) -> Summary:
        return made_run(flat("a", rate), flat("scaling.1", 1e6 / rate, devices=devices))

    found = against(side(200), side(100))
    assert (per_gpu(found), found.overall.jobs, found.overall.suite) == (pytest.approx(2), ("a",), 1)
    assert found.overall.apart == {"scaling.1": "depends on the number of GPUs"}
    assert found.overall.withheld == ()
    # It keeps its own row.
    assert found.jobs[1].ratio == pytest.approx(0.5)


def test_a_job_placed_on_the_cpu_on_one_side_stands_apart() -> None:
    here = made_run(flat("a", 100), flat("b", 1, devices="none"))
    found = against(here, made_run(flat("a", 100), flat("b", 100)))
    assert found.overall.apart == {"b": "placed on the CPU here, on each GPU in the baseline"}
    assert per_gpu(found) == pytest.approx(1)


def test_the_ratio_lies_in_the_centre_of_its_interval() -> None:
    here = made_run(*(noisy(f"j{seed}", seed, 1.1) for seed in range(4)), gpus=2)
    base = made_run(*(noisy(f"j{seed}", 50 + seed, repeats=4) for seed in range(4)), gpus=2)
    found = against(here, base, {f"j{n}": n + 1 for n in range(4)})
    assert found.overall.per_gpu
    assert found.overall.machine
    for value, verdict in (
        (found.overall.per_gpu.value, found.overall.per_gpu.verdict),
        (found.overall.machine.value, found.overall.machine.verdict),
        *((row.ratio, row.verdict) for row in found.jobs),
    ):
        assert value
        assert verdict.low
        assert verdict.high
        assert verdict.low < value < verdict.high
        assert verdict.low * verdict.high == pytest.approx(value**2)


def test_the_machines_interval_is_as_wide_as_that_per_gpu() -> None:
    found = against(made_run(noisy("a", 1), gpus=2), made_run(noisy("a", 2, gpus=1)))
    assert found.overall.per_gpu
    assert found.overall.machine
    per, whole = found.overall.per_gpu.verdict, found.overall.machine.verdict
    assert per.low and per.high and whole.low and whole.high
    assert (whole.low, whole.high) == pytest.approx((2 * per.low, 2 * per.high))


def test_a_failure_moves_the_ratio_of_neither_side() -> None:
    """Penalties would: half of the tasks of this run fail."""
    here = made_run(made_job("a", [100, FAILED, 100, FAILED, 100, FAILED]))
    found = against(here, made_run(flat("a", 100, repeats=6)))
    assert (per_gpu(found), machine(found)) == (pytest.approx(1), pytest.approx(1))


# --- what each job is compared with -----------------------------------------------------------------------------------


def test_weights_count_and_weight_zero_leaves_the_ratio_alone() -> None:
    here, base = run(job("a", 200), job("b", 100), job("z", 1)), run(job("a", 100), job("b", 100), job("z", 9))
    # 2 ** (1 / 4)
    assert per_gpu(against(here, base, {"a": 1, "b": 3, "z": 0})) == pytest.approx(1.189207)


def test_excluded_jobs_stand_apart_and_keep_their_row() -> None:
    base = run(job("a", 100), job("b", 1, excluded="counted other items"))
    found = against(run(job("a", 100), job("b", 100)), base)
    assert (found.overall.jobs, found.overall.withheld, per_gpu(found)) == (("a",), (), 1.0)
    assert found.overall.apart == {"b": "counted other items"}
    assert found.jobs[1].excluded == "counted other items"


def test_a_unit_factor_converts_the_base() -> None:
    base = run(job("a", 1.0, unit_factor=128.0))
    found = against(run(job("a", 256.0)), base)
    assert (found.jobs[0].base_perf, found.jobs[0].ratio, per_gpu(found)) == (128.0, 2.0, pytest.approx(2))
    assert per_gpu(against(base, base)) == 1.0


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


def test_another_workload_leaves_no_ratio_and_names_the_job() -> None:
    here = run(job("a", 100, workload="1"), job("b", 400, workload="2"))
    base = run(job("a", 50, workload="1"), job("b", 1, workload="3"))
    found = against(here, base)
    assert (per_gpu(found), found.different, found.overall.withheld) == (
        None,
        ("b",),
        ("another workload: b (--compare-unlike compares it)",),
    )
    assert (found.jobs[1].perf, found.jobs[1].base_perf) == (400, 1)
    assert (found.jobs[1].ratio, found.jobs[1].ratio_adj) == (None, None)
    part = against(here, base, partial=True)
    assert (per_gpu(part), part.overall.jobs, part.overall.suite) == (pytest.approx(2), ("a",), 2)
    nothing = against(run(here.jobs[1]), run(job("b", 1, workload="3")), partial=True)
    assert (per_gpu(nothing), nothing.overall.jobs) == (None, ())
    # A job of weight 0 with another workload keeps no ratio back.
    assert per_gpu(against(here, base, {"a": 1, "b": 0})) == pytest.approx(2)


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
    # The translator's figures are excluded, and the progression's 8 jobs depend on the number of GPUs.
    assert found.overall.suite == 16
    assert len(found.overall.apart) == 9
    assert (len(found.overall.jobs), len(found.different)) == ((16, 0) if scored else (0, 25))
    assert (per_gpu(found) is None) is not scored


def test_failures_of_the_base_count_too(tmp_path: Path) -> None:
    results = [make_result(), make_result(gpu=1, status="failed", rates=())]
    keep_run(tmp_path / "run", results)
    summary = summarise(load(tmp_path / "run"))
    whole = msgspec.structs.replace(summary, jobs=(msgspec.structs.replace(summary.jobs[0], fail=0, perf_adj=100.0),))
    (row,) = against(whole, summary).jobs
    assert (row.ratio, row.ratio_adj) == (1.0, 2.0)


def test_an_unknown_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no such file.* no shipped baseline"):
        find_base(str(tmp_path / "none.json"))
