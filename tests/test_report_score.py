"""The score: which jobs it covers, what it says of those it does not, and that nothing ever becomes NaN."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import make_run
from made_summaries import FAILED, NOT_RUN, flat, made_job, made_run, published_job

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


def scored(of: Summary, weights: dict[str, float] | None = None, *, partial: bool = False) -> Score:
    return score(of, weigh(Weights(weights, "w.json"), of), partial=partial)


def figures(of: Score) -> tuple[object, ...]:
    return of.value, of.machine, of.speed, of.machine_speed, of.interval


def test_a_weighted_geometric_mean() -> None:
    # exp((1 * ln 100 + 3 * ln 1000) / 4) = 10 ** 2.75
    found = scored(summary(job("a", 100), job("b", 1000)), {"a": 1, "b": 3})
    assert found.value == pytest.approx(562.3413)
    assert (found.incomplete, found.coverage, found.verdict) == ((), 1.0, "PASS")


def test_a_missing_job_leaves_no_score_and_does_not_weigh_as_one_in_a_part() -> None:
    """A job without a result leaves numerator and denominator alike; as 1.0 it would make the part's score 3.16."""
    run = summary(job("s.a", 100))
    found = scored(run, {"s.a": 1, "s.b": 3})
    assert (found.value, found.coverage) == (None, 0.25)
    assert found.incomplete == ("not in this run: s.b",)
    assert found.reason == "not in this run: s.b"
    assert scored(run, {"s.a": 1, "s.b": 3}, partial=True).value == pytest.approx(100)


def test_no_weight_no_score() -> None:
    found = scored(summary(job("a", 100)), {"a": 0})
    assert (found.value, found.machine, found.coverage) == (None, None, None)
    assert found.reason == "the weights of this run's jobs add up to 0"
    assert scored(summary(job("a", 100)), {"b": 0}).value is None


def test_unweighted_jobs_are_listed_and_left_out() -> None:
    found = scored(summary(job("a", 100), job("b", 1)), {"a": 1})
    assert (found.value, found.weighing.unweighted) == (pytest.approx(100), ("b",))


def test_a_failed_job_leaves_no_score() -> None:
    """The other jobs have a score of 50: it is given only on demand, and never 0 or NaN."""
    jobs = [job("a", 100), job("c", 25), job("x", None, n=3, fail=3)]
    found = scored(summary(*jobs), dict.fromkeys("acx", 1.0))
    assert figures(found) == (None,) * 5
    assert found.incomplete == ("x fails in 3 of 3 tasks",)
    assert found.reason == "x fails in 3 of 3 tasks"
    assert (found.scored, found.weighed, found.coverage) == (0, 3, pytest.approx(2 / 3))
    assert (found.n, found.fail, found.verdict) == (5, 3, "FAIL")


def test_a_failure_never_raises_a_score() -> None:
    """The slowest job fails in each task: a mean over the others would be six times as high."""
    whole = made_run(flat("fast", 10_000), flat("slow", 10))
    failed = made_run(flat("fast", 10_000), flat("slow", FAILED))
    assert scored(whole).value == pytest.approx(316.2278)
    assert scored(failed).value is None


LACKS = [
    (made_run(flat("a", 100), flat("x", FAILED, gpus=2)), "x fails in 6 of 6 tasks"),
    (made_run(flat("a", 100), flat("x", NOT_RUN)), "tasks to run: x (3 of 3)"),
    (made_run(flat("a", 100), made_job("x", [100, 100, NOT_RUN])), "tasks to run: x (1 of 3)"),
    (made_run(flat("a", 100), made_job("x", [FAILED, FAILED, NOT_RUN])), "x fails in 2 of 2 tasks"),
    (made_run(flat("a", 100), left_out=("x",)), "left out by --name or --exclude: x"),
    (made_run(flat("a", 100)), "not in this run: x"),
    (made_run(flat("a", 100), flat("x", 0.0)), "perf_adj of x is 0"),
    (made_run(flat("a", 100), made_job("x", [100, 0.0, 100, 100])), "a repeat of x has a throughput of 0"),
    (
        made_run(flat("a", 100), made_job("x", [100, NOT_RUN, NOT_RUN], in_progress=True), in_progress=True),
        "in progress: 2 of 6 tasks still to run",
    ),
    # The last task may still give the job a figure.
    (
        made_run(flat("a", 100), made_job("x", [FAILED, FAILED, NOT_RUN], in_progress=True), in_progress=True),
        "in progress: 1 of 6 tasks still to run",
    ),
]


