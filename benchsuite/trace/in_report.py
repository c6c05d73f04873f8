"""The recordings of a traced run as sections of a report, one for each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from benchsuite.errors import ResultError
from benchsuite.records import Result
from benchsuite.report.show.document import Part, Section
from benchsuite.rundir import results
from benchsuite.trace.recognise import analysis

_READ = {"timeline": "where its time goes", "memory": "what its memory holds", "ncu": "the use of its cores"}
_TOP = 5


def traced_sections(folder: Path, rows: Collection[str]) -> tuple[Section, ...]:
    """A section for each recording of a job that the report has; of the first repeat, if there are several.

    Args:
        folder: of a traced run.
        rows: the names of the report's jobs.

    Raises:
        ResultError: the folder has no recording of these jobs, or one cannot be read.
    """
    found = tuple(_sections(folder, rows))
    if not found:
        raise ResultError(
            f"{folder}: no recording of the report's jobs ({', '.join(sorted(rows)[:5])}); name a folder that "
            "'benchsuite jobs --profile' or 'benchsuite trace -o' wrote"
        )
    return found


def _sections(folder: Path, rows: Collection[str]) -> Iterator[Section]:
    for _, result in results(folder):
        if not isinstance(result, Result) or result.task.trace is None or result.task.row not in rows:
            continue
        words = _READ.get(result.task.trace.tool) if result.task.gpus and result.task.repeat == 0 else None
        for stream in result.measurement.streams:
            if words and stream.traced:
                rank = f", rank {stream.rank}" if result.task.ranks > 1 else ""
                document = analysis(folder / stream.traced.file, _TOP).document
                parts: list[Part] = [*document.intro]
                parts += (part for section in document.sections for part in section.parts)
                yield Section(f"{result.task.row} on {result.task.device}{rank}: {words}", tuple(parts))
