"""The score block: score, PASS or FAIL, what is missing, and all that must stand beside a score."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import PurePath

from rich.table import Table
from rich.text import Text

from benchsuite.records import Code
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.workload import overlap_words
from benchsuite.report.show.format import NONE, bounds, count, number, one_line, percent, ratio
from benchsuite.report.show.tables import plain
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.score import FAILURE_LIMIT, Score
from benchsuite.telemetry import STOLEN_LIMIT

Line = tuple[str, str | Text]
_VERDICTS = {"PASS": "green", "FAIL": "red", "UNFINISHED": "yellow"}


def headline(summary: Summary) -> str:
    """Profile, machine, repeats and date in one line."""
    repeats = len({repeat.repeat for job in summary.jobs for repeat in job.repeats})
    profile = f"profile {summary.profile.name}" if summary.profile else "profile unknown"
    going_on = "in progress" if summary.in_progress else ""
    parts = [profile, _machine(summary), count(repeats, "repeat") if repeats else "", _date(summary), going_on]
    return " | ".join(part for part in parts if part)


def provenance(summary: Summary) -> str:
    """Where a baseline's figures come from."""
    going_on = "its run is still in progress" if summary.in_progress else ""
    parts = [summary.source, _machine(summary), _date(summary), going_on, summary.provenance]
    return "; ".join(one_line(part, 400) for part in parts if part)


def _date(summary: Summary) -> str:
    """To the minute, where the text is a date at all."""
    created = summary.created or ""
    try:
        return datetime.fromisoformat(created).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return created