@pytest.mark.parametrize(("run", "reason"), LACKS, ids=[reason for _, reason in LACKS])
def test_no_score_unless_every_weighed_job_has_its_figure(run: Summary, reason: str) -> None:
    found = scored(run, {"a": 1, "x": 1})
    assert figures(found) == (None,) * 5
    assert found.reason is not None
    # A job that fails and has tasks that were never run has both reasons.
    assert found.incomplete == (reason, *(["tasks to run: x (1 of 3)"] if "2 of 2" in reason else []))
    assert found.reason == "; ".join(found.incomplete)
    assert not found.partial


@pytest.mark.parametrize(("run", "reason"), LACKS, ids=[reason for _, reason in LACKS])
def test_a_part_is_scored_when_asked_and_says_how_many_jobs_it_covers(run: Summary, reason: str) -> None:
    found = scored(run, {"a": 1, "x": 1}, partial=True)
    has_x = "x (1 of 3)" in reason or "2 of 6 tasks still to run" in reason
    x = next((job.perf_adj for job in run.jobs if job.name == "x" and has_x), None)
    assert found.value == pytest.approx(math.sqrt(100 * x) if x else 100)
    assert found.speed == pytest.approx(100)
    assert (found.scored, found.weighed, found.partial, found.reason) == (2 if has_x else 1, 2, True, None)
    assert found.incomplete[0] == reason


def test_a_whole_score_is_no_part_though_a_part_was_asked_for() -> None:
    found = scored(made_run(flat("a", 100), flat("b", 100)), partial=True)
    assert (found.partial, found.reason, found.scored, found.weighed) == (False, None, 2, 2)


def test_a_job_with_rates_of_zero_leaves_no_score() -> None:
    run, weights = summary(job("a", 100), job("c", 25), job("x", 0.0)), dict.fromkeys("acx", 1.0)
    assert scored(run, weights).value is None
    assert scored(run, weights).incomplete == ("perf_adj of x is 0",)
    assert scored(run, weights, partial=True).value == pytest.approx(50)


def test_a_failed_job_of_weight_zero_is_left_out_before_logs() -> None:
    jobs = [job("a", 100), job("c", 25), job("x", None, n=3, fail=3)]
    found = scored(summary(*jobs), {"a": 1, "c": 1, "x": 0})
    assert (found.value, found.incomplete, found.coverage) == (pytest.approx(50), (), 1.0)
    assert (found.scored, found.weighed) == (2, 2)


@pytest.mark.parametrize("outcome", [FAILED, NOT_RUN, 0.0])
def test_a_job_of_weight_zero_never_leaves_a_run_without_score(outcome: float | str) -> None:
    run = made_run(flat("a", 100), flat("unweighted", outcome), flat("zero", outcome))
    found = scored(run, {"a": 1, "zero": 0})
    assert (found.value, found.reason, found.incomplete) == (pytest.approx(100), None, ())


def test_all_failed_is_no_score() -> None:
    found = scored(summary(job("a", None, n=2, fail=2)), {"a": 1})
    assert (found.value, found.machine, found.interval, found.failure_rate) == (None, None, None, 1.0)
    assert found.reason == "no weighed job has a throughput (a fails in 2 of 2 tasks)"
    assert found.verdict == "FAIL"
    assert scored(summary(job("a", None, n=2, fail=2)), {"a": 1}, partial=True).reason == found.reason


def test_tasks_that_were_never_run_leave_no_score() -> None:
    found = scored(summary(job("a", 100, n=4, to_run=2, not_run=2)), {"a": 1})
    assert (found.value, found.incomplete) == (None, ("tasks to run: a (2 of 4)",))


@pytest.mark.parametrize(("fail", "verdict"), [(0, "PASS"), (1, "PASS"), (2, "FAIL")])
def test_up_to_one_percent_of_failures_passes(fail: int, verdict: str) -> None:
    assert scored(summary(job("a", 100, n=100, fail=fail))).verdict == verdict


def broken_gpu(outcome: float | str) -> Summary:
    """17 jobs on 8 GPUs in 3 repeats; the first has another outcome on the last GPU."""
    broken = made_job("j0", *[[100.0] * 3] * 7, [outcome] * 3)
    return made_run(broken, *(flat(f"j{index}", 100, gpus=8) for index in range(1, 17)), flat("one", 100), gpus=8)


