"""The score block: score, PASS or FAIL, reservations, and the facts that belong to every score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.workload import overlap_words
from benchsuite.report.show.document import Cell, Fact, Figure, ScoreBlock, Sentence, Span, Tone, fact, sentence
from benchsuite.report.show.format import NONE, bounds, count, few, number, one_line, percent, ratio
from benchsuite.report.show.sections.origin import machine
from benchsuite.report.show.sections.sessions import session_facts
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.score import FAILURE_LIMIT, Score
from benchsuite.telemetry import STOLEN_LIMIT

_TONES: dict[str, Tone] = {"PASS": "good", "FAIL": "bad", "UNFINISHED": "warn"}


def score_block(
    summary: Summary, score: Score, comparisons: Sequence[Comparison] = (), price: float | None = None
) -> ScoreBlock:
    """The block of a run with jobs; `price` is that of the machine."""
    against = (entry for comparison in comparisons for entry in _against(comparison, len(comparisons) > 1))
    more = (*_reservations(score), *_unlike(summary), *_priced(score, price), *against)
    return ScoreBlock(tuple(_own(summary, score)), more, tuple(_facts(summary, score)))


def _own(summary: Summary, score: Score) -> Iterator[Figure]:
    words = (("INCOMPLETE", score.incomplete), ("PROVISIONAL", score.value and score.provisional))
    beside = [sentence(word, "warn", strong=True) for word, applies in words if applies]
    if score.interval:
        low, high = number(score.interval.low), number(score.interval.high)
        plain = f"without the variance penalty {number(score.unpenalized)}, " if score.penalized else ""
        beside.append(sentence(f"{plain}95 %: {low} to {high} (±{percent(score.interval.half)})"))
    if score.reason:
        beside.append(sentence(f"no score: {score.reason}"))
    yield Figure("Score", Cell(number(score.value), score.value), tuple(beside))
    if summary.gpus_used or any(repeat.tasks > 1 for job in summary.jobs for repeat in job.repeats):
        on = count(summary.gpus_used, "GPU") if summary.gpus_used else "no GPU"
        added = sentence(f"throughputs of all tasks of a wave added up ({on})")
        yield Figure("Machine score", Cell(number(score.machine), score.machine), (added,))
    verdict = sentence(score.verdict, _TONES[score.verdict], strong=True)
    rate = Cell(percent(score.failure_rate), score.failure_rate)
    yield Figure("Failure rate", rate, (verdict, sentence(_failures(score))))


def _failures(score: Score) -> str:
    if score.in_progress:
        return f"so far ({score.ended:,} of {score.n:,} ended): {score.fail:,} not ok"
    return f"{score.fail:,} of {count(score.n, 'task')} not ok; up to {percent(FAILURE_LIMIT, 0)} passes"


def _reservations(score: Score) -> Iterator[Fact]:
    """Why a score is INCOMPLETE or PROVISIONAL."""
    if score.incomplete:
        # Rounded down: a part is never "100 %".
        part = "" if score.coverage is None else f"{math.floor(100 * score.coverage + 1e-9)} %"
        covered = f"covers {part} of the weight; " if part else ""
        yield fact("Incomplete", covered + "; ".join(score.incomplete), "warn")
    if score.value and score.provisional:
        found = count(score.repeats, "repeat") if score.repeats else "no repeat"
        remedy = f"an interval needs {MIN_REPEATS}: measure with jobs --repeat {MIN_REPEATS}"
        yield fact("Provisional", f"{found} with a figure for every scored job; {remedy}", "warn")


def _unlike(summary: Summary) -> Iterator[Fact]:
    jobs = [(job.name, "; ".join(one_line(change, 80) for change in job.unlike)) for job in summary.jobs if job.unlike]
    if jobs:
        unlike = ", ".join(f"{name} ({changes})" for name, changes in jobs)
        yield fact("Unlike tasks", f"{unlike}: a mean over different work; report them apart", "warn")


def _priced(score: Score, price: float | None) -> Iterator[Figure]:
    """The cost of a unit of score: the lower, the better."""
    if price is None:
        return
    for what, value in (("score", score.value), ("machine score", score.machine)):
        cost = price / value if value else None
        beside = f"{number(price)} / {number(value)} (less is better)" if value else f"no {what}"
        yield Figure(f"Price / {what}", Cell(number(cost), cost), (sentence(beside),))


def _against(comparison: Comparison, named: bool) -> Iterator[Figure | Fact]:
    """The score ratio with its verdict; `named`: with the base's name, for there are several bases."""
    against = f"against {one_line(comparison.name)}"
    if comparison.ratio is None:
        same = "the same workload and " if comparison.different else ""
        which = f" {against}" if named else ""
        yield fact("Against base", f"no ratio{which}: no weighed job has {same}a throughput on both sides")
        return
    without = ratio(comparison.unpenalized) != ratio(comparison.ratio)
    scores = f"{number(comparison.score)} / {number(comparison.base_score)}"
    penalty = f"; {ratio(comparison.unpenalized)} without the variance penalty" if without else ""
    spans = [Span(f"{scores}, over {count(len(comparison.scored), 'common job')}{penalty}")]
    if left_out := (*comparison.different, *comparison.left_out):
        spans.append(Span(f"; left out: {', '.join(left_out)}", "warn"))
    if forced := [job.name for job in comparison.jobs if job.forced and job.name in comparison.scored]:
        spans.append(Span(f"; not the same workload: {', '.join(forced)}", "warn"))
    beside = (*([sentence(against)] if named else []), Sentence(tuple(spans)))
    yield Figure("Score ratio", Cell(ratio(comparison.ratio), comparison.ratio), beside)
    verdict, of = comparison.verdict, " without the penalty" if without else ""
    interval = f"95 %: {bounds(verdict.low, verdict.high)}{of}, margin {percent(comparison.margin)}"
    basis = verdict.reason or ("" if verdict.identical else interval)
    yield Figure("Verdict", Cell(verdict.words or NONE, verdict.word), (sentence(basis),) if basis else ())


