"""Results that wait for room: while the disk is full, results stay in memory and no wave starts."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from benchsuite.describe.invocation import resume_command
from benchsuite.launch.ledger import FULL, Ledger, NoRoom
from benchsuite.records import Result
from benchsuite.writing import write_aside

# A wave starts with this much room, enough for the records of its tasks.
LEAST_BYTES = 1 << 20
# A run waits this long for room.
LIMIT_S = 600.0
LOOK_EVERY_S = 1.0


class Listener(Protocol):
    """Shows lines, and what becomes of each task."""

    def say(self, line: str) -> None:
        """Show a line."""

    def ended(self, result: Result, path: Path | None, problem: str | None) -> None:
        """A task is over. If its result could not be written, `path` is None and `problem` says why."""


class Keeper:
    """Writes results in order. A result for which the disk has no room is written as soon as there is room.

    Args:
        stopping: has the end of the run been asked for?
    """

    def __init__(self, ledger: Ledger, listener: Listener, stopping: Callable[[], bool]) -> None:
        self._ledger, self._listener, self._stopping = ledger, listener, stopping
        self._folder = ledger.rundir.path
        self._held: deque[Result] = deque()

    def keep(self, result: Result) -> None:
        """Write a result, or hold it while there is no room."""
        self._held.append(result)
        self._write()

    def _write(self) -> bool:
        """Write the results that are held; False if there is no room for them."""
        while self._held:
            try:
                path, problem = self._ledger.keep(self._held[0])
            except NoRoom:
                return False
            self._listener.ended(self._held.popleft(), path, problem)
        return True

    def _has_room(self) -> bool:
        """Is nothing held, and has the disk room for a wave? The disk is tried if its figure is low.

        Some file systems give 0 as their size. Root has a reserve that the figure leaves out. A folder that is missing
        or cannot be written is no matter of room: the tasks of the wave fail and say so.
        """
        if not self._write():
            return False
        try:
            if shutil.disk_usage(self._folder).free < LEAST_BYTES:
                write_aside(self._folder, bytes(LEAST_BYTES)).unlink()
        except OSError as error:
            return error.errno not in FULL
        return True

    def wait_for_room(self) -> bool:
        """Wait until a wave can start, up to `LIMIT_S`; False if it cannot."""
        return self._wait(self._has_room)

    def finish(self) -> None:
        """Wait until all results are written, up to `LIMIT_S`."""
        self._wait(self._write)

    def _wait(self, done: Callable[[], bool]) -> bool:
        if done():
            return True
        limit = f"the run waits up to {LIMIT_S / 60:g} min; results in memory: {len(self._held)}"
        self._listener.say(f"{self._folder}: no space left; {limit}")
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s and not self._stopping():
            time.sleep(LOOK_EVERY_S)
            if done():
                self._listener.say(f"{self._folder}: there is space again")
                return True
        if not self._stopping():
            self._listener.say(f"{self._folder}: no space left; the run ends. Continue: {resume_command(self._folder)}")
        return False

    def close(self) -> None:
        """Write what is held, or give it up. A task whose result is given up counts as interrupted."""
        if self._write():
            return
        why = f"{self._folder}: the result could not be written: no space left; --resume repeats its wave"
        for result in self._held:
            self._listener.ended(replace(result, status="interrupted"), None, why)
        self._held.clear()
