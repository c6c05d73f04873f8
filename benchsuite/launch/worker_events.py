"""The events that a task's processes have written: one worker, or the ranks of a group and their launcher."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchsuite.events import (
    PULSE_BYTES,
    BlockDue,
    End,
    EpochClosed,
    Event,
    EventReader,
    Exited,
    Raised,
    Ready,
    SliceClosed,
    pulse_file,
    rank_file,
)
from benchsuite.launch.blame import first_cause
from benchsuite.measurement import Epoch


@dataclass
class ProcessEvents:
    """What one process has reported so far.

    Attributes:
        exits: of a launcher, the ends of the ranks.
        damaged: what is wrong with the first line that is not an event, in words; nothing after it was read.
        epochs: of a training by epochs, those that have ended.
        measured_all: a slice has met the stop rule.
        blocks: those that were due so far, of the cost of measuring.
    """

    ready: Ready | None = None
    slices: list[SliceClosed] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    end: End | None = None
    raised: Raised | None = None
    exits: list[Exited] = field(default_factory=list)
    damaged: str | None = None
    measured_all: bool = False
    blocks: list[BlockDue] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        """Add new events."""
        for event in events:
            if isinstance(event, SliceClosed):
                self.slices.append(event)
                self.measured_all |= event.last
            elif isinstance(event, EpochClosed):
                self.epochs.append(event.epoch)
            elif isinstance(event, Ready):
                self.ready = event
            elif isinstance(event, End):
                self.end = event
            elif isinstance(event, BlockDue):
                self.blocks.append(event)
            elif isinstance(event, Exited):
                self.exits.append(event)
            else:
                self.raised = event

    @property
    def measured(self) -> bool:
        """Is the stop rule met? Later slices are hold."""
        return self.end is not None or self.measured_all


@dataclass
class TaskEvents:
    """What the processes of a task have reported so far.

    A task is ready, measured or ended as soon as all its ranks are. Its slices are those of rank 0.

    Attributes:
        launcher: the events of the process that starts a group's ranks; None for a task of one process.
    """

    ranks: list[ProcessEvents] = field(default_factory=lambda: [ProcessEvents()])
    launcher: ProcessEvents | None = None

    @property
    def ready(self) -> Ready | None:
        return self.ranks[0].ready if all(rank.ready for rank in self.ranks) else None

    @property
    def slices(self) -> list[SliceClosed]:
        return self.ranks[0].slices

    @property
    def end(self) -> End | None:
        return self.ranks[0].end if all(rank.end for rank in self.ranks) else None

    @property
    def measured(self) -> bool:
        return all(rank.measured for rank in self.ranks)

    @property
    def unfinished(self) -> int | None:
        """The first rank of a group that has not reported its end; None for a task of one process."""
        if self.launcher is None:
            return None
        return next((rank for rank, events in enumerate(self.ranks) if events.end is None), None)

    @property
    def damaged(self) -> str | None:
        """The first event file that holds something else than events, in words; None if there is no such file."""
        if len(self.ranks) == 1 and self.launcher is None:
            return self.ranks[0].damaged and f"its event file: {self.ranks[0].damaged}"
        if self.launcher and self.launcher.damaged:
            return f"the launcher's event file: {self.launcher.damaged}"
        found = ((rank, events.damaged) for rank, events in enumerate(self.ranks) if events.damaged)
        return next((f"rank {rank} of {len(self.ranks)}, its event file: {why}" for rank, why in found), None)

    @property
    def raised(self) -> Raised | None:
        """The error that came first; see `first_cause` for a group."""
        return first_cause(self.ranks, self.launcher) if self.launcher else self.ranks[0].raised


def names_signal(raised: Raised) -> bool:
    """Does the error say that a signal ended a process? Its kind is then the name of the signal."""
    return raised.kind in signal.Signals.__members__


class EventFiles:
    """The growing event files of a task: that of its one worker, or those of its ranks and their launcher.

    Args:
        events: the event file of the worker or the launcher. Those of the ranks are in the same folder.
    """

    def __init__(self, events: Path, ranks: int) -> None:
        self._pulse, self._ranks = Path(pulse_file(str(events))), ranks
        if ranks == 1:
            self.seen = TaskEvents()
            self._sources = [(EventReader(events), self.seen.ranks[0])]
            return
        launcher = ProcessEvents()
        self.seen = TaskEvents([ProcessEvents() for _ in range(ranks)], launcher)
        files = [events, *(Path(rank_file(str(events), rank)) for rank in range(ranks))]
        readers = map(EventReader, files)
        self._sources = list(zip(readers, [launcher, *self.seen.ranks], strict=True))

    def read(self) -> None:
        """Add the events that are new to `seen`."""
        for reader, events in self._sources:
            events.take(reader.new())
            events.damaged = reader.damaged

    def behind(self) -> str | None:
        """The ranks whose heartbeats are behind those of the foremost, in words; None if no rank of a group is."""
        if self._ranks == 1:
            return None
        try:
            beats = struct.unpack(f"={self._ranks}Q", self._pulse.read_bytes()[: self._ranks * PULSE_BYTES])
        except (OSError, struct.error):
            return None
        late = [str(rank) for rank, count in enumerate(beats) if count < max(beats)]
        if not late:
            return None
        return f"rank {', '.join(late)} of {self._ranks} {'is' if len(late) == 1 else 'are'} behind the others"