def _facts(summary: Summary, score: Score) -> Iterator[Fact]:
    if not score.penalized:
        yield fact("Variance", "not penalized: perf_adj = perf x (1 - fail/n), on both sides of a comparison")
    if summary.provenance:
        yield fact("Provenance", one_line(summary.provenance, 400))
    yield fact("Profile", _profile(summary))
    yield fact("Weights", _weights(score))
    if score.weighing.unweighted:
        yield fact("Without weight", ", ".join(score.weighing.unweighted))
    if score.weighing.beyond:
        yield fact("Do not apply", f"{', '.join(score.weighing.beyond)} (the machine has fewer GPUs)")
    yield from _machine_facts(summary)
    yield from _work_facts(summary)
    yield fact("Code", "; ".join(code.words for code in summary.code) or NONE)
    slices, seconds = sum(job.slices for job in summary.jobs), math.fsum(job.seconds for job in summary.jobs)
    yield fact("Rests on", f"{count(slices, 'slice')}, {seconds:,.1f} s" if slices else NONE)
    if not summary.planned:
        unread = f"; {count(len(summary.bad_files), 'file')} could not be used" if summary.bad_files else ""
        yield fact("Tasks", f"no plan.json: n counts the results found, lost tasks are not seen{unread}")


def _machine_facts(summary: Summary) -> Iterator[Fact]:
    yield fact("Machine", machine(summary) or NONE)
    present = "an unknown number" if summary.gpus_present is None else str(summary.gpus_present)
    yield fact("GPUs", f"{summary.gpus_used} used of {present} present")
    yield from session_facts(summary)
    yield fact("Isolation", _tally(summary.isolation))
    none = "not recorded" if summary.provenance else "no wave has two tasks"
    yield fact("Overlap", f"{NONE} ({none})" if summary.overlap is None else overlap_words(summary.overlap))
    if stolen := _stolen(summary):
        yield fact("Stolen CPU", stolen, "warn")


def _work_facts(summary: Summary) -> Iterator[Fact]:
    yield fact("Data", _tally(summary.data))
    if groups := [_group(job) for job in summary.jobs if job.ranks > 1]:
        yield fact("Groups", "; ".join(groups))
    if found := [f"{job.name} {job.batch_size:,}" for job in summary.jobs if job.batch_size is not None]:
        yield fact("Batch size", f"{', '.join(found)} (the largest that fits)")


def _stolen(summary: Summary) -> str:
    """The jobs from which a hypervisor withheld processor time, the worst first; empty below `STOLEN_LIMIT`."""
    shares = [(job.use.cpu_stolen, job.name) for job in summary.jobs if job.use and job.use.cpu_stolen is not None]
    most = [f"{name} {percent(share)}" for share, name in sorted(shares, reverse=True) if share >= STOLEN_LIMIT]
    return f"a hypervisor withheld processor time that jobs wanted: {', '.join(few(most, 5))}" if most else ""


def _group(job: JobSummary) -> str:
    size = job.batch_each
    batch = f"batch of {size:,} for each of {job.ranks} ranks, {size * job.ranks:,} in all" if size else ""
    return f"{job.name}: {batch or count(job.ranks, 'rank')}{f', over {job.backend}' if job.backend else ''}"


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
    shown = "; ".join(few((one_line(text, 80) for text in profile.differences), 5))
    differences = f": {shown}" if shown else ""
    return f"{profile.name}, MODIFIED from {profile.based_on}, {sha256}{differences}"


def _weights(score: Score) -> str:
    weights = score.weighing.weights
    if weights.values is None:
        return "every job weighs 1 (no weights are shipped for this profile)"
    kind = "official" if weights.official else "not the shipped weights of this profile"
    return f"{PurePath(weights.name or '').name}, {kind}, sha256 {(weights.sha256 or '')[:12]}"


def _tally(settings: dict[str, int]) -> str:
    """Each setting, with its number of tasks if there are several settings."""
    if len(settings) == 1:
        return one_line(next(iter(settings)))
    return "; ".join(f"{one_line(setting)} [{count(tasks, 'task')}]" for setting, tasks in settings.items()) or NONE
