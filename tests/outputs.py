"""For tests of what a report shows: runs, their report and document, its text, and telemetry beside results."""

from __future__ import annotations

import contextlib
import fcntl
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import keep_run
from rich.console import Console

from benchsuite import cli
from benchsuite.host.series import write_series
from benchsuite.records import Result
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Document, Figure, Section, Sentence, Table
from benchsuite.report.show.report import Report, document
from benchsuite.report.show.terminal import render
from benchsuite.report.stats.compare import compare
from benchsuite.report.stats.score import score
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.weights import Weights, weigh
from benchsuite.rundir import LOCK, results, slug
from benchsuite.schema import to_json
from benchsuite.telemetry import DeviceSample, Telemetry, TenantSample


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def summary_for(folder: Path, *results: Result, **more: Any) -> Summary:
    """The summary of a run of these results; `more` as `keep_run` takes it."""
    keep_run(folder / "run", results, **more)
    return summarise(load(folder / "run"))


def report_of(
    summary: Summary, weights: dict[str, float] | None = None, base: Summary | None = None, title: str = "base"
) -> Report:
    """A report under these weights; `title` is its name and that of the base."""
    laid = weigh(Weights(weights, "w.json", "b" * 64), summary)
    comparisons = (compare(summary, base, laid, title),) if base else ()
    return Report(title, summary, score(summary, laid), comparisons)


def document_of(summary: Summary, weights: dict[str, float] | None = None, base: Summary | None = None) -> Document:
    return document(report_of(summary, weights, base))


def section(document: Document, title: str) -> Section:
    """The only section with a title that begins so; "Jobs" is that of the jobs."""
    found = [of for of in (document.jobs, *document.sections) if of and of.title.startswith(title)]
    (only,) = found
    return only


def row(of: Section, name: str) -> dict[str, Cell]:
    """Column -> cell of the only row with this name, in the last table that has one."""
    tables = [part for part in of.parts if isinstance(part, Table)]
    rows = [(table, row) for table in tables for row in table.rows if row[0].text == name]
    table, cells = rows[-1]
    return dict(zip([column.name for column in table.columns], cells, strict=True))


def texts(cells: dict[str, Cell]) -> dict[str, str]:
    return {column: cell.text for column, cell in cells.items()}


def sentences(of: Section) -> list[str]:
    return [part.text for part in of.parts if isinstance(part, Sentence)]


def beside(document: Document, label: str) -> str:
    """What the score block shows under a label: a figure with all beside it, or a fact; empty without such a label."""
    assert document.score
    for entry in (*document.score.own, *document.score.more, *document.score.facts):
        if entry.label == label and isinstance(entry, Figure):
            return " | ".join([entry.value.text, *(sentence.text for sentence in entry.beside)])
        if entry.label == label:
            return entry.sentence.text
    return ""


def drawn(document: Document, width: int) -> str:
    """What a terminal shows, without colour."""
    out = io.StringIO()
    render(document, Console(file=out, width=width, markup=False, emoji=False, highlight=False))
    return out.getvalue()


def text_of(
    summary: Summary,
    weights: dict[str, float] | None = None,
    base: Summary | None = None,
    width: int = 120,
    title: str = "base",
) -> str:
    """A whole report as a terminal shows it."""
    return drawn(document(report_of(summary, weights, base, title)), width)


def unwrapped(text: str) -> str:
    """A text without the line breaks and runs of blanks of a terminal."""
    return " ".join(text.split())


def line_of(text: str, start: str) -> list[str]:
    """The words of the only line that begins so, but for those of the table of phases."""
    phases = text.find("Where the time went ")
    after = text.find("\n\n", text.find("\n  wall time ", phases))
    shown = text if phases < 0 else text[:phases] + text[after:]
    (line,) = (line for line in shown.splitlines() if line.strip().startswith(start))
    return line.split()


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """As while a run is going on in a folder."""
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sample(folder: Path, *, stolen: float = 0.0) -> None:
    """Keep telemetry of each result of a folder, as a run does: 20 samples of each GPU, or of a task on the CPU.

    Args:
        stolen: how many processors' time a hypervisor withholds.
    """
    for file, result in list(results(folder)):
        assert isinstance(result, Result)
        start_s = result.measurement.streams[0].origin_s
        times = [start_s + second for second in range(20)]
        series = f"telemetry/{slug(result.task.id)}.a1.jsonl"
        samples = [
            DeviceSample(
                monotonic_s=at, power_w=300 + at - start_s, sm_clock_mhz=1980, temperature_c=60, gpu_percent=99
            )
            for at in times
        ]
        own = [
            TenantSample(
                monotonic_s=at,
                processes=1,
                cpu_s=at - start_s,
                rss_bytes=2**30,
                cpus_busy_s=at,
                cpus_stolen_s=stolen * at,
            )
            for at in times
        ]
        write_series(folder / series, [(gpu, samples, {}) for gpu in result.task.gpus], own)
        seen = Telemetry(start_s=times[0], end_s=times[-1], every_s=1.0, series=series)
        file.write_bytes(to_json(msgspec.structs.replace(result, telemetry=seen)))
