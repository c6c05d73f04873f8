"""Power: the chance to find a difference, against scipy's noncentral t and against simulated suites."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy  # which imports its parts on first use: `scipy.stats` takes a second

from benchsuite.report.stats.planning import Power, power
from benchsuite.report.stats.samples import LogMean
from benchsuite.report.stats.verdict import judge
from benchsuite.report.stats.welch import Side


@functools.cache
def side(noise: float, repeats: int) -> LogMean:
    """A mean over repeats whose variance is the median of those that noise of this standard deviation gives."""
    df = repeats - 1.0
    return LogMean(0.0, noise**2 / repeats * float(scipy.stats.chi2.median(df)) / df, df, repeats)


def suite(noises: Sequence[float], repeats: tuple[int, int]) -> dict[str, tuple[Side, Side]]:
    return {f"j{i}": (side(noise, repeats[0]), side(noise, repeats[1])) for i, noise in enumerate(noises)}


def found(noises: Sequence[float], repeats: tuple[int, int], difference: float = 0.03) -> Power:
    of = power(suite(noises, repeats), difference)
    assert of is not None
    return of


@pytest.mark.parametrize(
    ("repeats", "noise", "difference"), [(5, 0.01, 0.03), (10, 0.02, 0.03), (3, 0.01, 0.1), (20, 0.02, 0.01)]
)
def test_power_is_that_of_a_t_test_at_the_familys_first_level(repeats: int, noise: float, difference: float) -> None:
    """Over 2,000 jobs of equal noise the degrees of freedom are nearly those of Student's test."""
    jobs = 2000
    df, error = 2 * (repeats - 1), noise * math.sqrt(2 / repeats)
    expected = scipy.stats.nct.sf(scipy.stats.t.isf(0.025 / jobs, df), df, math.log1p(difference) / error)
    assert found([noise] * jobs, (repeats, repeats), difference).found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("repeats", "noise"), [((3, 3), 0.005), ((5, 5), 0.01), ((4, 10), 0.01)])
def test_power_is_the_share_of_suites_in_which_the_job_is_found(repeats: tuple[int, int], noise: float) -> None:
    rng, jobs, suites = np.random.default_rng(20), 6, 300
    hits, said = 0, []
    for number in range(suites):
        logs = [rng.normal(0, noise, (jobs, n)) for n in repeats]
        logs[0][0] += math.log(1.03)
        sides = [
            [LogMean(row.mean(), row.var(ddof=1) / len(row), len(row) - 1.0, len(row)) for row in of] for of in logs
        ]
        pairs: dict[str, tuple[Side, Side]] = {f"j{i}": both for i, both in enumerate(zip(*sides, strict=True))}
        hits += judge(pairs)["j0"].word == "FASTER"
        if number % 5 == 0:  # it differs little from suite to suite
            of = power(pairs)
            assert of is not None
            said.append(of.found)
    assert np.mean(said) == pytest.approx(hits / suites, abs=0.06)


def test_the_repeats_that_would_do_have_the_power() -> None:
    few = found([0.01] * 18, (3, 3))
    assert few.needed is not None
    assert few.found < 0.2
    assert 3 < few.needed < 20
    assert found([0.01] * 18, (few.needed, few.needed)).found >= 0.8
    assert found([0.01] * 18, (few.needed - 2, few.needed - 2)).found < 0.8
    # With enough repeats, those that there are do.
    assert found([0.001] * 18, (5, 5)).needed == 5


def test_the_difference_is_in_a_job_of_median_noise() -> None:
    of = found([0.001] * 5 + [0.01] * 8 + [0.1] * 5, (5, 7))
    assert of.noise == pytest.approx(0.01)
    assert (of.repeats, of.difference) == ((5, 7), 0.03)


def test_more_noise_has_less_power_and_needs_more_repeats() -> None:
    chances = [found([noise] * 18, (5, 5)) for noise in (0.002, 0.01, 0.03)]
    assert chances[0].found > chances[1].found > chances[2].found
    needed = [of.needed or 0 for of in chances]
    assert needed[0] < needed[1] < needed[2]


def test_power_is_a_number_wherever_scipys_distribution_is_not() -> None:
    """scipy's noncentral t is NaN at some of the largest arguments, which a search over repeats meets."""
    for noise in np.linspace(0.0005, 0.03, 60):
        of = found([noise] * 18, (3, 3))
        assert 0 <= of.found <= 1
        assert of.needed is not None
        assert of.needed < 50


def test_power_has_its_ends() -> None:
    assert found([0.0] * 3, (3, 3)).found == 1.0
    assert found([3.0] * 3, (3, 3)).needed is None
    assert power({}) is None
    untested: dict[str, tuple[Side, Side]] = {"a": (side(0.01, 5), LogMean(0.0, None, 0.0, 2)), "b": ("none", "none")}
    assert power(untested) is None
    # Jobs that are not tested take no part in the family.
    one = suite([0.01], (5, 5))
    assert power({**one, **untested}) == power(one)
