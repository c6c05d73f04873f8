"""What limits each job, with its evidence."""

from __future__ import annotations

from benchsuite.report.format import NONE, one_line
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Fact, Section, sentence
from benchsuite.report.stats.bottlenecks import Bottleneck, bottlenecks


def limited_section(summary: Summary) -> Section | None:
    """One sentence for each job on GPUs; None if the limit of no job is known."""
    found = known(summary)
    facts = tuple(Fact(one.job, sentence(one_line(one.words, 400))) for one in found)
    return Section("What limits each job", (facts,)) if facts else None


def known(summary: Summary) -> list[Bottleneck]:
    """The bottlenecks of a summary; empty if none of them is known."""
    found = bottlenecks(summary)
    return found if any(one.by != "not known" for one in found) else []


def limit_cells(summary: Summary) -> dict[str, Cell]:
    """Job -> the class of its bottleneck, with the evidence as a note; only jobs whose bottleneck is known."""
    return {one.job: Cell(one.by, one.by, note=one.words) for one in bottlenecks(summary) if one.by != "not known"}


NO_LIMIT = Cell(NONE)
