"""A report in few lines, from which a machine can be decided on: headline, score, failures, and the worst jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchsuite.report.fleet.tournament import tournaments
from benchsuite.report.format import few
from benchsuite.report.show.document import Document, Fact, Part, ScoreBlock, Section, Sentence, sentence
from benchsuite.report.show.fleet.pairs import pairs_section
from benchsuite.report.show.report import Report, document
from benchsuite.report.show.sections.explained import explained_section
from benchsuite.report.show.sections.flops import mfu_legend
from benchsuite.report.show.sections.gpus import gpus_section
from benchsuite.report.show.sections.headline import short_names
from benchsuite.report.show.sections.score import score_block
from benchsuite.report.show.sections.sharing import sharing_section
from benchsuite.report.show.sections.tasks import bad_files_section, failure_facts, flagged_words
from benchsuite.report.show.sections.worst import worst_table
from benchsuite.report.stats.smoke import NO_SCORE, smoke_check

# The lines that a terminal shows without `--full`.
LINES = 40
# The numbers of failures, of files that cannot be used, and of sections that the last line names.
_FAILURES, _FILES, _SECTIONS = 3, 4, 8
# The rows of a table of nodes.
_PAIRED = 8
# What a section holds, where its title says too little.
_NAMES = {
    "Not ok": "each task that is not ok",
    "Flagged": "each flagged task",
    "Models that share a GPU": "every number of models that share a GPU",
}
# Facts of the score block that need more room than they are worth in few lines.
_LEFT_OUT = frozenset({"Penalty"})


def brief(report: Report, rows: int) -> Document:
    """The report with at most `rows` jobs, the worst first, and a last line that says what `--full` adds.

    The only sections are those that the user asks for: a comparison of GPUs, the causes of ratios, recordings, pairs of
    nodes, and models that share a GPU.
    """
    full = document(report)
    if not report.summary.jobs:
        return full
    table, others = worst_table(report.summary, report.comparisons, rows)
    failures = failure_facts(report.summary, report.logs, _FAILURES)
    bad = bad_files_section(report.summary)
    parts: list[Part] = [*([failures] if failures else []), *(_first(bad) if bad else [])]
    parts += [sentence(""), table] if parts else [table]
    parts += [sentence(words, "quiet") for words in (others, _legend(report)) if words]
    return replace(
        full,
        intro=(*full.intro, *([sentence(f"No score: {NO_SCORE}.", "quiet")] if smoke_check(report.summary) else [])),
        jobs=Section("Jobs", tuple(parts)),
        score=_block(report),
        sections=tuple(section for section in _asked_sections(report) if section),
        outro=(_not_shown(report, full, rows),),
    )


def _asked_sections(report: Report) -> Iterator[Section | None]:
    yield from (pairs_section(found, _PAIRED) for found in tournaments(report.summary))
    yield from _explained_sections(report)
    yield gpus_section(report.gpus, True)
    yield from report.traced
    yield sharing_section(report.summary, short=True)


def _explained_sections(report: Report) -> list[Section]:
    comparisons = report.comparisons if report.explain else ()
    return [explained_section(report.summary, comparison) for comparison in comparisons]


def _first(bad: Section) -> Iterator[Part]:
    """The first files that cannot be used, under their number."""
    yield sentence(f"{bad.title}:", "warn")
    for part in bad.parts:
        if isinstance(part, tuple):
            yield part[:_FILES]


def _block(report: Report) -> ScoreBlock | None:
    """The run's own numbers with all warnings; the ratios to baselines stand in the first lines."""
    block = score_block(report.summary, report.score, (), report.price, report.power)
    if smoke_check(report.summary):
        return None
    more = (entry for entry in block.more if not (isinstance(entry, Fact) and entry.label in _LEFT_OUT))
    warned = (of for of in block.facts if any(span.tone == "warn" for span in of.sentence.spans))
    return replace(block, more=(*more, *warned), facts=())


def _legend(report: Report) -> str:
    """The columns that need words."""
    return " ".join(_explained(report))


def _explained(report: Report) -> Iterator[str]:
    jobs = report.summary.jobs
    yield "number: items/s, mean over tasks."
    yield from filter(None, (mfu_legend(report.summary),))
    if any(job.unsteady for job in jobs) and not smoke_check(report.summary):
        yield f"flagged: {flagged_words(report.summary)}."
    if report.comparisons:
        yield "x: this run's speed over the baseline's; a word is a verdict, which needs 3 repeats on both sides."


def _not_shown(report: Report, full: Document, rows: int) -> Sentence:
    hidden = len(report.summary.jobs) - rows
    jobs = [f"{hidden} of {len(report.summary.jobs)} jobs"] if hidden > 0 else []
    names = short_names(report.comparisons)
    compared = [f"differences and intervals against {' and '.join(names)}"] if names else []
    titles = (section.title.partition(" (")[0] for section in full.sections if section.title not in _shown(report))
    own = [_NAMES.get(name, name[:1].lower() + name[1:]) for name in titles if not name.startswith("Against ")]
    parts = few([*jobs, *compared, *own, "what the score rests on"], _SECTIONS)
    return sentence(f"Not shown: {', '.join(parts)}. Run with --full.", "quiet")


def _shown(report: Report) -> set[str]:
    """The titles of the sections that the short form shows, too."""
    sections = (
        *_explained_sections(report),
        gpus_section(report.gpus),
        *report.traced,
        bad_files_section(report.summary),
    )
    return {section.title for section in sections if section}
