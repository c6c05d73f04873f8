"""The jobs of systems side by side: a table of rates for each group of systems that train the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchsuite.report.format import number, one_line
from benchsuite.report.show.document import Column, Section, table
from benchsuite.report.show.systems_row import SystemRow
from benchsuite.report.stats.systems import BENCHSUITE, Group

_LEGEND = "items/s of one task: one GPU or, for jobs on several GPUs, all of them. per GPU: divided by their number."


@dataclass(frozen=True)
class JobRates:
    """A job, and its rate on each system in items/s, None where there is none."""

    name: str
    unit: str
    rates: tuple[float | None, ...]


def job_sections(groups: Sequence[Group], rows: Sequence[SystemRow]) -> Iterator[Section]:
    """A table for each group of at least two systems.

    Args:
        rows: the systems of all groups, in order.
    """
    for place, group in enumerate(groups):
        names = [row.name for row in rows if row.group == place]
        if len(names) > 1:
            columns = [Column[JobRates]("job", lambda job: job.name), Column[JobRates]("unit", lambda job: job.unit)]
            columns += [_column(name, at) for at, name in enumerate(names)]
            of = f" of profile {one_line(group.profile, 60)}" if group.profile else ""
            of += "" if group.program == BENCHSUITE else f", measured by {one_line(group.program, 60)}"
            yield Section(f"Jobs{of}", (table(columns, list(job_rates(group)), _LEGEND),))


def _column(name: str, place: int) -> Column[JobRates]:
    return Column(name, lambda job: job.rates[place], number, right=True)


def job_rates(group: Group) -> Iterator[JobRates]:
    """The jobs of a group in the order in which its systems have them."""
    systems = [{job.name: job for job in system.named.summary.jobs} for system in group.systems]
    for name in dict.fromkeys(name for jobs in systems for name in jobs):
        first = next(jobs[name] for jobs in systems if name in jobs)
        unit = f"{first.unit or 'item'}/s{' per GPU' if first.per > 1 else ''}"
        yield JobRates(one_line(name, 60), unit, tuple(jobs[name].perf if name in jobs else None for jobs in systems))