def test_a_job_that_never_succeeds_on_one_gpu_fails_the_run_below_one_percent() -> None:
    found = scored(broken_gpu(FAILED))
    assert (found.fail, found.ended, found.verdict) == (3, 411, "FAIL")
    assert found.failure_rate is not None
    assert found.failure_rate < 0.01
    (never,) = found.never
    assert (never.job, never.place, never.n, never.others_ok) == ("j0", "GPU 7 on hostA", 3, 21)
    # The job has a figure from the other GPUs, and pays for the failures.
    assert found.value == pytest.approx(100 * (1 - 3 / 24) ** (1 / 18))
    assert scored(broken_gpu(100)).verdict == "PASS"


def test_the_same_failures_on_different_gpus_pass() -> None:
    scattered = made_job("j0", [FAILED, 100, 100], [100, FAILED, 100], [100, 100, FAILED], *[[100.0] * 3] * 5)
    run = made_run(scattered, *(flat(f"j{index}", 100, gpus=8) for index in range(1, 17)), flat("one", 100), gpus=8)
    found = scored(run)
    assert (found.fail, found.ended, found.never, found.verdict) == (3, 411, (), "PASS")


def test_a_run_in_progress_is_judged_by_what_has_ended_and_gets_no_verdict() -> None:
    jobs = [job("a", 100, n=8, fail=1, to_run=4), job("b", 100, n=2), job("c", None, n=2, to_run=2)]
    found = scored(msgspec.structs.replace(summary(*jobs), in_progress=True))
    assert (found.n, found.ended, found.fail, found.failure_rate) == (12, 6, 1, pytest.approx(1 / 6))
    assert found.verdict == "UNFINISHED"
    assert (found.value, found.incomplete) == (None, ("in progress: 6 of 12 tasks still to run",))
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
    assert (found.value, found.incomplete) == (None, ("not in this run: scaling.4",))
    assert found.coverage == pytest.approx(2 / 3)
    whole = scored(summary(*(job(f"scaling.{n}", 100) for n in (1, 2, 4)), gpus=4), weights)
    assert (whole.value, whole.incomplete) == (pytest.approx(100), ())


def test_a_job_left_out_by_name_is_not_called_one_of_more_gpus() -> None:
    weights = {"a": 1.0, **{f"scaling.{n}": 2.0 for n in (1, 2, 4)}}
    left_out = weigh(Weights(weights), made_run(flat("a", 100), gpus=2, left_out=("scaling",)))
    assert (list(left_out.missing), left_out.beyond) == (["scaling.1", "scaling.2"], ("scaling.4",))
    # A machine without GPUs would run scaling.1 on the CPU.
    on_cpu = weigh(Weights(weights), made_run(flat("a", 100), gpus=0, left_out=("scaling",)))
    assert (list(on_cpu.missing), on_cpu.beyond) == (["scaling.1"], ("scaling.2", "scaling.4"))
    planned = weigh(Weights(weights), made_run(flat("a", 100), flat("scaling.1", 100), gpus=1))
    assert (list(planned.missing), planned.beyond) == ([], ("scaling.2", "scaling.4"))


def test_gpus_that_no_record_counts_are_no_reason() -> None:
    """Without a run.json, the GPUs of the results may be only those that --gpus chose."""
    weights = {"a": 1.0, "scaling.4": 1.0}
    unknown = made_run(flat("a", 100), machines=(), gpus_used=1)
    assert weigh(Weights(weights), unknown).beyond == ()
    published = made_run(flat("a", 100), machines=(), gpus_used=1, provenance="published")
    assert weigh(Weights(weights), published).beyond == ("scaling.4",)


@pytest.mark.parametrize("key", ["x", "suite.x", "suite.x.2"])
def test_a_job_left_out_is_known_by_any_key_that_weighs_it(key: str) -> None:
    found = scored(made_run(flat("a", 100), left_out=("x",)), {"a": 1, key: 1})
    assert found.incomplete == (f"left out by --name or --exclude: {key}",)


def test_without_weights_a_job_left_out_weighs_one_as_the_others_do() -> None:
    run = made_run(flat("a", 100), left_out=("x", "y"))
    found = scored(run)
    assert (found.value, found.incomplete) == (None, ("left out by --name or --exclude: x, y",))
    assert (found.weighed, found.coverage) == (3, pytest.approx(1 / 3))
    assert scored(run, partial=True).value == pytest.approx(100)


