"""What stands in place of the score of a run that checks function only: does it work on this machine?"""

from __future__ import annotations

from dataclasses import replace

from benchsuite.report.format import count, few, one_line
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Figure, ScoreBlock, Sentence, Tone, fact, sentence
from benchsuite.report.stats.smoke import NO_SCORE, SmokeCheck, smoke_check

# The number of failing jobs named.
_NAMED = 8
# Facts that belong to a score only.
_OF_A_SCORE = frozenset({"Variance", "Weights", "Without weight", "Do not apply"})


def smoke_lead(summary: Summary) -> tuple[Sentence, ...]:
    """The first line of the report: "Works on this machine: 19 of 19 jobs train."; empty for a run with a score."""
    check = smoke_check(summary)
    if check is None:
        return ()
    label, found, tone = _words(check)
    return (sentence(f"{label}: {found}.", tone, strong=True),)


def smoke_block(summary: Summary, block: ScoreBlock) -> ScoreBlock | None:
    """The block of a run that checks function only; None for a run with a score.

    Args:
        block: the score block of the run, for the facts about the run.
    """
    check = smoke_check(summary)
    if check is None:
        return None
    label, found, tone = _words(check)
    beside = (sentence(_train(check)),) if check.failed else ()
    facts = tuple(of for of in block.facts if of.label not in _OF_A_SCORE)
    own = (Figure(label, Cell(found, tone=tone), beside),)
    return replace(block, title="Check of function", own=own, more=(fact("No score", NO_SCORE),), facts=facts)


def _words(check: SmokeCheck) -> tuple[str, str, Tone]:
    """The outcome, what it rests on, and its tone."""
    if check.failed:
        jobs = (f"{one_line(job.name)} ({fails} of {count(job.n, 'task')})" for job, fails in check.failed)
        return "Fails on this machine", ", ".join(few(jobs, _NAMED)), "bad"
    if check.unfinished:
        return "Unfinished", f"{_train(check)}; not ended: {', '.join(few(_names(check), _NAMED))}", "warn"
    return "Works on this machine", _train(check), "good"


def _names(check: SmokeCheck) -> list[str]:
    return [one_line(job.name) for job in check.unfinished]


def _train(check: SmokeCheck) -> str:
    verb = "trains" if len(check.jobs) == 1 else "train"
    return f"{check.train:,} of {count(len(check.jobs), 'job')} {verb}"
