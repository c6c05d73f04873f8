"""The words that the parent says to a worker while it runs."""

from __future__ import annotations

import os
import select

from benchsuite.events import Assignment


def control_fd(assignment: Assignment, rank: int) -> int | None:
    """The file descriptor for the parent's words: an inherited pipe or, for rank 0 of a group, a FIFO."""
    if assignment.control_file is None:
        return assignment.control_fd
    if rank:
        return None
    fd = os.open(assignment.control_file, os.O_RDONLY | os.O_NONBLOCK)  # returns even if the parent has ended
    os.set_blocking(fd, True)
    return fd


class Control:
    """Reads "go" and "stop" from the parent. The worker exits if the parent has closed the pipe."""

    def __init__(self, fd: int | None) -> None:
        self.fd = fd
        self._heard = b""
        self._gone = 0

    def wait_for_go(self) -> None:
        """Block until the parent says "go" once more; return at once if there is no parent."""
        self._gone += 1
        while self.fd is not None and self._heard.count(b"go\n") < self._gone:
            self._listen()

    def stop_said(self) -> bool:
        """Has the parent said "stop"? Never blocks."""
        if self.fd is None:
            return False
        while select.select([self.fd], [], [], 0)[0]:
            self._listen()
        return b"stop\n" in self._heard

    def _listen(self) -> None:
        assert self.fd is not None
        said = os.read(self.fd, 64)
        if not said:
            raise SystemExit("the parent is gone")
        self._heard += said
