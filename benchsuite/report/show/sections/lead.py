"""The first lines of a report: whether the run has a score, and how it stands to each base."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Sentence, Span, Tone
from benchsuite.report.show.format import bounds, count, few, number, one_line, percent, ratio
from benchsuite.report.show.sections.against import VERDICT_TONES, covered, withheld_words
from benchsuite.report.show.sections.failures import failed, never_label, never_words
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.overall import Overall
from benchsuite.report.stats.score import Score
from benchsuite.report.stats.verdict import MOST_REPEATS, Verdict

_TONES: dict[str, Tone] = {"PASS": "good", "FAIL": "bad", "UNFINISHED": "warn"}
_NAMED = 4


def lead(summary: Summary, score: Score, comparisons: Sequence[Comparison]) -> Iterator[Sentence]:
    """The verdict on the run, then one sentence for each base."""
    yield _own(summary, score)
    for comparison in comparisons:
        yield _against(comparison)


def _own(summary: Summary, score: Score) -> Sentence:
    spans = [Span(score.verdict, _TONES[score.verdict], strong=True)]
    if score.reason:
        but = ", but no score" if score.verdict == "PASS" else ", no score"
        reasons = "; ".join(few(score.incomplete or (score.reason,), _NAMED))
        spans.append(Span(f"{but}: {reasons}.", "warn", strong=True))
        spans += [Span(f" {_failures(summary, score)}.")] if score.ended else []
    else:
        around = f" (±{percent(score.interval.half)})" if score.interval else ""
        given = f"score {number(score.value)}{_part(score)}, speed {number(score.speed)}{around}"
        spans.append(Span(f": {given}; {_failures(summary, score)}."))
    # A job without any ok task is a reason for no score, and named as such.
    never = [one for one in score.never if one.others_ok or not score.weighing.jobs.get(one.job)]
    if never:
        places = "; ".join(few(never_words(never, summary), _NAMED))
        spans.append(Span(f" {never_label(score)}: {places}.", "bad", strong=True))
    return Sentence(tuple(spans))


def _part(score: Score) -> str:
    if not score.partial:
        return ""
    return f" over {score.scored} of {count(score.weighed, 'job')} only ({'; '.join(few(score.incomplete, _NAMED))})"


def _failures(summary: Summary, score: Score) -> str:
    """The number of failed tasks, and the jobs that fail in some of their tasks."""
    never = {one.job for one in score.never}
    some = [job for job in summary.jobs if failed(job) and job.perf is not None and job.name not in never]
    names = ", ".join(few((f"{one_line(job.name)} {failed(job)} of {job.n}" for job in some), _NAMED))
    return f"{score.fail:,} of {count(score.ended, 'task')} not ok{f' ({names})' if names else ''}"


def _against(comparison: Comparison) -> Sentence:
    found, name = comparison.overall, one_line(comparison.name)
    if found.per_gpu is None:
        spans = [Span(f"No ratio to {name}: {withheld_words(found, brief=True)}.", "warn", strong=True)]
    else:
        part = _covered(comparison)
        spans = [Span(f"Against {name}: {_ratios(found)}{part}.", "warn" if part else "")]
        spans += _verdicts(found)
        if comparison.base_score.verdict == "FAIL":
            base = comparison.base_score
            spans.append(Span(f" The base FAILs: {base.fail:,} of its {count(base.n, 'task')} not ok.", "bad"))
    fails = [one_line(job.name) for job in comparison.jobs if job.verdict.word == "FAILS"]
    if fails:
        spans.append(Span(f" FAILS here and not in the base: {', '.join(few(fails, _NAMED))}.", "bad", strong=True))
    return Sentence(tuple(spans))


def _ratios(found: Overall) -> str:
    assert found.per_gpu
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


def _verdicts(found: Overall) -> Iterator[Span]:
    """The verdicts on both ratios, or why there are none."""
    assert found.per_gpu
    own, machine = found.per_gpu.verdict, found.machine.verdict if found.machine else None
    if own.word is None:
        yield from [Span(f" No verdict: {own.reason}.", "warn")] if own.reason else []
    elif machine is None or _words(own) == _words(machine):
        yield Span(f" {'Per GPU' if machine is None else 'Both'} {_words(own)}.", VERDICT_TONES[own.word])
    else:
        yield Span(f" Per GPU {_words(own)},", VERDICT_TONES[own.word])
        yield Span(f" whole machine {_words(machine)}.", VERDICT_TONES.get(machine.word or "", ""))


def _words(verdict: Verdict) -> str:
    """ "SLOWER (95 %: 0.800 to 0.880)"."""
    if verdict.identical:
        return "SAME (identical content)"
    more = ""
    if verdict.word == "AMBIGUOUS":
        repeats = f"{verdict.decides:,}" if verdict.decides else f"over {MOST_REPEATS:,}"
        more = f"; {repeats} repeats would decide"
    return f"{verdict.word} (95 %: {bounds(verdict.low, verdict.high)}{more})"
