"""The option `--budget` of `benchsuite jobs`, and the numbers by which a run with a budget chooses its repeats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchsuite.describe.budget import BUDGET, budget_s, written
from benchsuite.errors import UsageError

if TYPE_CHECKING:
    import click

    from benchsuite.describe.tasks import Plan
    from benchsuite.launch.budget import Budget
    from benchsuite.launch.rounds import Known


def budget_option(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """The seconds of the option's value.

    Raises:
        UsageError: it is no time.
    """
    return None if value is None else budget_s(value)


def check_alone(seconds: float | None, others: Mapping[str, Any]) -> None:
    """Refuse a budget together with one of these options.

    Args:
        others: option -> its value, which is not true if the option is not given.

    Raises:
        UsageError: such an option is given.
    """
    for option, value in others.items():
        if seconds is not None and value:
            raise UsageError(f"{BUDGET}: does not go with {option}; leave out one of them")


def budget_of(seconds: float | None, plan: Plan) -> Budget | None:
    """The budget of a run, which judges its jobs by the functions of the report; None without seconds.

    Raises:
        UsageError: not even one pass over the profile fits.
    """
    from benchsuite.launch.budget import Budget, check_fits

    if seconds is None:
        return None
    check_fits(plan, seconds)
    return Budget(seconds, known_jobs)


def repeats_follow(budget: Budget) -> str:
    """What a dry run says about the repeats."""
    return f"{BUDGET} {written(budget.limit_s)}: once these tasks have run, the run chooses the repeats"


def known_jobs(folder: Path) -> dict[str, Known]:
    """The weight of each job of a run so far, and the logs of its rates, as the report counts them.

    Raises:
        BenchError: the run or the weights cannot be read.
    """
    from benchsuite.launch.rounds import Known
    from benchsuite.report.read.load import load
    from benchsuite.report.stats.samples import repeat_rates
    from benchsuite.report.stats.summarise import summarise
    from benchsuite.report.stats.weights import weigh, weights_for

    summary = summarise(load(folder))
    weights = weigh(weights_for(summary.profile), summary).jobs
    return {
        job.name: Known(
            weights.get(job.name, 0.0), tuple(math.log(rate) for rate in repeat_rates(job).values() if rate > 0), 0, 0.0
        )
        for job in summary.jobs
    }
