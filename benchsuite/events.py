"""What a worker and its parent exchange: the assignment with which it starts, and the events that it reports.

Each event is one numbered JSON line in a file of the worker's own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from benchsuite.costs import MeasuringCost, PhaseSpan
from benchsuite.describe.tasks import DataFolder, Task
from benchsuite.errors import one_line
from benchsuite.measurement import (
    Clock,
    Compiled,
    Epoch,
    GroupUsed,
    ModelFlops,
    PeakMemory,
    PipelineUsed,
    PrecisionCheck,
    Reading,
    Slice,
    Traced,
    WarmUp,
)
from benchsuite.schema import Record


class Member(Record, frozen=True, kw_only=True):
    """The part of a task over nodes that one launcher starts, and where its ranks meet the others."""

    node: Annotated[int, Meta(description="number of this part among those of the task, from 0")]
    nodes: Annotated[int, Meta(description="parts of the task")]
    ranks: Annotated[int, Meta(description="ranks of this part")]
    address: Annotated[str, Meta(description="where the ranks meet: an address of the first node")]
    port: Annotated[int, Meta(description="TCP port of that address")]


class Assignment(Record, frozen=True, kw_only=True):
    """The file with which a worker starts.

    The parent writes "go" and "stop" to a pipe or, for a group, to a FIFO. A worker that has neither begins at once.
    """

    task: Task
    events: Annotated[str, Meta(description="file to which the worker appends its events")]
    data: Annotated[DataFolder | None, Meta(description="the job's data set, found complete")] = None
    control_fd: Annotated[int | None, Meta(description="file descriptor of the inherited pipe")] = None
    control_file: Annotated[str | None, Meta(description="FIFO of a group, which rank 0 reads")] = None
    member: Annotated[Member | None, Meta(description="the part of a task over nodes; null: one machine")] = None
    hold_limit_s: Annotated[
        float, Meta(description="longest time that a measured task trains on for its neighbours; 0: it has none")
    ] = 0.0
    checkpoints: Annotated[
        str | None, Meta(description="path of a training's checkpoints, without `.epochN` and what follows")
    ] = None
    probe: Annotated[bool, Meta(description="only try whether the batch fits in memory; measure nothing")] = False


PULSE_BYTES = 8
# A worker cuts the only text of any length that it reports, that of an error, far below this.
LONGEST_LINE_BYTES = 1 << 20
# CLOCK_MONOTONIC counts from the boot of the host: this is 30,000 years.
LATEST_S = 1e12


def rank_file(events: str, rank: int) -> str:
    """The event file of one rank of a group.

    Args:
        events: the event file of the group's launcher.
    """
    return f"{events.removesuffix('.jsonl')}.{rank}.jsonl"


def trace_file(events: str, ending: str) -> str:
    """The file that a rank's profiler writes; `events` is the event file of the rank, `ending` begins with a dot."""
    return f"{events.removesuffix('.jsonl').removesuffix('.events')}.trace{ending}"


def pulse_file(events: str) -> str:
    """The file of a group's heartbeats: for each rank a counter of 8 bytes, which the rank increases as it trains.

    The pids of the ranks follow, 8 bytes each.
    """
    return f"{events.removesuffix('.jsonl')}.pulse"


def control_file(events: str) -> str:
    """The FIFO through which the parent controls a group."""
    return f"{events.removesuffix('.jsonl')}.control"


class Ready(Record, frozen=True, kw_only=True, tag="ready", tag_field="event"):
    """A rank has warmed up and waits for "go"."""

    n: Annotated[int, Meta(description="number of the event in its file, from 0")]
    at_s: float
    clock: Annotated[Clock | None, Meta(description="clock of the rank's host; absent before schema 2")] = None
    unit: Annotated[str, Meta(description="what an item is")]
    device: Annotated[str, Meta(description="torch's name: cpu, cuda:0")]
    data: Annotated[str, Meta(description="where the batches come from")]
    warm_up: WarmUp
    software: Annotated[dict[str, str], Meta(description="versions as the worker sees them")]
    precision: PrecisionCheck | None = None
    intra_op_threads: Annotated[
        int | None, Meta(description="intra-op threads of torch in force; null: no torch, or not recorded")
    ] = None
    group: GroupUsed | None = None
    counts_items: Annotated[bool, Meta(description="the items of this rank count towards the task's rate")] = True
    models: Annotated[int, Meta(description="models that one step trains")] = 1
    notes: Annotated[tuple[str, ...], Meta(description="how training differs from what the job asks for")] = ()
    phases: Annotated[tuple[PhaseSpan, ...], Meta(description="what the time before it went to, in order")] = ()


class SliceClosed(Record, frozen=True, kw_only=True, tag="slice", tag_field="event"):
    """A slice has ended."""

    n: Annotated[int, Meta(description="number of the event in its file, from 0")]
    origin_s: Annotated[float, Meta(description="the instant that slices count from")]
    slice: Slice
    loss: Annotated[float | None, Meta(description="loss of the slice's last step; null: the model has no loss")] = None
    model_losses: Annotated[
        tuple[float, ...], Meta(description="loss of each model of an array; empty: one model, or no loss")
    ] = ()
    input_s: Annotated[
        float | None, Meta(description="seconds in which the host waited for a batch; null: not recorded")
    ] = None
    last: Annotated[bool, Meta(description="this slice meets the stop rule: the measurement is over")] = False


