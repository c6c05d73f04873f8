"""The figures of --base: a run folder with its readings, or a summary or shipped baseline, which holds rates only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchsuite.files import look
from benchsuite.health.measured import Measured, figures
from benchsuite.health.rules import Rules
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Summary
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.summarise import summarise


@dataclass(frozen=True)
class Base:
    """The figures of a base by check.

    Attributes:
        name: as the user gives it.
        values: check -> the figures of all its places and repeats.
        workloads: job -> hash of what it trains or measures; None where it is not recorded.
        own: the same of the run that is judged.
        cards: job -> models of the GPUs that ran it, by NVML; empty where they are not recorded.
    """

    name: str
    values: Mapping[str, tuple[float, ...]]
    workloads: Mapping[str, str | None]
    own: Mapping[str, str | None]
    jobs: Mapping[str, str]
    cards: Mapping[str, frozenset[str]]

    def of(self, measured: Measured) -> tuple[tuple[float, ...], str]:
        """The base's figures for a check, and the reason if there are none."""
        job, found = self.jobs[measured.check], self.values.get(measured.check, ())
        if job not in self.workloads and not found:
            return (), f"{self.name} has no job '{job}'"
        names = {gpu.name for row in measured.rows for gpu in row.task.gpus}
        if (others := self.cards.get(job)) and names and not names <= others:
            return (), f"{self.name} ran '{job}' on {' and '.join(sorted(others))}"
        here, there = self.own.get(job), self.workloads.get(job)
        if here and there and here != there:
            return (), f"{self.name} ran '{job}' with other settings"
        return found, "" if found else f"{self.name} keeps no such figure; name the run's folder instead of its summary"


def base_of(name: str, rules: Rules, own: Summary) -> Base:
    """Read a base.

    Args:
        own: the summary of the run that is judged.

    Raises:
        ResultError: it is no run, summary or baseline.
    """
    path = Path(name)
    jobs = {check: rule.job for check, rule in rules.checks.items()}
    if look(path) == "folder" and (path / "run.json").exists():
        loaded = load(path)
        values: dict[str, list[float]] = defaultdict(list)
        for measured in figures(loaded, rules).measured:
            values[measured.check] += measured.values
        summary = summarise(loaded)
    else:
        summary = summary_of(path)
        values = _rates(summary, rules)
    kept = {check: tuple(found) for check, found in values.items()}
    return Base(name, kept, _workloads(summary), _workloads(own), jobs, _cards(summary))


def _rates(summary: Summary, rules: Rules) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for name, check in rules.checks.items():
        for job in summary.jobs if check.reading is None else ():
            if job.job == check.job and job.unit_factor is None:
                rates = [task.perf for task in job.tasks if task.perf is not None]
                rates = rates or [gpu.perf for gpu in job.gpus if gpu.perf is not None]
                found[name] += [rate * check.factor for rate in rates]
    return found


def _cards(summary: Summary) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for job in summary.jobs:
        found[job.job].update(job.gpu_names)
    return {job: frozenset(names) for job, names in found.items()}


def _workloads(summary: Summary) -> dict[str, str | None]:
    return {job.job: job.workload for job in summary.jobs}
