"""Files of a results folder that hold no result."""

from __future__ import annotations

from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Facts, Section, fact
from benchsuite.report.show.format import one_line


def bad_files_section(summary: Summary) -> Section | None:
    """Each file with why it cannot be used; None without any."""
    if not summary.bad_files:
        return None
    title = f"Files that cannot be used ({len(summary.bad_files)}; counted as no task)"
    return Section(title, (Facts(tuple(fact(bad.file, one_line(bad.reason)) for bad in summary.bad_files)),))