def score_block(summary: Summary, score: Score, comparisons: Sequence[Comparison], price: float | None = None) -> Table:
    """Label and value, the verdicts first."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    against = [line for comparison in comparisons for line in _against(comparison, len(comparisons) > 1)]
    verdicts = (*_verdicts(summary, score), *_priced(score, price), *against)
    for label, value in (*verdicts, ("", ""), *_beside(summary, score)):
        table.add_row(label, plain(value))
    return table


def _verdicts(summary: Summary, score: Score) -> Iterator[Line]:
    figures = [number(score.value), number(score.machine), percent(score.failure_rate)]
    width = max(len(figure) for figure in figures)
    value, machine, rate = (Text(figure.rjust(width), style="bold") for figure in figures)
    for word, applies in (("INCOMPLETE", score.incomplete), ("PROVISIONAL", score.value and score.provisional)):
        if applies:
            value.append(f"   {word}", style="bold yellow")
    if score.interval:
        low, high = number(score.interval.low), number(score.interval.high)
        plain = f"without the variance penalty {number(score.unpenalized)}, " if score.penalized else ""
        value.append(f"   {plain}95 %: {low} to {high} (±{percent(score.interval.half)})", style="not bold")
    if score.reason:
        value.append(f"   no score: {score.reason}")
    yield "Score", value
    if summary.gpus_used or any(repeat.tasks > 1 for job in summary.jobs for repeat in job.repeats):
        on = count(summary.gpus_used, "GPU") if summary.gpus_used else "no GPU"
        yield (
            "Machine score",
            machine.append(f"   throughputs of all tasks of a wave added up ({on})", style="not bold"),
        )
    rate.append(f"   {score.verdict}", style=f"bold {_VERDICTS[score.verdict]}")
    yield "Failure rate", rate.append(f"   {_failures(score)}", style="not bold")
    yield from _reservations(score)
    unlike = [
        f"{job.name} ({'; '.join(one_line(change, 80) for change in job.unlike)})" for job in summary.jobs if job.unlike
    ]
    if unlike:
        yield (
            "Unlike tasks",
            Text(f"{', '.join(unlike)}: a mean over different work; report them apart", style="yellow"),
        )


def _priced(score: Score, price: float | None) -> Iterator[Line]:
    """What a unit of score costs: the lower, the better."""
    if price is None:
        return
    for what, value in (("score", score.value), ("machine score", score.machine)):
        beside = f"   {number(price)} / {number(value)} (less is better)" if value else f"   no {what}"
        figure = Text(number(price / value if value else None), style="bold")
        yield f"Price / {what}", figure.append(beside, style="not bold")


def _failures(score: Score) -> str:
    if score.in_progress:
        return f"so far ({score.ended:,} of {score.n:,} ended): {score.fail:,} not ok"
    return f"{score.fail:,} of {count(score.n, 'task')} not ok; up to {percent(FAILURE_LIMIT, 0)} passes"


def _reservations(score: Score) -> Iterator[Line]:
    """Why a score is INCOMPLETE or PROVISIONAL."""
    if score.incomplete:
        covered = "" if score.coverage is None else f"covers {_floor_percent(score.coverage)} of the weight; "
        yield "Incomplete", Text(covered + "; ".join(score.incomplete), style="yellow")
    if score.value and score.provisional:
        found = count(score.repeats, "repeat") if score.repeats else "no repeat"
        remedy = f"an interval needs {MIN_REPEATS}: measure with jobs --repeat {MIN_REPEATS}"
        yield "Provisional", Text(f"{found} with a figure for every scored job; {remedy}", style="yellow")


def _floor_percent(share: float) -> str:
    """Never "100 %" of a part."""
    return f"{math.floor(100 * share + 1e-9)} %"


def _against(comparison: Comparison, named: bool) -> Iterator[Line]:
    """The score ratio with its verdict; `named`: which base it is of, where there are several."""
    against = f" against {one_line(comparison.name)}" if named else ""
    if comparison.ratio is None:
        same = "the same workload and " if comparison.different else ""
        yield "Against base", f"no ratio{against}: no weighed job has {same}a throughput on both sides"
        return
    verdict = comparison.verdict
    value = Text(ratio(comparison.ratio), style="bold")
    jobs = count(len(comparison.scored), "common job")
    value.append(f"  {against}" if named else "", "not bold")
    value.append(f"   {number(comparison.score)} / {number(comparison.base_score)}, over {jobs}", style="not bold")
    without = ratio(comparison.unpenalized) != ratio(comparison.ratio)
    if without:
        value.append(f"; {ratio(comparison.unpenalized)} without the variance penalty", style="not bold")
    if left_out := (*comparison.different, *comparison.left_out):
        value.append(f"; left out: {', '.join(left_out)}", style="yellow")
    if forced := [job.name for job in comparison.jobs if job.forced and job.name in comparison.scored]:
        value.append(f"; not the same workload: {', '.join(forced)}", style="yellow")
    yield "Score ratio", value
    said = Text(verdict.words or NONE, style="bold")
    if verdict.reason:
        said.append(f"   {verdict.reason}", style="not bold")
    elif not verdict.identical:
        of = " without the penalty" if without else ""
        said.append(
            f"   95 %: {bounds(verdict.low, verdict.high)}{of}, margin {percent(comparison.margin)}", "not bold"
        )
    yield "Verdict", said


def _beside(summary: Summary, score: Score) -> Iterator[Line]:
    if not score.penalized:
        yield "Variance", "not penalized: perf_adj = perf x (1 - fail/n), on both sides of a comparison"
    if summary.provenance:
        yield "Provenance", one_line(summary.provenance, 400)
    yield "Profile", _profile(summary)
    yield "Weights", _weights(score)
    if score.weighing.unweighted:
        yield "Without weight", ", ".join(score.weighing.unweighted)
    if score.weighing.beyond:
        yield "Do not apply", f"{', '.join(score.weighing.beyond)} (the machine has fewer GPUs)"
    yield "Machine", _machine(summary) or NONE
    present = "an unknown number" if summary.gpus_present is None else str(summary.gpus_present)
    yield "GPUs", f"{summary.gpus_used} used of {present} present"
    yield "Isolation", _tally(summary.isolation)
    none = "not recorded" if summary.provenance else "no wave has two tasks"
    yield "Overlap", overlap_words(summary.overlap) if summary.overlap is not None else f"{NONE} ({none})"
    if stolen := _stolen(summary):
        yield "Stolen CPU", Text(stolen, style="yellow")
    yield "Data", _tally(summary.data)
    groups = [_group(job) for job in summary.jobs if job.ranks > 1]
    if groups:
        yield "Groups", "; ".join(groups)
    found = [f"{job.name} {job.batch_size:,}" for job in summary.jobs if job.batch_size is not None]
    if found:
        yield "Batch size", f"{', '.join(found)} (the largest that fits)"
    yield "Code", "; ".join(_code(code) for code in summary.code) or NONE
    slices, seconds = sum(job.slices for job in summary.jobs), math.fsum(job.seconds for job in summary.jobs)
    yield "Rests on", f"{count(slices, 'slice')}, {seconds:,.1f} s" if slices else NONE
    if not summary.planned:
        yield "Tasks", _without_plan(summary)


def _stolen(summary: Summary) -> str:
    """Which jobs a hypervisor withheld processor time from, the worst first; empty where it hardly did."""
    shares = [(job.use.cpu_stolen, job.name) for job in summary.jobs if job.use and job.use.cpu_stolen is not None]
    most = [f"{name} {percent(share)}" for share, name in sorted(shares, reverse=True) if share >= STOLEN_LIMIT]
    more = f", and {len(most) - 5} more" if len(most) > 5 else ""
    return f"a hypervisor withheld processor time that jobs wanted: {', '.join(most[:5])}{more}" if most else ""


def _group(job: JobSummary) -> str:
    size = job.batch_each
    batch = f"batch of {size:,} for each of {job.ranks} ranks, {size * job.ranks:,} in all" if size else ""
    return f"{job.name}: {batch or count(job.ranks, 'rank')}{f', over {job.backend}' if job.backend else ''}"


def _without_plan(summary: Summary) -> str:
    unread = f"; {count(len(summary.bad_files), 'file')} could not be used" if summary.bad_files else ""
    return f"no plan.json: n counts the results found, lost tasks are not seen{unread}"


def _profile(summary: Summary) -> str:
    profile = summary.profile
    if profile is None:
        return NONE
    sha256 = f"sha256 {profile.sha256[:12]}" if profile.sha256 else "sha256 unknown"
    if profile.official is None:
        return f"{profile.name}, {sha256}"
    if profile.official:
        return f"{profile.name}, official, {sha256}"
    if not profile.based_on:
        return f"{profile.name}, not a shipped profile, {sha256}"
    shown = [one_line(text, 80) for text in profile.differences[:5]]
    more = [f"and {len(profile.differences) - 5} more"] if len(profile.differences) > 5 else []
    differences = f": {'; '.join(shown + more)}" if shown else ""
    return f"{profile.name}, MODIFIED from {profile.based_on}, {sha256}{differences}"


def _weights(score: Score) -> str:
    weights = score.weighing.weights
    if weights.values is None:
        return "every job weighs 1 (no weights are shipped for this profile)"
    kind = "official" if weights.official else "not the shipped weights of this profile"
    return f"{PurePath(weights.name or '').name}, {kind}, sha256 {(weights.sha256 or '')[:12]}"


def _machine(summary: Summary) -> str:
    machine = summary.machine
    if machine is None:
        hosts = sorted({task.host for job in summary.jobs for task in job.tasks if task.host})
        return ", ".join(hosts)
    models = Counter(gpu.name for gpu in machine.gpus)
    gpus = ", ".join(f"{number_of} x {name}" for name, number_of in models.items()) or "no GPU"
    driver = f", driver {machine.driver}" if machine.driver else ""
    return f"{machine.host}: {gpus}{driver}"


def _tally(settings: dict[str, int]) -> str:
    lines: Iterable[str] = (one_line(setting) for setting in settings)
    if len(settings) == 1:
        return next(iter(lines))
    found = (f"{line} [{count(tasks, 'task')}]" for line, tasks in zip(lines, settings.values(), strict=True))
    return "; ".join(found) or NONE


def _code(code: Code) -> str:
    commit = f" at {code.commit[:12]}" if code.commit else ""
    return f"benchsuite {code.version}{commit}{', with uncommitted changes' if code.dirty else ''}"
