"""Machines side by side as a document, as CSV and as JSON; `show.html.systems` makes the page."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchsuite.report.format import NONE, bounds, count, number, one_line, ratio
from benchsuite.report.show.document import Cell, Column, Document, Fact, Section, Sentence, Span, fact, sentence, table
from benchsuite.report.show.escaped import csv_cell, json_text
from benchsuite.report.show.output import Target
from benchsuite.report.show.sections.origin import date_words
from benchsuite.report.show.systems_jobs import job_sections
from benchsuite.report.show.systems_row import SystemRow, system_rows
from benchsuite.report.stats.systems import BENCHSUITE, Group
from benchsuite.schema import SCHEMA
from benchsuite.writing import write_for_user

# The characters of the longest bar on a terminal.
_BAR = 16
TITLE = "Systems"
_LEGEND = (
    "x REF: ratio of speed to the reference, per GPU and of the whole machines, over the common jobs and without "
    "penalties. Scores have penalties for variance and failures. A machine score exists if every job has a number and "
    "succeeds on every GPU. jobs: those with a number. flagged: tasks whose rate is not steady."
)


def systems_document(groups: Sequence[Group], *, for_terminal: bool = True) -> Document:
    """One table for each group of systems, the best first; then how each was measured, its remarks and its command.

    Args:
        for_terminal: draw each machine's ratio as text, and leave out the tables of jobs.
    """
    rows = system_rows(groups)
    longest = max((row.ratio_machine or row.ratio_per_gpu or 0.0 for row in rows), default=0.0) if for_terminal else 0.0
    sections = [
        _section(group, [row for row in rows if row.group == place], longest) for place, group in enumerate(groups)
    ]
    about = Section("How they were measured", (table(_measured_columns(), rows),))
    remarks = tuple(fact(row.name, f"{'; '.join(row.remarks)}.", "warn") for row in rows if row.remarks)
    noted = [Section("Remarks", (remarks,))] if remarks else []
    commands = Section("How to measure each again", (tuple(map(_command, rows)),))
    jobs = [] if for_terminal else list(job_sections(groups, rows))
    return Document(TITLE, tuple(_intro(groups, rows)), None, (*sections, *jobs, *noted, about, commands), None)


def _intro(groups: Sequence[Group], rows: Sequence[SystemRow]) -> Iterator[Sentence]:
    best = rows[0]
    first = [row for row in rows if row.group == 0]
    if best.score_per_gpu is None:
        yield sentence(f"{best.name}: {'; '.join(best.remarks[:1]) or 'no score'}.", "warn", strong=True)
    else:
        score = f"machine score {number(best.machine_score)}" if best.machine_score else "no machine score"
        lead = f"The fastest of {len(first)} that compare: " if len(first) > 1 else ""
        yield Sentence((Span(f"{lead}{_whole(best)}, {score}{_against(best)}.", strong=True),))
    failing = [row.name for row in rows if row.verdict == "FAIL"]
    if failing:
        yield sentence(f"FAIL: {', '.join(failing)}.", "bad", strong=True)
    reference = next(row for row in rows if row.name == row.reference)
    apart = f" Scores of the {len(groups)} tables do not compare with each other." if len(groups) > 1 else ""
    yield sentence(f"Ratios are to {_whole(reference)}, the system named first.{apart}", "quiet")


def _whole(row: SystemRow) -> str:
    return row.machine if row.machine.startswith(row.name) else f"{row.name} ({row.machine})"


def _against(row: SystemRow) -> str:
    if row.name == row.reference or row.ratio_per_gpu is None:
        return ""
    machine = f"{ratio(row.ratio_machine)}x {row.reference} as a machine, " if row.ratio_machine else ""
    return f", {machine}{ratio(row.ratio_per_gpu)}x {'' if machine else f'{row.reference} '}per GPU"


def _section(group: Group, rows: Sequence[SystemRow], longest: float) -> Section:
    profile = f"profile {one_line(group.profile, 60)}" if group.profile else "profile unknown"
    own = "" if group.program == BENCHSUITE else f", measured by {one_line(group.program, 60)}"
    notes = []
    if group.apart:
        notes.append(sentence(f"Apart from the systems above, {one_line(group.apart, 400)}.", "warn"))
    if own:
        notes.append(
            sentence("Another program measured these: a ratio compares machines and programs together.", "warn")
        )
    shown = table(_columns(rows[0].reference, longest), rows, _LEGEND if not rows[0].group else "")
    return Section(f"{profile[0].upper()}{profile[1:]}{own}", (*notes, shown))


def _columns(reference: str, longest: float) -> tuple[Column[SystemRow], ...]:
    columns: list[Column[SystemRow]] = [
        Column("system", lambda row: row.name),
        Column("machine", lambda row: row.machine, rank=5),
        Column(f"x {reference}", lambda row: _times(row, row.ratio_machine), right=True),
        Column("95 %", lambda row: _bounds(row.ratio_machine_low, row.ratio_machine_high), rank=4, optional=True),
        Column("per GPU", lambda row: _times(row, row.ratio_per_gpu), right=True),
        Column("95 % ", lambda row: _bounds(row.ratio_per_gpu_low, row.ratio_per_gpu_high), rank=6, optional=True),
        Column("machine score", lambda row: row.machine_score, number, right=True),
        Column("score/GPU", lambda row: row.score_per_gpu, number, right=True, rank=1),
        Column(
            "price/score", lambda row: Cell(*_given(row.price_per_machine_score)), right=True, rank=1, optional=True
        ),
        Column("jobs", lambda row: _jobs(row), right=True, rank=3),
        Column("failed", lambda row: _failed(row), right=True),
        Column("flagged", lambda row: _flagged(row), right=True, rank=2),
    ]
    if longest:
        columns.append(Column("bar", lambda row: _bar(row, longest), rank=7))
    return tuple(columns)


def _times(row: SystemRow, value: float | None) -> Cell:
    if value is None:
        return Cell(NONE, tone="quiet")
    return Cell("reference" if row.name == row.reference else f"{ratio(value)}x", value)


def _bounds(low: float | None, high: float | None) -> Cell:
    return Cell(bounds(low, high), low)


def _given(value: float | None) -> tuple[str, float | None]:
    return number(value), value


def _jobs(row: SystemRow) -> Cell:
    whole = row.jobs_measured == row.jobs_weighed
    return Cell(f"{row.jobs_measured} of {row.jobs_weighed}", float(row.jobs_measured), "" if whole else "warn")


def _failed(row: SystemRow) -> Cell:
    fail = " FAIL" if row.verdict == "FAIL" else ""
    return Cell(f"{row.failed:,} of {row.tasks:,}{fail}", float(row.failed), "bad" if fail else "")


def _flagged(row: SystemRow) -> Cell:
    if row.flagged is None:
        return Cell(NONE)
    return Cell(f"{row.flagged:,} of {row.tasks - row.failed:,}", float(row.flagged), "warn" if row.flagged else "")


def _bar(row: SystemRow, longest: float) -> Cell:
    value = row.ratio_machine or row.ratio_per_gpu
    return Cell("\N{FULL BLOCK}" * max(1, round(_BAR * value / longest)) if value else "", value)


def _measured_columns() -> tuple[Column[SystemRow], ...]:
    return (
        Column("system", lambda row: row.name),
        Column("machine", lambda row: row.machine),
        Column("GPUs", lambda row: float(row.gpus), lambda gpus: f"{gpus:.0f}", right=True),
        Column("repeats", _samples, rank=1),
        Column("driver", lambda row: Cell(row.driver or NONE), rank=3),
        Column("torch", lambda row: Cell(row.torch or NONE), rank=2),
        Column("measured", lambda row: Cell(date_words(row.created) or NONE), rank=4),
        Column("program", lambda row: row.program, rank=5),
    )


def _samples(row: SystemRow) -> Cell:
    sessions = f" in {count(row.sessions, 'session')}" if row.sessions > 1 else ""
    return Cell(f"{row.repeats}{sessions}" if row.repeats else NONE, row.repeats)


def _command(row: SystemRow) -> Fact:
    if row.command is None:
        return fact(row.name, f"no command is recorded; source: {row.source}")
    more = f"   (the first of {row.sessions} sessions)" if row.sessions > 1 else ""
    return fact(row.name, f"{row.command}{more}")


def to_csv(groups: Sequence[Group]) -> str:
    """One row for each system; remarks are joined by semicolons."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [field.name for field in dataclasses.fields(SystemRow)]
    writer.writerow(names)
    for row in system_rows(groups):
        values = {**dataclasses.asdict(row), "remarks": "; ".join(row.remarks) or None}
        writer.writerow([csv_cell(values[name]) for name in names])
    return out.getvalue()


def to_json(groups: Sequence[Group]) -> str:
    """The rows as JSON, with how the groups differ."""
    about = [{"program": group.program, "profile": group.profile, "apart": group.apart or None} for group in groups]
    return json_text({"schema": SCHEMA, "kind": "systems", "groups": about, "systems": system_rows(groups)})


def written_systems(groups: Sequence[Group], asked: Sequence[Target]) -> Iterator[tuple[Target, str]]:
    """Write each file, and yield each target with its text, also those for standard output.

    Raises:
        OutputError: a file exists or cannot be written.
    """
    for target in asked:
        text = _text(target.kind, groups)
        if not target.to_stdout:
            write_for_user(Path(target.file), text.encode(errors="replace"), f"--{target.kind}")
        yield target, text


def _text(kind: str, groups: Sequence[Group]) -> str:
    """The systems in one format; jinja2 is slow to import, and only the page needs it."""
    if kind == "html":
        from benchsuite.report.show.html.systems import systems_page

        return systems_page(groups)
    if kind == "md":
        from benchsuite.report.show.markdown import markdown

        return markdown(systems_document(groups, for_terminal=False))
    return to_csv(groups) if kind == "csv" else to_json(groups)
