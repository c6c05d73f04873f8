"""The conditions under which a report ends with an exit status of its own, each with the reason why it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from benchsuite.report.format import count, few, one_line, ratio
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.sections.against import withheld_words
from benchsuite.report.show.sections.named_difference import only_settings
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.score import Score
from benchsuite.report.stats.smoke import smoke_check

# The number of jobs, and of reasons, that a condition names.
_NAMED = 4


class Judged(Protocol):
    """What the conditions read: of a report, or of one system beside others."""

    @property
    def summary(self) -> Summary: ...
    @property
    def score(self) -> Score: ...
    @property
    def comparisons(self) -> Sequence[Comparison]: ...


def holding(report: Judged, conditions: Iterable[str]) -> list[str]:
    """Those of `conditions` that hold, each as "slower: slower than v100 per GPU (0.84x)"."""
    return [f"{name}: {why}" for name in conditions if (why := reasons(report, name))]


def reasons(judged: Judged, condition: str) -> str:
    """Why one condition holds; empty if it does not."""
    return "; ".join(few(list(_CONDITIONS[condition](judged)), _NAMED))


def _failures(report: Judged) -> Iterator[str]:
    """Any task that ran and failed."""
    jobs = [job for job in report.summary.jobs if job.fail]
    if jobs:
        total = f"{sum(job.fail for job in jobs):,} of {count(report.score.ended, 'task')} failed"
        yield f"{total} ({_named(jobs, lambda job: job.fail)})"


def _flagged(report: Judged) -> Iterator[str]:
    """Any ok task whose window is not steady."""
    jobs = [job for job in report.summary.jobs if job.unsteady]
    if jobs:
        total = f"{count(sum(job.unsteady for job in jobs), 'task')} not steady"
        yield f"{total} ({_named(jobs, lambda job: job.unsteady)})"


def _incomplete(report: Judged) -> Iterator[str]:
    """A weighed job without a number, or tasks that were not run."""
    summary, score = report.summary, report.score
    open_tasks = sum(job.to_run for job in summary.jobs)
    if open_tasks:
        yield f"{count(open_tasks, 'task')} of {score.n:,} not run"
    if smoke_check(summary):
        if summary.left_out:
            yield f"left out by --name or --exclude: {', '.join(few(summary.left_out, _NAMED))}"
    elif score.value is None or score.incomplete:
        yield from score.incomplete or ((score.reason,) if score.reason else ("no score",))


def _slower(report: Judged) -> Iterator[str]:
    """A verdict SLOWER or FAILS, of a ratio or of a job; or no ratio or verdict by which to judge."""
    for comparison in report.comparisons:
        yield from _slower_than(comparison)


def _slower_than(comparison: Comparison) -> Iterator[str]:
    found, name = comparison.overall, one_line(comparison.name)
    for of, where in ((found.machine, "as a machine"), (found.per_gpu, "per GPU")):
        if of and of.verdict.word == "SLOWER":
            yield f"slower than {name} {where} ({ratio(of.value)}x)"
    jobs = [f"{one_line(job.name)} {ratio(job.ratio)}x" for job in comparison.jobs if job.verdict.word == "SLOWER"]
    if jobs:
        yield f"jobs slower than {name}: {', '.join(few(jobs, _NAMED))}"
    fails = [one_line(job.name) for job in comparison.jobs if job.verdict.word == "FAILS"]
    if fails:
        yield f"fails and not in {name}: {', '.join(few(fails, _NAMED))}"
    if only_settings([comparison]):
        settings = [of for of in comparison.settings if of.ratio and of.ratio.verdict.word == "SLOWER"]
        yield from (f"the setting is slower: {of.difference.words} in {name}" for of in settings)
    elif found.per_gpu is None:
        yield f"cannot be judged against {name}: no ratio ({withheld_words(found, brief=True)})"
    elif found.per_gpu.verdict.word is None:
        yield f"cannot be judged against {name}: {found.per_gpu.verdict.reason or 'no verdict'}"


def _named(jobs: Iterable[JobSummary], tasks: Callable[[JobSummary], int]) -> str:
    return ", ".join(few((f"{one_line(job.name)} {tasks(job)} of {job.n}" for job in jobs), _NAMED))


_CONDITIONS: Mapping[str, Callable[[Judged], Iterator[str]]] = {
    "failures": _failures,
    "slower": _slower,
    "incomplete": _incomplete,
    "flagged": _flagged,
}
