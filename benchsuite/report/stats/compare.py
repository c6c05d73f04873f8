"""A run beside a base: the ratio and verdict of each job, the ratio over the suite, and the failures of both.

A ratio above 1 means that the run is faster than the base. Ratios are of speeds: means over ok tasks, without the
score's penalties. Failures are compared by tests of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchsuite import files
from benchsuite.report.milarun import suite
from benchsuite.report.read.summary import JobSummary, ProfileRef, Summary
from benchsuite.report.sources import run_names, summary_of
from benchsuite.report.stats.differences import Differences, differences
from benchsuite.report.stats.failures import FailureTest, compare_failures
from benchsuite.report.stats.overall import Overall, base_score, common_suite, overall, sides
from benchsuite.report.stats.planning import Power, power
from benchsuite.report.stats.ratios import JobRatio, in_todays_unit, job_ratio, side, without_figure
from benchsuite.report.stats.score import Score
from benchsuite.report.stats.sessions import together
from benchsuite.report.stats.setting_ratios import SettingRatio, setting_key, setting_ratios, setting_sides
from benchsuite.report.stats.settings import other_machine
from benchsuite.report.stats.subscores import GroupRatio, group_ratios, sub_scores
from benchsuite.report.stats.verdict import MARGIN, Verdict, judge
from benchsuite.report.stats.weights import Weighing
from benchsuite.report.stats.welch import Side

_ALL = "all jobs"
_Jobs = Mapping[str, JobSummary]


@dataclass(frozen=True)
class Comparison:
    """A run beside a base.

    Attributes:
        name: of the base, as the user gave it.
        different: the jobs, weighed or not, that train something else on the other side.
        overall: the ratios over the common suite.
        base_score: of the base, by the weights of this run.
        groups: the ratio of each of this run's sub-scores.
        settings: the ratio of each setting in which jobs differ on the same machine.
        failures: of the tasks of all comparable jobs together.
        power: of the tests of single jobs; None if no job is tested.
        margin: the largest relative difference that counts as the same.
    """

    base: Summary
    name: str
    jobs: tuple[JobRatio, ...]
    only_here: tuple[str, ...]
    only_base: tuple[str, ...]
    different: tuple[str, ...]
    overall: Overall
    base_score: Score
    groups: tuple[GroupRatio, ...]
    settings: tuple[SettingRatio, ...]
    failures: FailureTest
    power: Power | None
    margin: float
    differences: Differences

    @property
    def tested(self) -> int:
        """The number of jobs that share the verdicts' level."""
        return sum(job.verdict.df is not None for job in self.jobs)


def find_base(name: str) -> Summary:
    """The summary of a results folder, a summary file, or a shipped baseline; of several, separated by commas, with
    each run as a session.

    Raises:
        UsageError: a name between commas is empty.
        ProfileError: there is no such file.
        ResultError: it is neither a summary nor a folder with results, or the runs cannot be sessions of one machine.
    """
    names = run_names(name)
    paths = [Path(part) if files.look(Path(part)) else files.find("baselines", part) for part in names]
    return together([summary_of(path) for path in paths], names)


