"""Report to the parent which rank of a group exits when, and how. The launcher watches; torch's elastic agent reaps.

The agent looks ten times a second and ends all other ranks once one has failed. It ignores a rank that exits with 0:
the others may then wait for it in NCCL for ever, so they are ended here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from benchsuite.events import PULSE_BYTES, EventWriter, Exited

LOOK_EVERY_MS = 50
# All ranks leave their group together. The time that the others have to exit after the first (seconds).
TOGETHER_S = 15.0


def announce(pulse: Path, rank: int, ranks: int) -> None:
    """Write the pid of this rank behind the heartbeats of its group, for `Exits`."""
    with contextlib.suppress(OSError), pulse.open("r+b") as file:
        file.seek((ranks + rank) * PULSE_BYTES)
        file.write(struct.pack("=Q", os.getpid()))


class Exits:
    """While entered, a thread waits for the ends of the ranks and writes an event for each.

    It needs pidfds (Linux 5.3). Without them no event is written, and nothing else changes.

    Attributes:
        stuck: the ranks that were killed because they had not exited `TOGETHER_S` after another. They have no event.
        left: the first rank that exited.
    """

    def __init__(self, pulse: Path, ranks: int, events: EventWriter) -> None:
        self._pulse, self._ranks, self._events = pulse, ranks, events
        self._rank_of: dict[int, int] = {}  # pidfd -> rank
        self._found: set[int] = set()
        self._reaped: dict[int, float] = {}  # rank -> when it exited; the agent was faster, so the code is unknown
        self._poll = select.poll()
        self._over = threading.Event()
        self.stuck: list[int] = []
        self.left: int | None = None
        self._left_s = 0.0
        self._thread = threading.Thread(target=self._watch, name="exits", daemon=True)

    def __enter__(self) -> Exits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for fd in self._rank_of:
            os.close(fd)

    def settle(self, codes: Mapping[int, int]) -> None:
        """Report the exits whose code only the agent knows. Call it after the end of the watch.

        Args:
            codes: rank -> exit code, of the ranks that failed.
        """
        for rank, at_s in self._reaped.items():
            self._report(rank, at_s, codes.get(rank, 0))

    def _watch(self) -> None:
        if sys.platform != "linux":
            return
        over = False
        while not over:
            over = self._over.is_set()  # after the end there is one more look
            self._open()
            for fd, _ in self._poll.poll(0 if over else LOOK_EVERY_MS):
                self._note(fd)
            self._end_stuck()

    def _end_stuck(self) -> None:
        """Kill the ranks that have not exited long after the first one."""
        if self.left is None or self.stuck or time.monotonic() - self._left_s < TOGETHER_S:
            return
        for fd, rank in self._rank_of.items():
            self.stuck.append(rank)
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def _open(self) -> None:
        """Open a pidfd of each rank that has announced itself since the last call."""
        if len(self._found) == self._ranks:
            return
        with contextlib.suppress(OSError, struct.error):
            content = self._pulse.read_bytes()[self._ranks * PULSE_BYTES :]
            for rank, pid in enumerate(struct.unpack(f"={self._ranks}Q", content)):
                if pid and rank not in self._found:
                    self._found.add(rank)
                    fd = os.pidfd_open(pid)
                    self._rank_of[fd] = rank
                    self._poll.register(fd, select.POLLIN)

    def _note(self, fd: int) -> None:
        at_s, rank = time.monotonic(), self._rank_of.pop(fd)
        self._poll.unregister(fd)
        if self.left is None:
            self.left, self._left_s = rank, at_s
        try:
            how = os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOWAIT | os.WNOHANG)  # the agent still has to reap it
        except OSError:
            how = None
        os.close(fd)
        if how is None:
            self._reaped[rank] = at_s
        else:
            self._report(rank, at_s, how.si_status if how.si_code == os.CLD_EXITED else -how.si_status)

    def _report(self, rank: int, at_s: float, code: int) -> None:
        if rank in self.stuck:
            return
        self._events.write(Exited(n=self._events.count, at_s=at_s, rank=rank, code=code))
