"""A report in few lines, from which a machine can be decided on: headline, score, failures, and the worst jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchsuite.report.show.document import Document, Fact, Part, ScoreBlock, Section, Sentence, sentence
from benchsuite.report.show.format import few
from benchsuite.report.show.report import Report, document
from benchsuite.report.show.sections.score import score_block
from benchsuite.report.show.sections.tasks import failure_facts
from benchsuite.report.show.sections.worst import worst_table
from benchsuite.report.stats.smoke import NO_SCORE, smoke_check

# The lines that a terminal shows without `--full`.
LINES = 40
# The numbers of failures, and of sections that the last line names.
_FAILURES, _SECTIONS = 3, 8
# Facts of the score block that need more room than they are worth in few lines.
_LEFT_OUT = frozenset({"Penalty"})


def brief(report: Report, rows: int) -> Document:
    """The report with at most `rows` jobs, the worst first, and a last line that says what `--full` adds."""
    full = document(report)
    if not report.summary.jobs:
        return full
    table, others = worst_table(report.summary, report.comparisons, rows)
    failures = failure_facts(report.summary, report.logs, _FAILURES)
    parts: list[Part] = [table]
    if failures:
        parts = [failures, sentence(""), table]
    parts += [sentence(words, "quiet") for words in (others, _legend(report)) if words]
    return replace(
        full,
        intro=(*full.intro, *([sentence(f"No score: {NO_SCORE}.", "quiet")] if smoke_check(report.summary) else [])),
        jobs=Section("Jobs", tuple(parts)),
        score=_block(report),
        sections=(),
        outro=(_not_shown(report, full, rows),),
    )


def _block(report: Report) -> ScoreBlock | None:
    """The figures of the run; the ratios to baselines stand in the first lines."""
    block = score_block(report.summary, report.score, (), report.price, report.power)
    if smoke_check(report.summary):
        return None
    more = (entry for entry in block.more if not (isinstance(entry, Fact) and entry.label in _LEFT_OUT))
    return replace(block, more=tuple(more), facts=())


def _legend(report: Report) -> str:
    """The columns that need words."""
    return " ".join(_explained(report))


def _explained(report: Report) -> Iterator[str]:
    jobs = report.summary.jobs
    yield "number: items/s, mean over tasks."
    if any(job.unsteady for job in jobs):
        yield "flagged: not steady, so the rate is not known to 2 % or does not hold."
    if report.comparisons:
        yield "x: this run's speed over the baseline's; a word is a verdict, which needs 3 repeats on both sides."


def _not_shown(report: Report, full: Document, rows: int) -> Sentence:
    hidden = len(report.summary.jobs) - rows
    jobs = [f"{hidden} of {len(report.summary.jobs)} jobs"] if hidden > 0 else []
    names = [section.title.partition(" (")[0] for section in full.sections]
    named = [name if name.startswith("Against") else name[:1].lower() + name[1:] for name in names]
    parts = few([*jobs, *named, "what the score rests on"], _SECTIONS)
    return sentence(f"Not shown: {', '.join(parts)}. Run with --full.", "quiet")