def test_three_repeats_make_it_final() -> None:
    two = scored(summary(job("a", 100, repeats=2)))
    assert (two.provisional, two.repeats, two.interval) == (True, 2, None)
    assert not scored(summary(job("a", 100, repeats=3))).provisional
    # A job that lacks one of three repeats still has a scatter of its own; with one repeat it has none.
    lacks = scored(summary(job("a", 100, repeats=3), job("b", 100, repeats=2)))
    assert (lacks.provisional, lacks.repeats) == (False, 3)
    single = scored(summary(job("a", 100, repeats=3), job("b", 100, repeats=1)))
    assert (single.provisional, single.repeats, single.interval) == (True, 1, None)


def test_the_interval_is_over_repeats_of_the_weighted_mean() -> None:
    # Weights 1 and 3: means of the logs are -0.01, 0, 0.01; half = 4.302653 * 0.01 / sqrt(3) = 0.0248414
    a = with_repeats("a", *(100 * math.exp(x) for x in (-0.04, 0, 0.04)))
    b = with_repeats("b", 100, 100, 100)
    found = scored(summary(a, b), {"a": 1, "b": 3})
    assert found.interval is not None
    assert found.interval.half == pytest.approx(math.expm1(0.0248414), rel=1e-5)
    assert found.interval.low == pytest.approx(100 * math.exp(-0.0248414), rel=1e-6)


def test_the_interval_is_centred_on_the_speed_and_the_penalties_are_outside_it() -> None:
    a = made_job("a", [96, 100, 105], [50, 51, FAILED])
    b = made_job("b", [990, 1000, 1010], [1000, 1020, 1030])
    found = scored(made_run(a, b, gpus=2), {"a": 2, "b": 1})
    assert found.interval is not None
    assert found.speed is not None
    assert found.value is not None
    assert found.interval.low * found.interval.high == pytest.approx(found.speed**2)
    assert found.interval.low < found.speed < found.interval.high
    assert found.interval.high / found.speed == pytest.approx(1 + found.interval.half)
    # The formula of the score: std over all tasks and the share of failures, of a alone.
    expected = (a.perf_adj**2 * b.perf_adj) ** (1 / 3)
    assert found.value == pytest.approx(expected)
    assert found.value < found.interval.low


def test_the_speed_is_of_ok_tasks_and_no_failure_moves_it() -> None:
    whole = scored(made_run(made_job("a", *[[100.0, 101, 99, 100]] * 2, [50, 50.5, 49.5, 50]), gpus=3))
    failed = scored(made_run(made_job("a", *[[100.0, 101, 99, 100]] * 2, [50, FAILED, FAILED, 50]), gpus=3))
    assert whole.speed is not None
    assert (failed.speed, failed.machine_speed) == pytest.approx((whole.speed, whole.machine_speed))
    assert whole.machine_speed == pytest.approx(3 * whole.speed)


def test_the_speed_does_not_rest_on_how_many_repeats_and_gpus_there_are() -> None:
    """The penalty grows with both: one GPU in one repeat has none."""
    one = scored(made_run(flat("a", 100, repeats=1)))
    many = scored(made_run(made_job("a", *[[90.0, 110.0] * 5] * 8), gpus=8))
    assert (one.value, one.speed) == (pytest.approx(100), pytest.approx(100))
    assert many.value == pytest.approx(90)
    assert many.speed == pytest.approx(math.sqrt(90 * 110))


def test_a_published_job_has_a_speed_without_an_interval() -> None:
    found = scored(made_run(published_job("a", 100, gpus=8), published_job("b", 400, gpus=8)))
    assert (found.speed, found.machine_speed) == (pytest.approx(200), pytest.approx(1600))
    assert (found.interval, found.machine, found.repeats) == (None, None, 0)


def test_a_machine_speed_needs_the_number_of_tasks_of_every_job() -> None:
    of_group = published_job("scaling.4", 100, gpus=0, devices="progression", per=4)
    found = scored(made_run(published_job("a", 100, gpus=8), of_group))
    assert (found.speed, found.machine_speed) == (pytest.approx(100), None)
    # A group of four GPUs has its rate per GPU; two such groups fill eight GPUs.
    groups = msgspec.structs.replace(flat("scaling.4", 100, gpus=2), per=4)
    assert scored(made_run(groups, gpus=8)).machine_speed == pytest.approx(800)


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