def compare(
    summary: Summary,
    base: Summary,
    weighing: Weighing,
    name: str,
    margin: float = MARGIN,
    unlike: bool = False,
    partial: bool = False,
) -> Comparison:
    """Compare a run with a base.

    Args:
        name: of the base, as the user gave it.
        weighing: the weights matched to `summary`.
        margin: the largest relative difference that counts as the same.
        unlike: compare different workloads too.
        partial: give the ratio over the suite also if it covers only a part of the suite.
    """
    if summary.origin != base.origin:  # two summaries of one program count alike, and stay as published
        summary, base = suite.converted(summary), suite.converted(base)
    here, there = ({job.name: in_todays_unit(job) for job in of.jobs} for of in (summary, base))
    same_profile = _same_lineage(summary.profile, base.profile)
    elsewhere = other_machine(summary, base)
    ratios = [
        job_ratio(job, there[name], same_profile, unlike, elsewhere) for name, job in here.items() if name in there
    ]
    common = common_suite(summary, base, ratios, weighing)
    pairs = _pairs(ratios, here, there)
    scores = sides(here, there, common, weighing.jobs)
    identical = {ratio.name for ratio in ratios if _content(here[ratio.name]) == _content(there[ratio.name])}
    if identical.issuperset(common.covered):
        identical |= scores.keys()
    of_settings = setting_sides(ratios, here, there)
    verdicts = judge(
        pairs, margin, identical, {**scores, **{setting_key(key): both for key, both in of_settings.items()}}
    )
    failures = _failures(ratios, here, there)
    jobs = tuple(
        dataclasses.replace(
            ratio,
            verdict=_verdict(ratio, here, there, verdicts),
            failures=failures.get(ratio.name),
        )
        for ratio in ratios
    )
    return Comparison(
        base=base,
        name=name,
        jobs=jobs,
        only_here=tuple(job for job in here if job not in there),
        only_base=tuple(job for job in there if job not in here),
        different=tuple(job.name for job in jobs if job.refused),
        overall=overall(summary, base, common, scores, verdicts, partial),
        base_score=base_score(base, weighing),
        groups=_groups(ratios, here, there, {**weighing.jobs, **weighing.missing}),
        settings=setting_ratios(ratios, of_settings, verdicts),
        failures=_all_failures(failures),
        power=power({name: both for name, both in pairs.items() if name not in identical}),
        margin=margin,
        differences=differences(summary, base),
    )


def _pairs(ratios: Sequence[JobRatio], here: _Jobs, there: _Jobs) -> dict[str, tuple[Side, Side]]:
    """Both sides of each job that has a ratio."""
    names = [ratio.name for ratio in ratios if ratio.ratio is not None and not ratio.excluded]
    return {name: (side(here[name], "this run"), side(there[name], "the baseline")) for name in names}


def _groups(
    ratios: Sequence[JobRatio], here: _Jobs, there: _Jobs, weights: Mapping[str, float]
) -> tuple[GroupRatio, ...]:
    comparable = {ratio.name: there[ratio.name] for ratio in ratios if ratio.comparable and not ratio.difference}
    return group_ratios(sub_scores(here, weights), here, comparable, weights)


def _verdict(ratio: JobRatio, here: _Jobs, there: _Jobs, verdicts: Mapping[str, Verdict]) -> Verdict:
    if not ratio.comparable:
        return ratio.verdict
    missing = without_figure(here[ratio.name], there[ratio.name])
    return missing or verdicts.get(ratio.name, ratio.verdict)


def _failures(ratios: Sequence[JobRatio], here: _Jobs, there: _Jobs) -> dict[str, FailureTest]:
    """The tests of each comparable job; tasks that were never run count on no side."""
    names = [ratio.name for ratio in ratios if ratio.comparable]
    return compare_failures({name: (*_failed(here[name]), *_failed(there[name])) for name in names})


def _failed(job: JobSummary) -> tuple[int, int]:
    """The failed tasks, and the tasks that ended."""
    return job.fail, job.ended


def _all_failures(jobs: Mapping[str, FailureTest]) -> FailureTest:
    counts = [(of.fail, of.n, of.base_fail, of.base_n) for of in jobs.values()]
    fail, n, base_fail, base_n = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0, 0)
    return compare_failures({_ALL: (fail, n, base_fail, base_n)})[_ALL]


def _content(job: JobSummary) -> tuple[object, ...]:
    """The figures that make two jobs identical; fields that an older summary lacks do not count."""
    tasks = [(task.id, task.status, task.items, task.seconds, task.perf) for task in job.tasks]
    what = (job.workload, job.unit_factor, job.n, job.fail, job.perf, job.perf_adj)
    return (*what, [(repeat.repeat, repeat.perf) for repeat in job.repeats], tasks)


def _same_lineage(profile: ProfileRef | None, base: ProfileRef | None) -> bool:
    """Whether two profiles are the same, or changed copies of the same profile."""
    if profile is None or base is None:
        return False
    return (profile.based_on or profile.name) == (base.based_on or base.name)
