"""What the workers said while they ran, in `logs/`, beside the results that were made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchsuite.events import EventReader, SliceClosed, rank_file
from benchsuite.findings import Finding, note
from benchsuite.measurement import Slice
from benchsuite.records import Result
from benchsuite.report.show.format import count
from benchsuite.report.verify import all_or_bad
from benchsuite.report.verify.evidence import Evidence
from benchsuite.rundir import RunDir

_ABOUT = "events"


def not_as_told(evidence: Evidence) -> Iterator[Finding]:
    """Each result's measured slices against the events of its worker, where `logs/` is still there."""
    folder, troubles, looked, absent = RunDir(evidence.path), [], 0, 0
    for file, result in evidence.kept:
        for place, stream in enumerate(result.measurement.streams):
            said = _said(folder, result, place)
            if said is None:
                absent += 1
                continue
            looked += 1
            kept = [s for s in stream.slices if s.phase == "measure"]
            if kept != (said if result.status == "ok" else said[: len(kept)]):
                troubles.append(f"{file.name}: its slices are not those that its worker told")
    if absent and not troubles:
        yield note(
            _ABOUT, f"{count(absent, 'stream')} without the events in logs/; {looked} have the slices told there"
        )
    elif looked or troubles:
        fine = f"the slices of {count(looked, 'stream')} are those that the workers told in logs/"
        yield all_or_bad(_ABOUT, troubles, fine, "contradiction")


def _said(folder: RunDir, result: Result, place: int) -> list[Slice] | None:
    """The measured slices in an event file; None where there is none."""
    events = folder.log(result.task, result.identity.attempt, "events.jsonl")
    path = events if result.task.ranks == 1 else Path(rank_file(str(events), result.measurement.streams[place].rank))
    if not path.is_file():
        return None
    told = (event.slice for event in EventReader(path).new() if isinstance(event, SliceClosed))
    return [one for one in told if one.phase == "measure"]
