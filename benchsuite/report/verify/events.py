"""The slices in the results against those that the workers reported in `logs/` while they ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchsuite.events import EventReader, SliceClosed, rank_file
from benchsuite.findings import Finding, note
from benchsuite.measurement import Slice
from benchsuite.records import Result
from benchsuite.report.format import count
from benchsuite.report.verify import all_or_bad
from benchsuite.report.verify.evidence import Evidence
from benchsuite.rundir import RunDir


def findings(evidence: Evidence) -> Iterator[Finding]:
    """The measured slices of each stream against the events of its worker, where `logs/` still holds them."""
    troubles, looked, absent = [], 0, 0
    for file, result in evidence.kept:
        for place, stream in enumerate(result.measurement.streams):
            reported = _reported(RunDir(evidence.path), result, place)
            if reported is None:
                absent += 1
                continue
            looked += 1
            kept = [s for s in stream.slices if s.phase == "measure"]
            if kept != (reported if result.status == "ok" else reported[: len(kept)]):
                troubles.append(f"{file.name}: its slices differ from those that its worker reported")
    if absent and not troubles:
        yield note("events", f"{count(absent, 'stream')} without events in logs/; {looked} agree with their events")
    elif looked or troubles:
        yield all_or_bad("events", troubles, f"the slices of {count(looked, 'stream')} agree with the events in logs/")


def _reported(folder: RunDir, result: Result, place: int) -> list[Slice] | None:
    """The measured slices in an event file; None without that file."""
    events = folder.log(result.task, result.identity.attempt, "events.jsonl")
    path = events if result.task.ranks == 1 else Path(rank_file(str(events), result.measurement.streams[place].rank))
    if not path.is_file():
        return None
    slices = (event.slice for event in EventReader(path).new() if isinstance(event, SliceClosed))
    return [one for one in slices if one.phase == "measure"]
