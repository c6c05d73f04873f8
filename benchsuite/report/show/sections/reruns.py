"""Reruns beside their originals."""

from __future__ import annotations

from benchsuite.report.read.summary import RerunSummary, Summary
from benchsuite.report.show.document import Column, Section, table
from benchsuite.report.show.format import number, one_line, ratio

_COLUMNS: tuple[Column[RerunSummary], ...] = (
    Column("task", lambda rerun: rerun.task.id),
    Column("device", lambda rerun: rerun.task.device, rank=2),
    Column("perf", lambda rerun: rerun.task.perf, number, right=True),
    Column("original", lambda rerun: rerun.original_perf, number, right=True, rank=1),
    Column("ratio", lambda rerun: _ratio(rerun), ratio, right=True),
    Column("of", lambda rerun: _of(rerun), prose=True),
)


def reruns_section(summary: Summary) -> Section | None:
    """A row a rerun; None without any."""
    return Section("Reruns (in no figure above)", (table(_COLUMNS, summary.reruns),)) if summary.reruns else None


def _ratio(rerun: RerunSummary) -> float | None:
    perf, original = rerun.task.perf, rerun.original_perf
    return perf / original if perf is not None and original else None


def _of(rerun: RerunSummary) -> str:
    """The original, what was changed, and why the rerun is not ok."""
    of = rerun.of if rerun.original_perf is not None else f"{rerun.of} (not here, or not ok)"
    notes = [of, *(one_line(change) for change in rerun.changes)]
    if rerun.task.status != "ok":
        notes.append(f"{rerun.task.status}: {one_line(rerun.task.reason)}")
    return "; ".join(notes)
