"""The ratio of two settings over the jobs that differ in them, and in nothing else, on one machine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchsuite.report.read.summary import JobSummary
from benchsuite.report.stats.overall import Ratio
from benchsuite.report.stats.ratios import JobRatio
from benchsuite.report.stats.samples import LogMean, stalls
from benchsuite.report.stats.score import speed
from benchsuite.report.stats.settings import SettingDifference
from benchsuite.report.stats.verdict import Verdict
from benchsuite.report.stats.welch import Side

_Jobs = Mapping[str, JobSummary]


@dataclass(frozen=True)
class SettingRatio:
    """The speed with one setting over that with the other.

    Attributes:
        jobs: the jobs with this difference. Each counts once: weights are of machines.
        ratio: the geometric mean of their ratios, per task; None for the `reason`.
    """

    difference: SettingDifference
    jobs: tuple[str, ...]
    ratio: Ratio | None
    reason: str | None = None


def setting_key(difference: SettingDifference) -> str:
    """The name of a difference among the scores of `verdict.judge`."""
    return f"setting: {difference.words}"


def setting_sides(ratios: Sequence[JobRatio], here: _Jobs, there: _Jobs) -> dict[SettingDifference, tuple[Side, Side]]:
    """Both speeds over the jobs of each difference, for `verdict.judge`; without those that lack a rate somewhere."""
    found: dict[SettingDifference, tuple[Side, Side]] = {}
    for difference, names in _jobs(ratios).items():
        weights = dict.fromkeys(names, 1.0)
        own, base = ({name: jobs[name] for name in names} for jobs in (here, there))
        if all(job.perf and not stalls(job) for jobs in (own, base) for job in jobs.values()):
            mine, theirs = speed(own, weights), speed(base, weights)
            if mine is not None and theirs is not None:
                found[difference] = (mine, theirs)
    return found


def setting_ratios(
    ratios: Sequence[JobRatio],
    compared: Mapping[SettingDifference, tuple[Side, Side]],
    verdicts: Mapping[str, Verdict],
) -> tuple[SettingRatio, ...]:
    """The ratio of each difference with its verdict, the one of most jobs first.

    Args:
        compared: of `setting_sides`.
        verdicts: by `setting_key`.
    """
    found = []
    for difference, names in sorted(_jobs(ratios).items(), key=lambda one: -len(one[1])):
        sides = compared.get(difference)
        ratio = _ratio(*sides, verdicts[setting_key(difference)]) if sides else None
        lacks = ", ".join(one.name for one in ratios if one.name in names and not one.ratio)
        reason = f"{lacks or 'a job'} has no rate on a side"
        found.append(SettingRatio(difference, names, ratio, None if ratio else reason))
    return tuple(found)


def _jobs(ratios: Sequence[JobRatio]) -> dict[SettingDifference, tuple[str, ...]]:
    found: dict[SettingDifference, list[str]] = defaultdict(list)
    for ratio in ratios:
        if ratio.difference and not ratio.excluded:
            found[ratio.difference].append(ratio.name)
    return {difference: tuple(names) for difference, names in found.items()}


def _ratio(here: Side, base: Side, verdict: Verdict) -> Ratio:
    assert isinstance(here, LogMean)
    assert isinstance(base, LogMean)
    return Ratio(math.exp(here.mean - base.mean), verdict)
