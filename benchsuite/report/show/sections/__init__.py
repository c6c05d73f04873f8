"""A report's document: one module a subject, each of which knows the words and columns of its section."""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite.report.show.document import Document, Section, sentence
from benchsuite.report.show.report import Report
from benchsuite.report.show.sections.comparison import comparison_section
from benchsuite.report.show.sections.files import bad_files_section
from benchsuite.report.show.sections.gpus import gpus_section
from benchsuite.report.show.sections.jobs import jobs_section
from benchsuite.report.show.sections.origin import headline, progress
from benchsuite.report.show.sections.reruns import reruns_section
from benchsuite.report.show.sections.scaling import scaling_section
from benchsuite.report.show.sections.score import score_block
from benchsuite.report.show.sections.tasks import failures_section, unsteady_section
from benchsuite.report.show.sections.use import slowed_section, use_section


def document(report: Report) -> Document:
    """All that a report shows; sections without content are left out."""
    summary = report.summary
    intro = [headline(summary), *([progress(summary)] if summary.in_progress else [])]
    return Document(
        title=f"Results of {report.title}",
        intro=tuple(sentence(line, "quiet") for line in intro),
        jobs=jobs_section(summary, report.score) if summary.jobs else None,
        sections=tuple(section for section in _sections(report) if section),
        score=score_block(report) if summary.jobs else None,
    )


def _sections(report: Report) -> Iterator[Section | None]:
    summary = report.summary
    yield use_section(summary)
    yield slowed_section(summary)
    yield gpus_section(report.gpus)
    yield scaling_section(summary)
    for comparison in report.comparisons:
        yield comparison_section(comparison, len(summary.jobs))
    yield reruns_section(summary)
    yield failures_section(summary, report.logs)
    yield unsteady_section(summary)
    yield bad_files_section(summary)
