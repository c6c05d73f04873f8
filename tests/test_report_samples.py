"""Samples: the rate of each repeat, the weighted mean over jobs with its error, and sessions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from made_summaries import FAILED, flat, made_job
from msgspec.structs import replace

from benchsuite.report.measure.intervals import log_interval
from benchsuite.report.stats.samples import Key, LogMean, job_mean, repeat_rates, stalls, weighted_mean


def rates(*logs: float | None) -> dict[Key, float]:
    """Rates by repeat from their logs; None is a repeat without a rate."""
    return {(0, repeat): math.exp(log) for repeat, log in enumerate(logs) if log is not None}


def within(found: LogMean | None) -> LogMean:
    assert found is not None
    return found


# --- the rate of a repeat ---------------------------------------------------------------------------------------------


def test_a_repeat_has_the_mean_rate_of_its_gpus() -> None:
    found = repeat_rates(made_job("a", [100, 102], [110, 112]))
    assert found == {(0, 0): 105, (0, 1): 107}


def test_the_failure_of_a_slow_gpu_does_not_move_the_mean_of_its_repeat() -> None:
    complete = repeat_rates(made_job("a", [100] * 3, [50] * 3))
    one_failed = repeat_rates(made_job("a", [100] * 3, [50, FAILED, 50]))
    assert list(complete.values()) == [75] * 3
    assert list(one_failed.values()) == pytest.approx([75] * 3)


def test_a_filled_rate_is_that_of_its_gpu_and_its_repeat() -> None:
    # Repeat 1 is 10 % slower on the GPU that is ok; the other has half the rate.
    found = repeat_rates(made_job("a", [100, 90, 100], [50, FAILED, 50]))
    assert found[0, 1] == pytest.approx((90 + 45) / 2)


def test_a_failure_does_not_move_the_rate_of_a_job() -> None:
    """The arithmetic mean of ok tasks rises when the slow GPU fails; the mean of the samples stays."""
    job = made_job("a", [100] * 4, [50, FAILED, FAILED, 50])
    assert job.perf is not None
    assert job.perf > 80
    assert within(job_mean(job)).rate == pytest.approx(75)


def test_a_gpu_that_is_never_ok_is_left_out_of_every_repeat() -> None:
    assert list(repeat_rates(made_job("a", [100, 90], [FAILED] * 2)).values()) == [100, 90]


def test_a_repeat_without_an_ok_task_is_no_sample() -> None:
    found = repeat_rates(made_job("a", [100, FAILED, 90], [50, FAILED, 45]))
    assert found == {(0, 0): 75, (0, 2): pytest.approx(67.5)}
    assert repeat_rates(flat("a", FAILED)) == {}


def test_gpus_that_are_never_ok_together_are_not_filled_in() -> None:
    """Nothing says which GPU is faster and which repeat: a filled rate would hide all scatter between repeats."""
    apart = made_job("a", [100, FAILED, FAILED], [FAILED, 80, FAILED], [FAILED, FAILED, 60])
    assert list(repeat_rates(apart).values()) == [100, 80, 60]
    chained = made_job("a", [100, 100, FAILED], [FAILED, 50, 50])
    assert list(repeat_rates(chained).values()) == pytest.approx([75] * 3)


def test_a_rate_of_0_is_a_sample_and_has_no_log() -> None:
    job = made_job("a", [100, 0.0, 100])
    assert list(repeat_rates(job).values()) == [100, 0, 100]
    assert stalls(job)
    assert not stalls(made_job("a", [100, FAILED, 100]))
    assert job_mean(job) is None


def test_a_job_without_rates_of_tasks_has_those_of_its_repeats() -> None:
    whole = made_job("a", [100, FAILED, 90], [50, FAILED, 45])
    assert repeat_rates(replace(whole, tasks=())) == {(0, 0): 75, (0, 2): 67.5}
    without_rates = tuple(replace(task, perf=None) for task in whole.tasks)
    assert repeat_rates(replace(whole, tasks=without_rates)) == {(0, 0): 75, (0, 2): 67.5}


def test_each_session_is_filled_in_by_itself() -> None:
    # The second session finds GPU 1 as fast as GPU 0.
    job = made_job("a", [100] * 4, [50, FAILED, 100, FAILED], sessions=[0, 0, 1, 1])
    assert list(repeat_rates(job).values()) == pytest.approx([75, 75, 100, 100])
    assert list(repeat_rates(job)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


# --- means ------------------------------------------------------------------------------------------------------------


def test_the_mean_of_one_job_is_a_t_interval_on_logs() -> None:
    values = [100.0, 103.0, 99.0, 101.5]
    found = within(job_mean(made_job("a", values)))
    expected = log_interval(values)
    assert expected is not None
    assert found.interval is not None
    assert found.rate == pytest.approx(statistics.geometric_mean(values))
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high))
    assert found.interval.half == pytest.approx(expected.half)
    assert (found.df, found.n, found.of) == (3, 4, "repeat")


def test_a_weighted_mean_of_complete_jobs_is_the_t_interval_of_the_repeats_means() -> None:
    a, b = [-0.04, 0.01, 0.03], [0.02, 0.0, 0.01]
    found = within(weighted_mean({"a": rates(*a), "b": rates(*b)}, {"a": 1.0, "b": 3.0}))
    means = [(x + 3 * y) / 4 for x, y in zip(a, b, strict=True)]
    assert found.mean == pytest.approx(np.mean(means))
    assert found.variance == pytest.approx(np.var(means, ddof=1) / 3)
    assert (found.df, found.n) == (2, 3)


def test_jobs_that_lack_a_repeat_still_count() -> None:
    """By hand: u = (-0.0062201, 0.0028868, 0.0033333), and 3/2 of the sum of squares."""
    found = within(weighted_mean({"a": rates(-0.02, 0, 0.02), "b": rates(0.01, 0.03, None)}, {"a": 1.0, "b": 1.0}))
    assert found.mean == pytest.approx(0.01)
    assert found.variance == pytest.approx(8.72009e-5, rel=1e-5)
    assert found.n == 3


def test_a_job_that_lacks_a_repeat_keeps_its_own_variance() -> None:
    still = rates(0, 0, 0)
    found = within(weighted_mean({"still": still, "b": rates(0.01, None, 0.03)}, {"still": 1.0, "b": 1.0}))
    # A quarter of the variance of b's mean over two repeats.
    assert found.variance == pytest.approx(np.var([0.01, 0.03], ddof=1) / 2 / 4)


@pytest.mark.parametrize(
    ("first", "second", "variance"),
    [
        # What one job gains in a repeat, the other loses.
        ((-0.02, 0, 0.02), (0.02, 0, -0.02), 0.0),
        # Both gain.
        ((-0.02, 0, 0.02), (-0.02, 0, 0.02), 0.0004 / 3),
    ],
)
def test_jobs_that_move_together_are_not_taken_for_independent(
    first: Sequence[float], second: Sequence[float], variance: float
) -> None:
    found = within(weighted_mean({"a": rates(*first), "b": rates(*second)}, {"a": 1.0, "b": 1.0}))
    assert found.variance == pytest.approx(variance, abs=1e-12)


@pytest.mark.parametrize(
    ("jobs", "n"),
    [
        ({"a": rates(0, 0.1)}, 2),
        ({"a": rates(0, 0.1, 0.2), "b": rates(0, None, None)}, 1),
    ],
)
def test_too_few_samples_have_a_mean_without_a_variance(jobs: dict[str, dict[Key, float]], n: int) -> None:
    found = within(weighted_mean(jobs, dict.fromkeys(jobs, 1.0)))
    assert (found.variance, found.interval, found.n) == (None, None, n)
    assert found.rate is not None


def test_no_mean_without_a_rate_or_a_weight() -> None:
    assert weighted_mean({"a": rates(0, 0, 0), "b": {}}, {"a": 1.0, "b": 1.0}) is None
    assert weighted_mean({"a": {(0, 0): 1.0, (0, 1): 0.0}}, {"a": 1.0}) is None
    assert weighted_mean({"a": rates(0, 0, 0)}, {"a": 0.0}) is None


def test_a_scaled_mean_keeps_its_relative_error() -> None:
    found = within(weighted_mean({"a": rates(-0.02, 0, 0.02)}, {"a": 1.0}))
    more = found.scaled(8)
    assert found.interval is not None
    assert more.interval is not None
    assert (more.rate, more.interval.half) == (pytest.approx(8.0), found.interval.half)
    assert more.interval.low == pytest.approx(8 * found.interval.low)


def test_what_overflows_has_no_rate() -> None:
    assert LogMean(301, 0.1, 2, 3).rate is None
    assert LogMean(299, 0.1, 2, 3).interval is None


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_three_sessions_are_the_sample() -> None:
    """Repeats agree within a session, and sessions differ: the interval is that of three samples."""
    values = [100.0, 100.1, 104.0, 104.1, 96.0, 96.1]
    found = within(job_mean(made_job("a", values, sessions=[0, 0, 1, 1, 2, 2])))
    means = [math.log(values[i] * values[i + 1]) / 2 for i in (0, 2, 4)]
    assert (found.of, found.n, found.df) == ("session", 3, 2)
    assert found.mean == pytest.approx(np.mean(means))
    assert found.variance == pytest.approx(np.var(means, ddof=1) / 3)
    assert found.interval is not None
    assert found.interval.of == "session"
    as_repeats = within(job_mean(made_job("a", values))).interval
    assert as_repeats is not None
    assert found.interval.half > 1.5 * as_repeats.half


def test_two_sessions_are_not() -> None:
    found = within(job_mean(made_job("a", [100, 101, 102, 103], sessions=[0, 0, 1, 1])))
    assert (found.of, found.n) == ("repeat", 4)


def test_each_session_counts_once_however_many_repeats_it_has() -> None:
    found = within(job_mean(made_job("a", [100, 100, 100, 100, 50, 200], sessions=[0, 0, 0, 0, 1, 2])))
    assert found.rate == pytest.approx(100)
    found = within(job_mean(made_job("a", [200, 200, 200, 200, 100, 100], sessions=[0, 0, 0, 0, 1, 2])))
    assert found.rate == pytest.approx(200 ** (1 / 3) * 100 ** (2 / 3))
