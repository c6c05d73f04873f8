"""One table of jobs, the worst first: the number, its interval, and the ratio to each baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchsuite.report.format import NONE, count, number, ratio, share
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.document import Cell, Column, Table, Tone, table
from benchsuite.report.show.sections.against import VERDICT_TONES
from benchsuite.report.show.sections.flops import mfu_cell
from benchsuite.report.show.sections.headline import short_names
from benchsuite.report.show.sections.jobs import interval, unit, unsteady
from benchsuite.report.show.sections.limited import NO_LIMIT, limit_cells
from benchsuite.report.show.sections.named_difference import setting_word
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.ratios import JobRatio
from benchsuite.report.stats.smoke import failing, smoke_check

_SLOWER = ("SLOWER", "FAILS")


@dataclass(frozen=True)
class _Judged:
    """A job with its failed tasks, and its ratio to each baseline; None where a baseline lacks the job."""

    job: JobSummary
    fail: int
    ratios: tuple[JobRatio | None, ...]
    margin: float

    @property
    def not_ok(self) -> bool:
        return self.fail > 0

    @property
    def flagged(self) -> bool:
        return self.job.unsteady > 0

    @property
    def slower(self) -> bool:
        """Whether a verdict says so, or a ratio without a verdict lies below the margin."""
        return any(of is not None and _slower(of, self.margin) for of in self.ratios)

    @property
    def rank(self) -> tuple[float, int, float]:
        """The worst job has the lowest rank: the share of failures, then flagged, then the lowest ratio."""
        least = min((of.ratio for of in self.ratios if of and of.ratio is not None), default=1.0)
        return (-self.fail / self.job.n if self.job.n else 0.0, 0 if self.flagged else 1, least)


def worst_table(summary: Summary, comparisons: Sequence[Comparison], rows: int) -> tuple[Table, str]:
    """The `rows` worst jobs, and what the other jobs do not have in common with them; empty without other jobs."""
    ratios = [{ratio.name: ratio for ratio in comparison.jobs} for comparison in comparisons]
    margin = min((comparison.margin for comparison in comparisons), default=0.0)
    judged = sorted(
        (_Judged(job, failing(summary, job), tuple(of.get(job.name) for of in ratios), margin) for job in summary.jobs),
        key=lambda one: one.rank,
    )
    shown = table(_columns(summary, comparisons), judged[:rows], tone=lambda one: "bad" if one.not_ok else "")
    return shown, _rest(judged[rows:], bool(comparisons))


def _rest(others: Sequence[_Judged], compared: bool) -> str:
    if not others:
        return ""
    conditions = {
        "failed": any(one.not_ok for one in others),
        "flagged": any(one.flagged for one in others),
        "slower": any(one.slower for one in others) or not compared,
    }
    absent = [word for word, any_of_them in conditions.items() if not any_of_them]
    none = f", none {' or '.join([', '.join(absent[:-1]), absent[-1]] if absent[1:] else absent)}" if absent else ""
    return f"and {count(len(others), 'more job')}{none}"


def _slower(of: JobRatio, margin: float) -> bool:
    if of.verdict.word is not None:
        return of.verdict.word in _SLOWER
    return of.ratio is not None and of.ratio < 1 - margin


def _columns(summary: Summary, comparisons: Sequence[Comparison]) -> Iterator[Column[_Judged]]:
    yield Column("job", lambda one: one.job.name)
    if any(failing(summary, job) for job in summary.jobs):
        yield Column("failed", _failed, right=True)
    if any(job.to_run for job in summary.jobs) or summary.in_progress:
        yield Column("to run", lambda one: one.job.to_run, right=True, rank=1)
    if any(job.unsteady for job in summary.jobs) and not smoke_check(summary):
        yield Column("flagged", lambda one: unsteady(one.job), right=True, rank=2)
    yield Column("number", lambda one: one.job.perf, number, right=True)
    yield Column("unit", lambda one: unit(one.job), rank=4)
    yield Column("MFU %", lambda one: mfu_cell(one.job), right=True, rank=5, optional=True)
    if any(job.interval for job in summary.jobs):
        yield Column("± 95 %", lambda one: interval(one.job), right=True, rank=3)
    else:
        yield Column("std%", lambda one: one.job.std, share, right=True, rank=3, optional=True)
    limits = limit_cells(summary)
    if limits:
        yield Column("limited by", lambda one: limits.get(one.job.name, NO_LIMIT), rank=5)
    for place, name in enumerate(short_names(comparisons)):
        yield Column(f"x {name}", partial(_ratio, place), right=True, rank=1 if place else 0)


def _failed(one: _Judged) -> Cell:
    """The failed tasks among those that have ended."""
    return Cell(f"{one.fail} of {one.job.ended}" if one.fail else "0", one.fail)


def _ratio(place: int, one: _Judged) -> Cell:
    """The ratio with its verdict, or why there is none."""
    of = one.ratios[place]
    if of is None:
        return Cell("not there")
    word = of.verdict.word or ""
    tone: Tone = VERDICT_TONES.get(word, "")
    if of.excluded:
        return Cell("excluded")
    if of.refused:
        return Cell("other work")
    if of.ratio is None:
        return Cell(word or NONE, tone=tone)
    return Cell(f"{ratio(of.ratio)} {word}".rstrip() + setting_word(of), of.ratio, tone)
