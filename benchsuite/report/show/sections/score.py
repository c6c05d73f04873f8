"""The score block: score, speed, PASS or FAIL, reservations, price and power, and the ratios to each base."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from benchsuite.describe.budget import BUDGET
from benchsuite.report.format import around, count, few, number, one_line, percent
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Fact, Figure, ScoreBlock, Sentence, Tone, fact, sentence
from benchsuite.report.show.sections.against import against
from benchsuite.report.show.sections.basis import basis
from benchsuite.report.show.sections.failures import never_label, never_words
from benchsuite.report.show.sections.origin import repeats_words
from benchsuite.report.show.sections.power import power_figure
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.power import ScorePerWatt
from benchsuite.report.stats.samples import planned_repeats, too_few_ok
from benchsuite.report.stats.score import FAILURE_LIMIT, Score

_TONES: dict[str, Tone] = {"PASS": "good", "FAIL": "bad", "UNFINISHED": "warn"}
# The number of places named where a job never succeeds.
_NAMED = 8


def score_block(
    summary: Summary,
    score: Score,
    comparisons: Sequence[Comparison] = (),
    price: float | None = None,
    power: ScorePerWatt | None = None,
) -> ScoreBlock:
    """The block of a run with jobs.

    Args:
        price: of the machine.
        power: None unless the user asks for it.
    """
    ratios = (entry for comparison in comparisons for entry in against(comparison, len(comparisons) > 1))
    watts = [power_figure(power)] if power else []
    more = (*_reservations(summary, score), *_unlike(summary), *_priced(score, price), *watts, *ratios)
    return ScoreBlock(tuple(_own(summary, score)), more, tuple(basis(summary, score)))


def _own(summary: Summary, score: Score) -> Iterator[Figure]:
    yield Figure("Score", Cell(number(score.value), score.value), tuple(_beside_score(score)))
    if score.speed is not None:
        yield Figure("Speed", Cell(number(score.speed), score.speed), (sentence(_speed(summary, score)),))
    if score.value and (summary.gpus_used or any(repeat.tasks > 1 for job in summary.jobs for repeat in job.repeats)):
        yield Figure("Machine score", Cell(number(score.machine), score.machine), (sentence(_machine(summary, score)),))
    verdict = sentence(score.verdict, _TONES[score.verdict], strong=True)
    rate = Cell(percent(score.failure_rate), score.failure_rate)
    yield Figure("Failure rate", rate, (verdict, sentence(_failures(score))))


def _beside_score(score: Score) -> Iterator[Sentence]:
    words = (("INCOMPLETE", score.incomplete), ("PROVISIONAL", score.value and score.provisional))
    yield from (sentence(word, "warn", strong=True) for word, applies in words if applies)
    if score.reason:
        yield sentence("no score", "warn")
    elif score.partial:
        yield sentence(_only(score), "warn")
    else:
        penalties = "variance and failures" if score.penalized else "failures"
        yield sentence(f"with its penalties for {penalties}")


def _only(score: Score) -> str:
    return f"over {score.scored} of {count(score.weighed, 'job')} only"


def _machine(summary: Summary, score: Score) -> str:
    if score.machine is None:
        return "needs numbers per repeat, which are not kept; a ratio of machines needs the number of GPUs only"
    gpus = summary.gpus_used
    together = f"all {gpus} GPUs together" if gpus > 1 else "of the one GPU" if gpus else "all tasks at once, no GPU"
    part = f", {_only(score)}" if score.partial else ""
    plain = f"; without penalties {number(score.machine_speed)}" if score.machine_speed else ""
    return f"{together}{part}{plain}"


def _speed(summary: Summary, score: Score) -> str:
    """What the speed is, with its interval or why it has none."""
    what = f"without penalties, ok tasks only{f', {_only(score)}' if score.partial else ''}"
    if score.interval is None:
        return f"{what}; no interval: {_no_interval(summary, score)}"
    low, high = number(score.interval.low), number(score.interval.high)
    over = count(score.interval.repeats, score.interval.of)
    if summary.budget_s is not None and score.interval.of == "repeat":
        over = repeats_words(summary)
    return f"{what}; 95 %: {low} to {high} ({around(score.interval, score.speed)}) over {over}"


def _no_interval(summary: Summary, score: Score) -> str:
    if not any(job.repeats for job in summary.jobs):
        return "no numbers per repeat are kept"
    return f"{count(score.repeats, 'repeat')} of every job, {MIN_REPEATS} are needed"


def _failures(score: Score) -> str:
    if score.unfinished:
        return f"so far ({score.ended:,} of {score.n:,} ended): {score.fail:,} not ok"
    # Below the limit, a place where a job never succeeds is why the run does not pass.
    below = score.failure_rate is not None and score.failure_rate <= FAILURE_LIMIT
    unless = ", if every job succeeds on every GPU" if score.never and below else ""
    return f"{score.fail:,} of {count(score.n, 'task')} not ok; up to {percent(FAILURE_LIMIT, 0)} passes{unless}"


def _reservations(summary: Summary, score: Score) -> Iterator[Fact]:
    """Why a score is INCOMPLETE or PROVISIONAL, and why a run with few failures does not pass."""
    if score.incomplete:
        # Rounded down: a part is never "100 %".
        part = "" if score.coverage is None else f"{math.floor(100 * score.coverage + 1e-9)} %"
        covered = f"; {part} of the weight has numbers" if part else ""
        remedy = "" if score.partial or not score.coverage else "; --partial scores the other jobs"
        yield fact("Incomplete", "; ".join(score.incomplete) + covered + remedy, "warn")
    elif score.reason:
        yield fact("No score", score.reason, "warn")
    if score.never:
        yield fact(never_label(score), "; ".join(few(never_words(score.never, summary), _NAMED)), "bad")
    if score.value and score.provisional and any(job.repeats for job in summary.jobs):
        yield fact("Provisional", _too_few(summary, score), "warn")
    if score.value and score.penalized:
        basis = "the variance penalty grows with the number of GPUs and repeats"
        yield fact("Penalty", f"{basis}: compare scores only between runs of equal numbers, else speeds", "quiet")


def _too_few(summary: Summary, score: Score) -> str:
    """Why the score has no interval; the remedy only if fewer repeats were planned than an interval needs."""
    needed = f"an interval needs {MIN_REPEATS}"
    short = too_few_ok(summary, [name for name, weight in score.weighing.jobs.items() if weight])
    if short and planned_repeats(summary) >= MIN_REPEATS:
        return f"{short}; {needed}"
    # The file of one result has no profile to measure with.
    option = f"--repeat {MIN_REPEATS}" if summary.budget_s is None else f"a higher {BUDGET}"
    remedy = f": measure with jobs {option}" if summary.planned else ""
    found = count(score.repeats, "repeat") if score.repeats else "no repeat"
    return f"{found} with a number for every scored job; {needed}{remedy}"


def _unlike(summary: Summary) -> Iterator[Fact]:
    jobs = [(job.name, "; ".join(one_line(change, 80) for change in job.unlike)) for job in summary.jobs if job.unlike]
    if jobs:
        unlike = ", ".join(f"{name} ({changes})" for name, changes in jobs)
        yield fact("Unlike tasks", f"{unlike}: a mean over different work; report them apart", "warn")


def _no_machine(score: Score) -> str:
    if score.reason or score.partial:
        return "no machine score over all jobs"
    return "a job never succeeds on a GPU" if score.never else "no numbers per repeat are kept"


def _priced(score: Score, price: float | None) -> Iterator[Figure]:
    """The cost of a unit of machine score: the lower, the better."""
    if price is None:
        return
    value = None if score.partial or score.never else score.machine
    cost = price / value if value else None
    beside = f"{number(price)} / {number(value)} (less is better)" if value else f"none: {_no_machine(score)}"
    fails = [sentence("FAIL", "bad", strong=True)] if score.verdict == "FAIL" and cost else []
    yield Figure("Price / machine score", Cell(number(cost), cost), (*fails, sentence(beside)))
