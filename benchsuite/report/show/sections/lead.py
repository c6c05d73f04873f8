"""The first lines of a report: the headline, why there is no score, and the ratios to each baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchsuite.report.format import bounds, count, few, one_line, ratio
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Sentence, Span, sentence
from benchsuite.report.show.sections.against import VERDICT_TONES, covered, withheld_words
from benchsuite.report.show.sections.failures import never_label, never_words
from benchsuite.report.show.sections.flops import mfu_errors
from benchsuite.report.show.sections.headline import headline
from benchsuite.report.show.sections.mixed import mixed_sentences
from benchsuite.report.show.sections.named_difference import only_settings, setting_sentences
from benchsuite.report.show.sections.origin import gpu_trouble
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.overall import Overall
from benchsuite.report.stats.samples import planned_repeats, too_few_ok
from benchsuite.report.stats.score import Score
from benchsuite.report.stats.smoke import smoke_check
from benchsuite.report.stats.systems import measured_by_another
from benchsuite.report.stats.verdict import MOST_REPEATS, Verdict

_NAMED, _TASKS = 4, 2
WITH_REPEATS = f"run both with --repeat {MIN_REPEATS}"


def lead(summary: Summary, score: Score, comparisons: Sequence[Comparison]) -> Iterator[Sentence]:
    """The headline, what it cannot hold about this run, then one line for each baseline."""
    first = headline(summary, score, comparisons)
    yield first
    yield from mixed_sentences(summary)
    if any(job.devices != "none" for job in summary.jobs):
        yield from (sentence(f"GPUs: {one_line(why, 300)}.", "warn") for why in gpu_trouble(summary))
    yield from _unsampled(summary)
    yield from mfu_errors(summary)
    if summary.jobs:
        yield from (one for comparison in comparisons for one in setting_sentences(comparison, first.text))
    if not summary.jobs or smoke_check(summary):
        return
    yield from _own(summary, score, first.text)
    for comparison in comparisons:
        if not only_settings([comparison]):
            yield _against(comparison, summary)


def _unsampled(summary: Summary) -> Iterator[Sentence]:
    """The tasks of which GPUs were not sampled throughout."""
    tasks = [task for job in summary.jobs for task in job.tasks if task.unsampled]
    if tasks:
        named = "; ".join(few((f"{task.id}, {one_line(task.unsampled or '')}" for task in tasks), _TASKS))
        what = "power, clocks and slow-downs are known of the rest only"
        yield sentence(f"GPUs were not sampled throughout in {count(len(tasks), 'task')} ({what}): {named}.", "warn")


def _own(summary: Summary, score: Score, first: str) -> Iterator[Sentence]:
    """Why there is no score, what a part leaves out, and where a job never succeeds, unless the headline says so."""
    reasons = score.blocking or ((score.reason,) if score.reason else ())
    if score.reason and not score.unfinished and not all(reason.lower() in first.lower() for reason in reasons):
        yield sentence(f"No score: {'; '.join(few(reasons, _NAMED))}.", "warn", strong=True)
    if score.partial:
        only = f"{score.scored} of {count(score.weighed, 'job')} only"
        yield sentence(f"The score is over {only}: {'; '.join(few(score.incomplete, _NAMED))}.", "warn")
    # A job without any ok task is a reason for no score, and named as such.
    never = [one for one in score.never if one.others_ok or not score.weighing.jobs.get(one.job)]
    if never:
        places = "; ".join(few(never_words(never, summary), _NAMED))
        yield sentence(f"{never_label(score)}: {places}.", "bad", strong=True)


def _against(comparison: Comparison, summary: Summary) -> Sentence:
    """The ratios to a baseline, the verdicts, and what keeps them from being more."""
    found, name = comparison.overall, one_line(comparison.name)
    if found.per_gpu is None:
        over = " over all jobs" if any(job.ratio for job in comparison.jobs) else ""
        spans = [Span(f"No ratio{over} to {name}: {withheld_words(found, brief=True)}.", "warn", strong=True)]
    else:
        part = _covered(comparison)
        spans = [Span(f"Against {name}: {_ratios(found)}{part}.", "warn" if part else "")]
        spans += _verdicts(found, _short(comparison, summary))
        if comparison.base_score.verdict == "FAIL":
            base = comparison.base_score
            spans.append(Span(f" The baseline FAILs: {base.fail:,} of its {count(base.n, 'task')} not ok.", "bad"))
    if (foreign := measured_by_another(summary, comparison.base, comparison.name)) and found.per_gpu:
        spans.append(Span(f" The ratio is rough: {foreign}.", "warn"))
    fails = [one_line(job.name) for job in comparison.jobs if job.verdict.word == "FAILS"]
    if fails:
        spans.append(Span(f" FAILS here and not in the baseline: {', '.join(few(fails, _NAMED))}.", "bad", strong=True))
    return Sentence(tuple(spans))


def _short(comparison: Comparison, summary: Summary) -> str:
    """The job that lacks ok repeats on a side that planned enough of them; empty if a side planned too few."""
    sides = [(summary, "here"), (comparison.base, "in the baseline")]
    found = [(too_few_ok(of, comparison.overall.jobs), where) for of, where in sides]
    if any(planned_repeats(of) < MIN_REPEATS for of, _ in sides):
        return ""
    return "; ".join(f"{words} {where}" for words, where in found if words)


def _ratios(found: Overall) -> str:
    assert found.per_gpu
    if not any(found.gpus):
        machine = f", whole machine {ratio(found.machine.value)}x" if found.machine else ""
        return f"per task {ratio(found.per_gpu.value)}x{machine}"
    gpus = f"({count(found.gpus[0], 'GPU')} against {found.gpus[1]})"
    if found.machine is None:
        why = f"; no ratio of the machines: {one_line(found.machine_withheld)}" if found.machine_withheld else ""
        return f"per GPU {ratio(found.per_gpu.value)}x, whole machine n/a {gpus}{why}"
    return f"per GPU {ratio(found.per_gpu.value)}x, whole machine {ratio(found.machine.value)}x {gpus}"


def _covered(comparison: Comparison) -> str:
    """What the ratios are over, and why, unless it is the same work as the whole suite."""
    found = comparison.overall
    if not found.withheld and not any(job.forced for job in comparison.jobs):
        return ""
    why = f" ({withheld_words(found, brief=True)})" if found.withheld else ""
    return f", over {covered(comparison)}{why}"


def _verdicts(found: Overall, short: str) -> Iterator[Span]:
    """The verdicts on both ratios, or why there are none.

    Args:
        short: of `too_few_ok`, for both sides.
    """
    assert found.per_gpu
    per = "Per GPU" if any(found.gpus) else "Per task"
    own, machine = found.per_gpu.verdict, found.machine.verdict if found.machine else None
    if own.word is None:
        remedy = f" ({WITH_REPEATS})" if own.reason and own.reason.endswith("needed") else ""
        yield from [Span(f" No verdict: {short or own.reason}{'' if short else remedy}.", "warn")] if own.reason else []
    elif machine is None or _words(own) == _words(machine):
        yield Span(f" {per if machine is None else 'Both'} {_words(own)}.", VERDICT_TONES[own.word])
    else:
        yield Span(f" {per} {_words(own)},", VERDICT_TONES[own.word])
        yield Span(f" whole machine {_words(machine)}.", VERDICT_TONES.get(machine.word or "", ""))


def _words(verdict: Verdict) -> str:
    """ "SLOWER (95 %: 0.800 to 0.880)"."""
    if verdict.identical:
        return "SAME (identical content)"
    more = ""
    if verdict.word == "AMBIGUOUS":
        repeats = f"{verdict.decides:,}" if verdict.decides else f"over {MOST_REPEATS:,}"
        more = f"; {repeats} repeats would decide if the ratio holds"
    return f"{verdict.word} (95 %: {bounds(verdict.low, verdict.high)}{more})"
