"""The files of a task over nodes on the recorder's side: as if all its ranks had written them there."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.events import LONGEST_LINE_BYTES, PULSE_BYTES, Exited, Raised, pulse_file, rank_file
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.worker_events import EventFiles
from benchsuite.rundir import distinct_slug

_OF_RANK = re.compile(r"events\.(\d{1,6})\.jsonl")
_PRINTED = ("out", "err", "prepare")
_launcher_event = msgspec.json.Decoder(Exited | Raised).decode


class Relay:
    """Writes what agents pass on of a task.

    Event files of ranks are copied byte by byte: their times stay on the clocks of their hosts. The events of all
    launchers go to one file, with their times on the clock of this host. Each printed line begins with its node.
    """

    def __init__(self, ledger: Ledger, task: Task, offsets_s: Sequence[float]) -> None:
        self._ledger, self._task, self._offsets_s = ledger, task, offsets_s
        self._rests: dict[tuple[int, str], bytes] = {}
        self._events = str(ledger.log(task, "events.jsonl"))
        self._beats = [0] * task.ranks
        self._raised = False
        first = 0
        self._ranks: list[range] = []
        for share in task.nodes:
            self._ranks.append(range(first, first + share.ranks))
            first += share.ranks
        self.note_beats({})

    def place_of(self, rank: int) -> int:
        """The place of the node with a rank."""
        return next(place for place, ranks in enumerate(self._ranks) if rank in ranks)

    def series(self, place: int) -> Path:
        """The file with the samples of a node."""
        name = f"{distinct_slug(self._task.id)}.a{self._ledger.attempt(self._task)}.{place}.jsonl"
        return self._ledger.rundir.path / "telemetry" / name

    def take(self, place: int, name: str, text: bytes) -> None:
        """Append what a node has passed on of a file. What is no file of its part is dropped.

        Raises:
            OSError: it cannot be written.
        """
        if name == "series":
            self.series(place).parent.mkdir(exist_ok=True)
            _append(self.series(place), text)
        elif name == "events.jsonl":
            for line in self._lines(place, name, text):
                self._take_event(place, line)
        elif name in _PRINTED:
            node = self._task.nodes[place].node.encode()
            lines = (b"[" + node + b"] " + line + b"\n" for line in self._lines(place, name, text))
            _append(self._ledger.log(self._task, name), b"".join(lines))
        elif (found := _OF_RANK.fullmatch(name)) and int(found[1]) in self._ranks[place]:
            _append(Path(rank_file(self._events, int(found[1]))), text)

    def _lines(self, place: int, name: str, text: bytes) -> list[bytes]:
        *lines, rest = (self._rests.get((place, name), b"") + text).split(b"\n")
        if len(rest) > LONGEST_LINE_BYTES:  # what never ends a line, such as a bar of progress
            lines, rest = [*lines, rest], b""
        self._rests[place, name] = rest
        return lines

    def _take_event(self, place: int, line: bytes) -> None:
        """Keep an event of a launcher. Of errors the first counts: the other launchers fail because of it."""
        try:
            event = _launcher_event(line)
        except msgspec.DecodeError:
            return
        if isinstance(event, Raised):
            if self._raised:
                return
            self._raised = True
        shifted = msgspec.structs.replace(event, at_s=max(0.0, event.at_s - self._offsets_s[place]))
        _append(Path(self._events), msgspec.json.encode(shifted) + b"\n")

    def note_beats(self, counts: dict[int, int]) -> None:
        """Keep the heartbeats of ranks, by which the slow ones are found."""
        for rank, count in counts.items():
            if 0 <= rank < len(self._beats) and 0 <= count < 1 << 64:
                self._beats[rank] = max(self._beats[rank], count)
        Path(pulse_file(self._events)).write_bytes(
            struct.pack(f"={len(self._beats)}Q", *self._beats) + bytes(PULSE_BYTES * len(self._beats))
        )

    def close(self) -> None:
        """Write the lines that have no end."""
        for (place, name), rest in self._rests.items():
            if rest and name in _PRINTED:
                self.take(place, name, b"\n")


class MergedEvents(EventFiles):
    """The event files of a task over nodes. The times of errors are on this host's clock: so they have an order."""

    def __init__(self, events: Path, ranks: int, offset_s_of: dict[int, float]) -> None:
        super().__init__(events, ranks)
        self._offset_s_of = offset_s_of
        self._shifted: set[int] = set()

    def read(self) -> None:
        super().read()
        for rank, events in enumerate(self.seen.ranks):
            if events.raised and rank not in self._shifted:
                self._shifted.add(rank)
                at_s = events.raised.at_s - self._offset_s_of[rank]
                events.raised = msgspec.structs.replace(events.raised, at_s=at_s)


def _append(path: Path, text: bytes) -> None:
    if text:
        with path.open("ab") as file:
            file.write(text)