class EpochClosed(Record, frozen=True, kw_only=True, tag="epoch", tag_field="event"):
    """An epoch has ended, and its checkpoint is written."""

    n: Annotated[int, Meta(description="number of the event in its file, from 0")]
    at_s: float
    epoch: Epoch


class BlockDue(Record, frozen=True, kw_only=True, tag="block", tag_field="event"):
    """A block of steps is next, of those that show what measuring costs. The worker waits for another "go"."""

    n: Annotated[int, Meta(description="number of the event in its file, from 0")]
    at_s: float
    measured: Annotated[bool, Meta(description="with telemetry; false: the block is bare")]


class End(Record, frozen=True, kw_only=True, tag="end", tag_field="event"):
    """A rank has done all that it was asked for."""

    n: Annotated[int, Meta(description="number of the event in its file, from 0")]
    at_s: float
    stopped_by: Annotated[str, Meta(description="stop rule that ended the measurement")]
    peak_memory: PeakMemory
    model_flops: Annotated[ModelFlops | None, Meta(description="only of rank 0")] = None
    pipeline: Annotated[PipelineUsed | None, Meta(description="only of rank 0")] = None
    compiled: Compiled | None = None
    traced: Traced | None = None
    readings: Annotated[dict[str, Reading], Meta(description="name -> a further figure that the model leaves")] = {}
    phases: Annotated[
        tuple[PhaseSpan, ...], Meta(description="what the time since the last slice went to, in order")
    ] = ()
    cost: Annotated[MeasuringCost | None, Meta(description="what measuring costs; null: it was not measured")] = None


class Raised(Record, frozen=True, kw_only=True, tag="error", tag_field="event"):
    """A rank has failed."""

    n: Annotated[int, Meta(description="number of the event in its file, from 0")]
    at_s: float
    kind: Annotated[
        str, Meta(description="class of the exception; for a group also the name of the signal that killed a rank")
    ]
    message: str
    traceback: str
    oom: Annotated[bool, Meta(description="the device's memory does not suffice")] = False
    of_peers: Annotated[bool, Meta(description="another rank could not be reached, so the cause is elsewhere")] = False


class Exited(Record, frozen=True, kw_only=True, tag="exit", tag_field="event"):
    """A rank's process has ended. The launcher of its group reports it."""

    n: Annotated[int, Meta(description="number of the event in its file, from 0")]
    at_s: float
    rank: int
    code: Annotated[int, Meta(description="exit code, negative for a signal")]


Event: TypeAlias = Ready | SliceClosed | EpochClosed | BlockDue | End | Raised | Exited
_decode = msgspec.json.Decoder(Event).decode


class EventReader:
    """Reads a growing event file. An incomplete last line is left for the next call.

    Attributes:
        damaged: what is wrong with the first line that is not an event, in words; None while there is no such line.
            The reader reads nothing after it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: str | None = None
        self._offset = self._lines = 0

    def new(self) -> list[Event]:
        """The events that were written since the last call; none if the file does not exist or cannot be read."""
        found: list[Event] = []
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            while self.damaged is None and self._offset < size_bytes:
                file.seek(self._offset)
                text = file.read(min(LONGEST_LINE_BYTES, size_bytes - self._offset))
                whole, newline, _ = text.rpartition(b"\n")
                if not newline:
                    if len(text) == LONGEST_LINE_BYTES:
                        self.damaged = f"line {self._lines + 1} is longer than {LONGEST_LINE_BYTES:,} bytes"
                    break
                self._offset += len(whole) + len(newline)
                found += self._decoded(whole)
        return found

    def _decoded(self, lines: bytes) -> Iterator[Event]:
        """The events of whole lines, up to the first line that is not an event."""
        for line in lines.split(b"\n"):
            self._lines += 1
            try:
                event = _decode(line)
                _check(event)
            except (ValueError, RecursionError) as error:  # msgspec.DecodeError and UnicodeDecodeError are ValueErrors
                why = "nested too deeply" if isinstance(error, RecursionError) else one_line(str(error))
                self.damaged = f"line {self._lines} is not an event: {why}"
                return
            yield event


def _check(event: Event) -> None:
    """Raises ValueError: a number of the event cannot be true, and arithmetic on it might fail."""
    if isinstance(event, SliceClosed):
        one = event.slice
        if not 0.0 <= one.start_s <= one.end_s < LATEST_S or one.steps < 1 or one.items < 0:
            raise ValueError(f"slice from {one.start_s:g} s to {one.end_s:g} s, {one.steps} steps, {one.items} items")
    at_s = event.origin_s if isinstance(event, SliceClosed) else event.at_s
    if not 0.0 <= at_s < LATEST_S:
        raise ValueError(f"time {at_s:g} s")
    if _has_long_integer(msgspec.to_builtins(event)):
        raise ValueError("an integer of over 63 bits")


def _has_long_integer(content: Any) -> bool:
    if isinstance(content, dict):
        return any(map(_has_long_integer, content.values()))
    if isinstance(content, list | tuple):
        return any(map(_has_long_integer, content))
    return isinstance(content, int) and content.bit_length() > 63


class EventWriter:
    """Appends events to a file. Each is handed to the kernel before `write` returns.

    Attributes:
        count: the number of events written so far.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self.count = 0

    def write(self, event: Event) -> None:
        """Append an event."""
        line = msgspec.json.encode(event) + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]
        self.count += 1
