"""The first lines of a report: whether the run has a score, and how it stands to each base."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchsuite.report.show.document import Sentence, Span, Tone, sentence
from benchsuite.report.show.format import bounds, count, few, number, one_line, percent, ratio
from benchsuite.report.show.sections.against import covered
from benchsuite.report.show.sections.score import never_words
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.overall import Overall, Ratio
from benchsuite.report.stats.score import Score

_TONES: dict[str, Tone] = {"PASS": "good", "FAIL": "bad", "UNFINISHED": "warn"}
_NAMED = 4


def lead(score: Score, comparisons: Sequence[Comparison]) -> Iterator[Sentence]:
    """The verdict on the run, then one sentence for each base."""
    yield _own(score)
    for comparison in comparisons:
        yield _against(comparison)


def _own(score: Score) -> Sentence:
    spans = [Span(score.verdict, _TONES[score.verdict], strong=True)]
    if score.reason:
        spans.append(Span(f": no score, for {score.reason}.", "warn", strong=True))
    else:
        only = f" over {score.scored} of {count(score.weighed, 'job')} only ({'; '.join(score.incomplete)})"
        given = (
            f"score {number(score.value)}{only if score.partial else ''}, speed {number(score.speed)}{_around(score)}"
        )
        spans.append(Span(f": {given}; {score.fail:,} of {count(score.ended, 'task')} not ok."))
    if score.never:
        spans.append(Span(f" Never ok: {'; '.join(few(map(never_words, score.never), _NAMED))}.", "bad", strong=True))
    return Sentence(tuple(spans))


def _around(score: Score) -> str:
    return f" (±{percent(score.interval.half)})" if score.interval else ""


def _against(comparison: Comparison) -> Sentence:
    found, name = comparison.overall, one_line(comparison.name)
    failing = [job.name for job in comparison.jobs if job.verdict.word == "FAILS"]
    fails = f" FAILS here and not in the base: {', '.join(few(map(one_line, failing), _NAMED))}." if failing else ""
    if found.per_gpu is None:
        return sentence(f"Against {name}: no ratio, for {'; '.join(found.withheld)}.{fails}", "warn", strong=True)
    ratios = f"per GPU {_words(found.per_gpu)}{_machine(found)}"
    part = "" if len(found.jobs) == found.suite else f", {covered(found)}"
    only = f" ({'; '.join(found.withheld)})" if found.withheld else ""
    spans = [Span(f"Against {name}: {ratios}{part}{only}.", "warn" if found.withheld else "")]
    if fails:
        spans.append(Span(fails, "bad", strong=True))
    return Sentence(tuple(spans))


def _machine(found: Overall) -> str:
    gpus = f"{count(found.gpus[0], 'GPU')} against {found.gpus[1]}"
    return f", whole machine {_words(found.machine)} ({gpus})" if found.machine else f" ({gpus})"


def _words(found: Ratio) -> str:
    """ "0.84x (95 %: 0.80 to 0.88, SLOWER)"."""
    verdict = found.verdict
    around = "" if verdict.low is None or verdict.identical else f"95 %: {bounds(verdict.low, verdict.high)}"
    known = ", ".join(part for part in (around, verdict.words) if part)
    return f"{ratio(found.value)}x{f' ({known})' if known else ''}"
