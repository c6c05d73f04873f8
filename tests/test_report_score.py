"""The score: which jobs it covers, what it says of those it does not, and that nothing ever becomes NaN."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import make_run

from benchsuite import files
from benchsuite.errors import ProfileError
from benchsuite.records import Machine
from benchsuite.report.read.summary import JobSummary, ProfileRef, Repeat, Summary
from benchsuite.report.stats.score import Score, machine_throughput, score
from benchsuite.report.stats.weights import Weights, read_weights, weigh, weights_for


def job(name: str, perf: float | None, *, n: int = 1, fail: int = 0, repeats: int = 1, **fields: Any) -> JobSummary:
    """A job without scatter: every repeat had `perf`."""
    adjusted = 0.0 if perf is None else perf * (1 - fail / n)
    series = tuple(Repeat(repeat=i, tasks=1, ok=1, perf=perf) for i in range(repeats))
    figures = {"n": n, "fail": fail, "perf": perf, "perf_adj": adjusted}
    return JobSummary(**{"name": name, "job": name, **figures, "repeats": series, **fields})


def with_repeats(name: str, *perfs: float, tasks: int = 1, ok: int = 1, fail: int = 0) -> JobSummary:
    series = tuple(Repeat(repeat=i, tasks=tasks, ok=ok, perf=perf) for i, perf in enumerate(perfs))
    found = job(name, 100, n=tasks * len(perfs), fail=fail)
    return msgspec.structs.replace(found, repeats=series)


def summary(*jobs: JobSummary, profile: str = "s", gpus: int = 2, **fields: Any) -> Summary:
    machine: Machine = make_run(gpus).machine
    return Summary(
        source="run", profile=ProfileRef(name=profile, **fields), machines=(machine,) if machine else (), jobs=jobs
    )


def scored(of: Summary, weights: dict[str, float] | None = None) -> Score:
    return score(of, weigh(Weights(weights, "w.json"), of))


def test_a_weighted_geometric_mean() -> None:
    # exp((1 * ln 100 + 3 * ln 1000) / 4) = 10 ** 2.75
    found = scored(summary(job("a", 100), job("b", 1000)), {"a": 1, "b": 3})
    assert found.value == pytest.approx(562.3413)
    assert (found.incomplete, found.coverage, found.verdict) == ((), 1.0, "PASS")


def test_a_missing_job_does_not_weigh_as_one() -> None:
    """A job without a result leaves numerator and denominator alike; as 1.0 it would make this score 3.16."""
    found = scored(summary(job("s.a", 100)), {"s.a": 1, "s.b": 3})
    assert found.value == pytest.approx(100)
    assert found.incomplete == ("not in this run: s.b",)
    assert found.coverage == 0.25


def test_no_weight_no_score() -> None:
    found = scored(summary(job("a", 100)), {"a": 0})
    assert (found.value, found.machine, found.coverage) == (None, None, None)
    assert found.reason == "the weights of this run's jobs add up to 0"
    assert scored(summary(job("a", 100)), {"b": 0}).value is None


def test_unweighted_jobs_are_listed_and_left_out() -> None:
    found = scored(summary(job("a", 100), job("b", 1)), {"a": 1})
    assert (found.value, found.weighing.unweighted) == (pytest.approx(100), ("b",))


def test_a_failed_job_leaves_the_score_incomplete() -> None:
    """The score of the other jobs is marked INCOMPLETE: it is never 0, NaN or an unmarked 50."""
    jobs = [job("a", 100), job("c", 25), job("x", None, n=3, fail=3)]
    found = scored(summary(*jobs), dict.fromkeys("acx", 1.0))
    assert found.value == pytest.approx(50)
    assert found.incomplete == ("no ok task: x",)
    assert found.coverage == pytest.approx(2 / 3)
    assert (found.n, found.fail, found.verdict) == (5, 3, "FAIL")


def test_a_job_with_rates_of_zero_leaves_it_incomplete() -> None:
    found = scored(summary(job("a", 100), job("c", 25), job("x", 0.0)), dict.fromkeys("acx", 1.0))
    assert found.value == pytest.approx(50)
    assert found.incomplete == ("perf_adj is 0: x",)


def test_a_failed_job_of_weight_zero_is_left_out_before_logs() -> None:
    jobs = [job("a", 100), job("c", 25), job("x", None, n=3, fail=3)]
    found = scored(summary(*jobs), {"a": 1, "c": 1, "x": 0})
    assert (found.value, found.incomplete, found.coverage) == (pytest.approx(50), (), 1.0)


def test_all_failed_is_no_score() -> None:
    found = scored(summary(job("a", None, n=2, fail=2)), {"a": 1})
    assert (found.value, found.machine, found.interval, found.failure_rate) == (None, None, None, 1.0)
    assert found.reason == "no weighed job has a throughput"
    assert found.verdict == "FAIL"


def test_tasks_not_run_leave_it_incomplete() -> None:
    found = scored(summary(job("a", 100, n=4, fail=2, not_run=2)), {"a": 1})
    assert found.incomplete == ("tasks not run: a (2 of 4)",)


@pytest.mark.parametrize(("fail", "verdict"), [(0, "PASS"), (1, "PASS"), (2, "FAIL")])
def test_up_to_one_percent_of_failures_passes(fail: int, verdict: str) -> None:
    assert scored(summary(job("a", 100, n=100, fail=fail))).verdict == verdict


def test_a_run_in_progress_is_judged_by_what_has_ended_and_gets_no_verdict() -> None:
    jobs = [job("a", 100, n=8, fail=1, to_run=4), job("b", 100, n=2), job("c", None, n=2, to_run=2)]
    found = scored(msgspec.structs.replace(summary(*jobs), in_progress=True))
    assert (found.n, found.ended, found.fail, found.failure_rate) == (12, 6, 1, pytest.approx(1 / 6))
    assert found.verdict == "UNFINISHED"
    assert found.incomplete == ("in progress: 6 of 12 tasks still to run",)
    nothing = scored(msgspec.structs.replace(summary(jobs[2]), in_progress=True))
    assert (nothing.failure_rate, nothing.verdict) == (None, "UNFINISHED")


def test_keys_may_bear_the_profiles_name() -> None:
    weights = {"standard.a": 1.0, "b": 1.0}
    for fields in ({"profile": "standard"}, {"profile": "tweaked", "based_on": "standard"}):
        found = scored(summary(job("a", 100), job("b", 1), **fields), weights)
        assert (found.value, found.incomplete) == (pytest.approx(10), ())
    assert scored(summary(job("a", 100), job("b", 1), profile="other"), weights).incomplete
    with pytest.raises(ProfileError, match=r"w\.json: 'standard\.a' and 'a' weigh the same job"):
        scored(summary(job("a", 100), profile="standard"), {"a": 1, "standard.a": 1})


def test_scaling_applies_where_there_are_so_many_gpus() -> None:
    weights = {f"scaling.{n}": 2.0 for n in (1, 2, 4, 8)}
    found = scored(summary(job("scaling.1", 100), job("scaling.2", 100), gpus=4), weights)
    assert found.weighing.beyond == ("scaling.8",)
    assert found.incomplete == ("not in this run: scaling.4",)
    assert found.coverage == pytest.approx(2 / 3)


def test_three_repeats_make_it_final() -> None:
    two = scored(summary(job("a", 100, repeats=2)))
    assert (two.provisional, two.repeats, two.interval) == (True, 2, None)
    assert not scored(summary(job("a", 100, repeats=3))).provisional
    # Only two repeats have a figure for both.
    assert scored(summary(job("a", 100, repeats=3), job("b", 100, repeats=2))).repeats == 2


def test_the_interval_is_over_repeats_of_the_weighted_mean() -> None:
    # Weights 1 and 3: means of the logs are -0.01, 0, 0.01; half = 4.302653 * 0.01 / sqrt(3) = 0.0248414
    a = with_repeats("a", *(100 * math.exp(x) for x in (-0.04, 0, 0.04)))
    b = with_repeats("b", 100, 100, 100)
    found = scored(summary(a, b), {"a": 1, "b": 3})
    assert found.interval is not None
    assert found.interval.half == pytest.approx(math.expm1(0.0248414), rel=1e-5)
    assert found.interval.low == pytest.approx(100 * math.exp(-0.0248414), rel=1e-6)


def test_the_machine_score_adds_gpus_up_and_pays_for_a_failure_once() -> None:
    assert machine_throughput(with_repeats("a", 100, tasks=2, ok=2)) == pytest.approx(200)
    # One of two GPUs failed: the machine does the work of one.
    assert machine_throughput(with_repeats("a", 100, tasks=2, ok=1, fail=1)) == pytest.approx(100)
    # Totals 180, 200, 220: mean 200, population std 16.33
    assert machine_throughput(with_repeats("a", 90, 100, 110, tasks=2, ok=2)) == pytest.approx(200 - math.sqrt(800 / 3))
    # A run in progress pays for the failures of what has ended: one of two, not one of four.
    half = msgspec.structs.replace(with_repeats("a", 100, 100, tasks=2, ok=1, fail=1), to_run=2)
    assert machine_throughput(half) == pytest.approx(100)
    # Of a group of four GPUs perf is per GPU.
    assert machine_throughput(job("scaling.4", 100, per=4)) == pytest.approx(400)
    assert machine_throughput(job("a", 100, repeats=0)) is None


def test_without_weights_every_job_weighs_one() -> None:
    found = scored(summary(job("a", 100), job("b", 4)))
    assert found.value == pytest.approx(20)


def write(folder: Path, text: str, name: str = "w.json") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_both_forms_of_a_weight(tmp_path: Path) -> None:
    assert read_weights(write(tmp_path, '{"a": 1, "b": {"weight": 2.5}}')) == {"a": 1.0, "b": 2.5}
    assert read_weights(write(tmp_path, "a: 1\nb: {weight: 1e1}\n", "w.yaml")) == {"a": 1.0, "b": 10.0}


def test_a_weight_beyond_any_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"w\.json: .*1e999"):
        read_weights(write(tmp_path, '{"vae": 1e999}'))


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        ('"8"', "must be a number, found '8'"),
        ("true", "must be a number, found True"),
        ("null", "must be a number, found None"),
        ("[1]", "must be a number"),
        ("-1", "must be from 0 to 1e"),
        ("1" + "0" * 400, "must be from 0 to 1e"),
        ('{"wieght": 1}', "unknown key 'wieght'"),
        ("{}", "no key 'weight'"),
        ('{"weight": "8"}', "must be a number"),
    ],
)
def test_a_wrong_weight_is_refused_with_file_and_key(tmp_path: Path, value: str, reported: str) -> None:
    with pytest.raises(ProfileError, match=r"w\.json: vae: ") as caught:
        read_weights(write(tmp_path, f'{{"vae": {value}}}'))
    assert reported in str(caught.value)


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"w\.json.*NaN"):
        read_weights(write(tmp_path, '{"vae": NaN}'))


def test_default_weights_are_the_profiles_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = write(tmp_path, '{"a": 1}', "standard.json")
    monkeypatch.setattr(files, "shipped", lambda kind: {"standard": shipped} if kind == "weights" else {})
    for profile in (ProfileRef(name="standard"), ProfileRef(name="tweaked", based_on="standard")):
        found = weights_for(profile)
        assert (found.values, found.name, found.official) == ({"a": 1.0}, "standard.json", True)
    assert weights_for(ProfileRef(name="other")).values is None
    assert weights_for(None).values is None
    copy = write(tmp_path, '{"a": 1}', "copy.json")
    assert weights_for(ProfileRef(name="standard"), str(copy)).official
    other = write(tmp_path, '{"a": 2}', "other.json")
    assert not weights_for(ProfileRef(name="standard"), str(other)).official
