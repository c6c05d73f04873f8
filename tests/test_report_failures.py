"""Exact tests of failures, and the places where a job never succeeds."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy  # which imports its parts on first use: `scipy.stats` takes a second
from conftest import keep_results, keep_run, make_result, make_run, make_task

from benchsuite.report.read.load import load
from benchsuite.report.stats.failures import Never, compare_failures, fails_more, fisher, never_ok
from benchsuite.report.stats.summarise import summarise


def test_fisher_agrees_with_scipy() -> None:
    small = product(range(4), (3, 7), range(6), (5, 12))
    large = [(12, 12, 0, 84), (0, 54, 1, 54), (40, 4_000, 60, 4_000), (300, 300, 2_000, 2_000)]
    for fail, n, base_fail, base_n in (*small, *large):
        table = [[fail, n - fail], [base_fail, base_n - base_fail]]
        assert fisher(fail, n, base_fail, base_n) == pytest.approx(scipy.stats.fisher_exact(table).pvalue, rel=1e-8)
        more = scipy.stats.fisher_exact(table, alternative="greater").pvalue
        assert fails_more([(fail, n, base_fail, base_n)]) == pytest.approx(more, rel=1e-8)


@pytest.mark.parametrize(("table", "p"), [((0, 0, 3, 9), 1.0), ((2, 5, 0, 0), 1.0), ((0, 9, 0, 9), 1.0)])
def test_what_cannot_differ_has_a_p_of_1(table: tuple[int, int, int, int], p: float) -> None:
    assert (fisher(*table), fails_more([table])) == (p, p)


@pytest.mark.parametrize("table", [(4, 3, 0, 3), (-1, 3, 0, 3), (0, 3, 1, 0)])
def test_impossible_counts_are_an_error(table: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="cannot have failed"):
        fisher(*table)


def test_strata_agree_with_permutations() -> None:
    tables = [(1, 1, 1, 3), (1, 2, 2, 4), (0, 1, 1, 1)]
    draw, hits, trials = random.Random(3), 0, 20_000
    for _ in range(trials):
        found = 0
        for fail, n, base_fail, base_n in tables:
            failed = [1] * (fail + base_fail) + [0] * (n + base_n - fail - base_fail)
            draw.shuffle(failed)
            found += sum(failed[:n])
        hits += found >= 2
    assert fails_more(tables) == pytest.approx(hits / trials, abs=4 * np.sqrt(0.25 / trials))


def test_a_job_that_fails_everywhere_has_no_weight_in_strata() -> None:
    fails = (3, 3, 0, 21)
    assert fails_more([fails, (3, 3, 21, 21)]) == pytest.approx(fails_more([fails]))
    # Without strata, the job that fails everywhere hides the one that fails here.
    assert fisher(6, 6, 21, 42) > 10 * fails_more([fails])


def test_a_family_is_adjusted_over_the_jobs_that_can_differ() -> None:
    tables = {"a": (6, 12, 0, 12), "b": (1, 12, 2, 12), **{f"x{i}": (0, 12, 0, 12) for i in range(16)}}
    found = compare_failures(tables)
    assert found["a"].p == pytest.approx(fisher(6, 12, 0, 12))
    assert found["a"].adjusted == pytest.approx(2 * found["a"].p)
    assert found["a"].adjusted_more == pytest.approx(2 * found["a"].p_more)
    assert found["a"].adjusted < 0.05 < found["b"].adjusted
    assert (found["x0"].p, found["x0"].adjusted, found["x0"].n) == (1.0, 1.0, 12)
    assert compare_failures({}) == {}


def nevers(folder: Path) -> tuple[Never, ...]:
    return never_ok(summarise(load(folder)))


def test_a_job_that_never_succeeds_on_one_gpu(tmp_path: Path) -> None:
    results = [
        make_result(repeat=r, gpu=g, status=("oom", "failed")[r % 2], rates=())
        if g == 1
        else make_result(repeat=r, gpu=g)
        for r in range(3)
        for g in range(3)
    ]
    keep_run(tmp_path / "run", results, run=make_run(3))
    (found,) = nevers(tmp_path / "run")
    assert (found.job, found.place, found.n, found.statuses) == ("vae", "GPU 1 on hostA", 3, ("failed", "oom"))
    assert (found.others_ok, found.others_n) == (6, 6)


def test_one_success_is_enough(tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(repeat=0, status="oom", rates=()), make_result(repeat=1)])
    assert nevers(tmp_path) == ()


def test_tasks_without_an_outcome_do_not_count(tmp_path: Path) -> None:
    tasks = [make_task(repeat=r, gpu=g) for r in range(2) for g in range(2)]
    keep_run(tmp_path / "run", [make_result(status="oom", rates=())], tasks)
    (found,) = nevers(tmp_path / "run")
    assert (found.place, found.n, found.others_n) == ("GPU 0 on hostA", 1, 0)


def test_on_the_cpu_the_machine_is_named(tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(gpu=None, status="failed", rates=())])
    (found,) = nevers(tmp_path)
    assert (found.place, found.gpus, found.n) == ("hostA", (), 1)


def test_a_lost_result_counts_where_its_gpu_is(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    keep_run(folder, [make_result(repeat=r, host="west") for r in range(2)], run=make_run(1))
    next(folder.glob("*vae*.json")).unlink()
    summary = summarise(load(folder))
    assert sorted(task.status for task in summary.jobs[0].tasks) == ["lost", "ok"]
    assert never_ok(summary) == ()
