"""Rates of arrays of which some units stay unfused, beside those of one model alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchsuite.describe import work
from benchsuite.report.measure.intervals import mean
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.stats.sharing import PRECISIONS, SERIAL, way

UNITS = "unfused_units"
# The settings in which rows of one model differ.
_VARIED = frozenset({UNITS, "sharing", "copies", "array", "precision", "compile"})


@dataclass(frozen=True)
class Rate:
    """The rate of one number of units over the repeats, in items/s of all models on a GPU."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """The rates in one precision, compiled or not.

    Attributes:
        rates: number of unfused units -> rate.
        alone: items/s of one model that trains alone in the same way; None if that was not measured.
    """

    precision: str
    compile: str
    rates: Mapping[int, Rate]
    alone: float | None

    @property
    def name(self) -> str:
        """ "fp32", "bf16+default": as a column of the CSV."""
        return self.precision + ("" if self.compile == "none" else f"+{self.compile}")

    @property
    def words(self) -> str:
        """ "fused bf16, default": as a legend names it."""
        return f"fused {self.precision}" + ("" if self.compile == "none" else f", {self.compile}")


@dataclass(frozen=True)
class PartiallyFused:
    """An array with several numbers of unfused units.

    Attributes:
        models: in the array.
        base: items/s of one model alone and eager; None if that was not measured.
        precision: of `base`: fp32 if it was measured.
        lost: cells without a rate, with their status.
    """

    name: str
    unit: str
    models: int
    curves: Sequence[Curve]
    base: float | None
    precision: str
    lost: Sequence[str]

    def up(self, rate: float) -> float:
        """A rate over `base`, which there must be."""
        assert self.base
        return rate / self.base


def partially_fused(summary: Summary) -> list[PartiallyFused]:
    """The arrays that have rates with and without unfused units, or with several numbers of them."""
    arrays: dict[tuple[str, int], list[JobSummary]] = defaultdict(list)
    singles: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for job in summary.jobs:
        if not job.settings or job.ranks != 1:
            continue
        models = int(job.settings.get("array", 1))
        if models > 1 and UNITS in job.axes:
            arrays[_workload(job), models].append(job)
        elif models == 1 and way(job) == SERIAL and (rate := _rate(job)):
            singles[_workload(job)][_kind(job)] = rate.mean
    made = [_made(jobs, models, singles[workload]) for (workload, models), jobs in arrays.items()]
    return [one for one in made if one.curves]


def _made(jobs: Sequence[JobSummary], models: int, alone: Mapping[tuple[str, str], float]) -> PartiallyFused:
    rates: dict[tuple[str, str], dict[int, Rate]] = defaultdict(dict)
    lost = []
    for job in jobs:
        unfused = int(job.settings.get(UNITS, 0))
        if rate := _rate(job):
            rates[_kind(job)][unfused] = rate
        else:
            statuses = sorted({task.status for task in job.tasks if task.status != "ok"})
            lost.append(f"{_kind(job)[0]} {unfused} ({', '.join(statuses) or 'no rate'})")
    order = sorted(rates, key=lambda kind: (PRECISIONS.index(kind[0]), kind[1]))
    curves = [Curve(*kind, rates[kind], alone.get(kind)) for kind in order]
    eager = {precision: rate for (precision, compiled), rate in alone.items() if compiled == "none"}
    precision = next((one for one in PRECISIONS if one in eager), "fp32")
    unit = next((job.unit for job in jobs if job.unit), "item")
    return PartiallyFused(jobs[0].job, unit, models, curves, eager.get(precision), precision, lost)


def _workload(job: JobSummary) -> str:
    same = {name: value for name, value in work.work(job.settings).items() if name not in _VARIED}
    return json.dumps(same, sort_keys=True, default=str)


def _kind(job: JobSummary) -> tuple[str, str]:
    return str(job.settings.get("precision", "fp32")), str(job.settings.get("compile", "none"))


def _rate(job: JobSummary) -> Rate | None:
    perfs = [one.perf * job.per for one in job.repeats if one.perf is not None]
    middle = mean(perfs)
    return Rate(middle, min(perfs), max(perfs)) if middle else None
