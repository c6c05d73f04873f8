"""The ratio of two runs over their common suite: per GPU and of the whole machines, or why there is none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchsuite.report.format import few
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.stats.failures import never_ok
from benchsuite.report.stats.ratios import JobRatio
from benchsuite.report.stats.samples import LogMean, stalls
from benchsuite.report.stats.score import Score, geometric_mean, machine_factor, score, speed
from benchsuite.report.stats.verdict import Verdict
from benchsuite.report.stats.weights import Weighing, was_left_out, weigh
from benchsuite.report.stats.welch import Side

PER_GPU, MACHINE = "per GPU", "machine"
# The placements at which a task's rate does not depend on the number of GPUs of the machine.
_ALONE = ("each", "none")
UNKNOWN_TASKS = "a side does not state how many tasks run at once"
_NAMED = 4
NOT_COMPARABLE = "no weighed job can be compared"


@dataclass(frozen=True)
class Ratio:
    """A ratio with its verdict."""

    value: float
    verdict: Verdict


@dataclass(frozen=True)
class Overall:
    """The ratio over the common suite.

    Attributes:
        per_gpu: of the speeds of one task on one GPU.
        machine: of the speeds of all GPUs together; None also for the reason `machine_withheld`.
        jobs: the jobs that the ratios cover.
        suite: the number of jobs that they should cover: weighed, on both sides, and not `apart`.
        apart: job -> why it stands apart from the common suite.
        withheld: why there is no ratio, or with `partial`, why it covers only a part.
        gpus: the numbers of GPUs of this run and of the base.
    """

    per_gpu: Ratio | None
    machine: Ratio | None
    jobs: tuple[str, ...]
    suite: int
    apart: dict[str, str]
    withheld: tuple[str, ...]
    gpus: tuple[int, int]
    machine_withheld: str | None = None
    partial: bool = False


@dataclass(frozen=True)
class Suite:
    """The jobs that two runs have in common.

    Attributes:
        members: the weighed jobs that do not stand apart.
        covered: the members with a ratio.
        apart, withheld: as in `Overall`.
    """

    members: tuple[str, ...]
    covered: tuple[str, ...]
    apart: dict[str, str]
    withheld: tuple[str, ...]


def common_suite(summary: Summary, base: Summary, ratios: Sequence[JobRatio], weighing: Weighing) -> Suite:
    """The common suite of two runs.

    Args:
        weighing: the weights matched to `summary`.
    """
    here, there = ({job.name: job for job in of.jobs} for of in (summary, base))
    weighed = [ratio for ratio in ratios if weighing.jobs.get(ratio.name, 0.0) > 0]
    apart = {r.name: why for r in weighed if (why := _apart(r, here[r.name], there[r.name]))}
    apart |= {name: "not in the baseline" for name in here if name not in there and weighing.jobs.get(name, 0.0) > 0}
    members = [ratio for ratio in weighed if ratio.name not in apart]
    stalled = {name for jobs in (here, there) for name, job in jobs.items() if stalls(job)}
    covered = tuple(ratio.name for ratio in members if ratio.ratio and ratio.name not in stalled)
    withheld = tuple(_withheld(summary, base, members, weighing))
    return Suite(tuple(r.name for r in members), covered, apart, withheld if covered else (*withheld, NOT_COMPARABLE))


def _apart(ratio: JobRatio, job: JobSummary, base: JobSummary) -> str | None:
    if ratio.excluded:
        return ratio.excluded
    if ratio.difference:
        return ratio.difference.words
    if job.devices not in _ALONE or base.devices not in _ALONE:
        return "depends on the number of GPUs"
    if job.devices != base.devices:
        return f"placed on {_place(job)} here, on {_place(base)} in the baseline"
    return None


def _place(job: JobSummary) -> str:
    return "each GPU" if job.devices == "each" else "the CPU"


def _withheld(summary: Summary, base: Summary, members: Sequence[JobRatio], weighing: Weighing) -> Iterator[str]:
    yield from (f"this run: {reason}" for reason in score(summary, weighing).blocking)
    yield from (f"the baseline: {reason}" for reason in base_score(base, weighing).blocking)
    if refused := [job for job in members if job.refused]:
        yield f"another workload: {', '.join(few((job.name for job in refused), _NAMED))} ({_remedy(refused)})"


def _remedy(refused: Sequence[JobRatio]) -> str:
    """The settings in which all of these jobs differ, and the option that compares them."""
    them = "it" if len(refused) == 1 else "them"
    common = [field for field in refused[0].fields if all(field in job.fields for job in refused)]
    return "; ".join([*few(common, _NAMED), f"--compare-unlike compares {them}"])


def base_score(base: Summary, weighing: Weighing) -> Score:
    """The score of a base by the weights of a run.

    A job that the base's profile does not have is no gap of the base; a job that --name or --exclude left out is one.
    """
    laid = weigh(weighing.weights, base)
    missing = {name: weight for name, weight in laid.missing.items() if was_left_out(name, base)}
    return score(base, dataclasses.replace(laid, missing=missing))


def sides(
    here: Mapping[str, JobSummary], there: Mapping[str, JobSummary], suite: Suite, weights: Mapping[str, float]
) -> dict[str, tuple[Side, Side]]:
    """The speeds of both sides over the covered jobs, per GPU and of the machines, for `verdict.judge`.

    Where a side keeps no numbers per repeat, both speeds are of perf, as the ratios of single jobs then are.
    """
    own, base = ({name: jobs[name] for name in suite.covered} for jobs in (here, there))
    mine, theirs = speed(own, weights), speed(base, weights)
    if mine is None or theirs is None:
        return {}
    if not (mine.n and theirs.n):
        mine, theirs = _of_perf(mine, own, weights), _of_perf(theirs, base, weights)
    found: dict[str, tuple[Side, Side]] = {PER_GPU: (mine, theirs)}
    factors = [machine_factor((weights[name], job) for name, job in jobs.items()) for jobs in (own, base)]
    if factors[0] and factors[1]:
        found[MACHINE] = (mine.scaled(factors[0]), theirs.scaled(factors[1]))
    return found


def _of_perf(found: LogMean, jobs: Mapping[str, JobSummary], weights: Mapping[str, float]) -> LogMean:
    mean = geometric_mean({name: job.perf or 0.0 for name, job in jobs.items()}, weights)
    return dataclasses.replace(found, mean=math.log(mean)) if mean else found


def overall(
    summary: Summary,
    base: Summary,
    suite: Suite,
    compared: Mapping[str, tuple[Side, Side]],
    verdicts: Mapping[str, Verdict],
    partial: bool,
) -> Overall:
    """The ratios of `sides` with their verdicts; none if they are withheld, unless the user asks for a part.

    Args:
        compared: of `sides`.
    """
    given = bool(compared) and (partial or not suite.withheld)
    lacks = _lacks(summary, base, suite) if MACHINE in compared else UNKNOWN_TASKS
    ratios = {name: _ratio(*compared[name], verdicts[name]) for name in compared} if given else {}
    return Overall(
        per_gpu=ratios.get(PER_GPU),
        machine=None if lacks else ratios.get(MACHINE),
        jobs=suite.covered if given else (),
        suite=len(suite.members),
        apart=suite.apart,
        withheld=suite.withheld,
        gpus=(summary.gpus_used, base.gpus_used),
        machine_withheld=lacks,
        partial=partial and bool(suite.withheld),
    )


def _lacks(summary: Summary, base: Summary, suite: Suite) -> str | None:
    """The covered jobs that never succeed on a GPU of a machine, whose machine then lacks their rate."""
    places = [
        f"{never.job} never succeeds on {never.place} {where}"
        for of, where in ((summary, "here"), (base, "in the baseline"))
        for never in never_ok(of)
        if never.job in suite.covered
    ]
    return "; ".join(few(places, _NAMED)) or None


def _ratio(here: Side, base: Side, verdict: Verdict) -> Ratio:
    assert isinstance(here, LogMean) and isinstance(base, LogMean)
    return Ratio(1.0 if verdict.identical else math.exp(here.mean - base.mean), verdict)
