"""What a child tells its parent: one JSON line an event, numbered, flushed to a file of the child's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import msgspec

from benchsuite.describe.tasks import DataFolder, Task
from benchsuite.measurement import Clock, Compiled, GroupUsed, PeakMemory, PrecisionCheck, Slice, WarmUp
from benchsuite.schema import Record


class Assignment(Record, frozen=True, kw_only=True):
    """The file that a worker is started with.

    The parent says `go` and `stop` on `control_fd`, an inherited pipe, or to a group on `control_file`, a FIFO that
    rank 0 reads; without either the worker begins at once.
    `data` is the job's data set, found complete. `hold_limit_s` bounds how long a task that is done trains on for its
    neighbours; 0 where it has none. `probe`: only see whether it fits in memory, measure nothing.
    """

    task: Task
    events: str
    data: DataFolder | None = None
    control_fd: int | None = None
    control_file: str | None = None
    hold_limit_s: float = 0.0
    probe: bool = False


PULSE_BYTES = 8


def rank_file(events: str, rank: int) -> str:
    """The event file of one rank of a group, beside that of the group's launcher."""
    return f"{events.removesuffix('.jsonl')}.{rank}.jsonl"


def pulse_file(events: str) -> str:
    """The heartbeats of a group: a number of 8 bytes for each rank, which grows as it gets on."""
    return f"{events.removesuffix('.jsonl')}.pulse"


def control_file(events: str) -> str:
    """The FIFO on which the parent speaks to a group."""
    return f"{events.removesuffix('.jsonl')}.control"


class Ready(Record, frozen=True, kw_only=True, tag="ready", tag_field="event"):
    """A rank has warmed up. `clock` is that of its host; files written before schema 2 have none."""

    n: int
    at_s: float
    clock: Clock | None = None
    unit: str
    device: str
    data: str
    warm_up: WarmUp
    software: dict[str, str]
    precision: PrecisionCheck | None = None
    group: GroupUsed | None = None
    notes: tuple[str, ...] = ()


class SliceClosed(Record, frozen=True, kw_only=True, tag="slice", tag_field="event"):
    """`last`: with this slice the stop rule is met; `origin_s` is the instant that slices count from."""

    n: int
    origin_s: float
    slice: Slice
    loss: float | None = None
    last: bool = False


class End(Record, frozen=True, kw_only=True, tag="end", tag_field="event"):
    n: int
    at_s: float
    stopped_by: str
    peak_memory: PeakMemory
    compiled: Compiled | None = None


class Raised(Record, frozen=True, kw_only=True, tag="error", tag_field="event"):
    """`of_peers`: the error is that another rank could not be reached, so the cause is elsewhere."""

    n: int
    at_s: float
    kind: str
    message: str
    traceback: str
    oom: bool = False
    of_peers: bool = False


Event: TypeAlias = Ready | SliceClosed | End | Raised
_decode = msgspec.json.Decoder(Event).decode


class EventReader:
    """Reads a growing event file; half a line is left for the next look, a damaged line is passed over and counted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        self._offset = 0

    def new(self) -> list[Event]:
        """The events whose lines were completed since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except (FileNotFoundError, PermissionError):
            return []
        whole, newline, _ = text.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        found: list[Event] = []
        for line in whole.splitlines():
            try:
                found.append(_decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.damaged += 1
        return found


class EventWriter:
    """Appends events; each is on its way to disk before the next instruction runs."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.count = 0

    def write(self, event: Event) -> None:
        line = msgspec.json.encode(event) + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]
        self.count += 1
