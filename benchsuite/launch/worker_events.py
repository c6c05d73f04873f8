"""What a task's processes have told: one worker, or the ranks of a group and their launcher."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchsuite.events import End, Event, EventReader, Raised, Ready, SliceClosed, pulse_file, rank_file


@dataclass
class Told:
    """What one process has told so far."""

    ready: Ready | None = None
    slices: list[SliceClosed] = field(default_factory=list)
    end: End | None = None
    raised: Raised | None = None
    damaged: int = 0
    measured_all: bool = False

    def take(self, events: Iterable[Event]) -> None:
        """Sort new events in."""
        for event in events:
            if isinstance(event, SliceClosed):
                self.slices.append(event)
                self.measured_all |= event.last
            elif isinstance(event, Ready):
                self.ready = event
            elif isinstance(event, End):
                self.end = event
            else:
                self.raised = event

    @property
    def measured(self) -> bool:
        """The stop rule is met: what follows is hold."""
        return self.end is not None or self.measured_all


@dataclass
class Seen:
    """A whole task: ready, measured or ended once all its ranks are; its slices are those of rank 0.

    `launcher` is what the parent of a group's ranks told.
    """

    ranks: list[Told] = field(default_factory=lambda: [Told()])
    launcher: Told | None = None

    @property
    def ready(self) -> Ready | None:
        return self.ranks[0].ready if all(told.ready for told in self.ranks) else None

    @property
    def slices(self) -> list[SliceClosed]:
        return self.ranks[0].slices

    @property
    def end(self) -> End | None:
        return self.ranks[0].end if all(told.end for told in self.ranks) else None

    @property
    def measured(self) -> bool:
        return all(told.measured for told in self.ranks)

    @property
    def raised(self) -> Raised | None:
        """The error that came first.

        A rank that was killed, or just exited, told nothing: its launcher did, and the others failed for want of it.
        """
        of_launcher = self.launcher.raised if self.launcher else None
        if of_launcher and of_launcher.kind.startswith("SIG"):
            return of_launcher
        errors = [(r.of_peers, r.at_s, rank, r) for rank, told in enumerate(self.ranks) if (r := told.raised)]
        if not errors:
            return of_launcher
        of_peers, _, rank, first = min(errors, key=lambda error: error[:3])
        if len(self.ranks) == 1:
            return first
        if of_peers and of_launcher:
            return of_launcher
        return msgspec.structs.replace(first, message=f"rank {rank} of {len(self.ranks)}: {first.message}")


class Watch:
    """Reads the growing event files of a task: that of its one worker, or those of its ranks and their launcher."""

    def __init__(self, events: Path, ranks: int) -> None:
        self._pulse, self._ranks = Path(pulse_file(str(events))), ranks
        if ranks == 1:
            self.seen = Seen()
            self._told = [(EventReader(events), self.seen.ranks[0])]
            return
        self.seen = Seen([Told() for _ in range(ranks)], Told())
        files = [events, *(Path(rank_file(str(events), rank)) for rank in range(ranks))]
        tellers = [self.seen.launcher or Told(), *self.seen.ranks]
        self._told = [(EventReader(file), told) for file, told in zip(files, tellers, strict=True)]

    def look(self) -> None:
        """Take in what is new."""
        for reader, told in self._told:
            told.take(reader.new())
            told.damaged = reader.damaged

    def behind(self) -> str | None:
        """By their heartbeats, which ranks are not as far as the foremost, in words."""
        if self._ranks == 1:
            return None
        try:
            beats = struct.unpack(f"={self._ranks}Q", self._pulse.read_bytes())
        except (OSError, struct.error):
            return None
        late = [str(rank) for rank, count in enumerate(beats) if count < max(beats)]
        if not late:
            return None
        return f"rank {', '.join(late)} of {self._ranks} {'is' if len(late) == 1 else 'are'} behind the others"
