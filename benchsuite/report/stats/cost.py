"""What measuring costs each job, from blocks of steps that are bare and measured in turns."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from benchsuite.costs import MeasuringCost
from benchsuite.records import Result
from benchsuite.report.measure.intervals import log_interval
from benchsuite.report.read.cost import JobCost


def costs(results: Iterable[Result]) -> tuple[JobCost, ...]:
    """The cost of each job whose tasks have measured it; the rounds of all its tasks count alike."""
    found: dict[str, list[MeasuringCost]] = defaultdict(list)
    for result in results:
        for stream in result.measurement.streams:
            if stream.cost and stream.cost.rounds:
                found[result.task.row].append(stream.cost)
    return tuple(_cost(name, of) for name, of in found.items())


def _cost(name: str, tasks: list[MeasuringCost]) -> JobCost:
    rounds = [one for task in tasks for one in task.rounds]
    ratios = [one.measured_s / one.bare_s for one in rounds]
    interval = log_interval(ratios)
    of_cpu = [one.measured_cpu_s / one.bare_cpu_s for one in rounds if one.bare_cpu_s > 0 and one.measured_cpu_s > 0]
    cpu = log_interval(of_cpu)
    return JobCost(
        name=name,
        rounds=len(rounds),
        steps=min(task.steps for task in tasks),
        block_s=round(statistics.fmean(one.bare_s for one in rounds), 6),
        cost=statistics.geometric_mean(ratios) - 1,
        low=interval.low - 1 if interval else None,
        high=interval.high - 1 if interval else None,
        cpu=statistics.geometric_mean(of_cpu) - 1 if of_cpu else None,
        cpu_low=cpu.low - 1 if cpu else None,
        cpu_high=cpu.high - 1 if cpu else None,
    )
