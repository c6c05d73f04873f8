"""A line of messages to another process: over a TCP connection, or over the pipes of a child."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import Any, Generic, TypeVar

import msgspec

from benchsuite.cluster.messages import FromAgent, FromRecorder

# A message is a task with its profile's fields, or some lines of a file.
LONGEST_BYTES = 16 << 20
READ_BYTES = 1 << 16
# A host that is gone is noticed after about this time without any answer of its kernel (seconds).
SILENT_S = 30
M = TypeVar("M")


class LinkError(OSError):
    """The other side has sent what is no message."""


class Link(Generic[M]):
    """Sends messages and receives those of the kind `M`. Use `to_recorder` or `to_agent`.

    Args:
        noisy: lines before the first message that are none are skipped, such as those of a login shell.

    Attributes:
        closed: the other side is gone, and all that it sent was received.
    """

    def __init__(
        self, kind: Any, given: int, taken: int, owner: socket.socket | None = None, *, noisy: bool = False
    ) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._in, self._out, self._owner = given, taken, owner
        self._rest, self._noisy = b"", noisy
        self.closed = False

    def send(self, message: Any) -> None:
        """Send a message. If the other side is gone, nothing happens: `receive` shows it."""
        line = msgspec.json.encode(message) + b"\n"
        try:
            while line:
                line = line[os.write(self._out, line) :]
        except OSError:
            self.closed = self.closed or self._out == self._in

    def receive(self, limit_s: float = 0.0) -> list[M]:
        """The messages that have come.

        Args:
            limit_s: how long to wait for the first.

        Raises:
            LinkError: something else than messages has come; the link is closed.
        """
        found: list[M] = []
        while not self.closed and _readable(self._in, limit_s):
            try:
                text = os.read(self._in, READ_BYTES)
            except OSError:
                text = b""
            if not text:
                self.closed = True
            found += self._decoded(text)
            limit_s = 0.0
        return found

    def _decoded(self, text: bytes) -> list[M]:
        *lines, self._rest = (self._rest + text).split(b"\n")
        if len(self._rest) > LONGEST_BYTES:
            self.closed = True
            raise LinkError(f"a message is longer than {LONGEST_BYTES:,} bytes")
        found = []
        for line in filter(None, lines):
            try:
                found.append(self._decode(line))
                self._noisy = False
            except (ValueError, RecursionError) as error:
                if not self._noisy:
                    self.closed = True
                    raise LinkError(f"no message of benchsuite: {error}") from None
        return found

    def wait_closed(self, limit_s: float) -> None:
        """Wait until the other side has closed the link, for at most this long. What it still says is lost."""
        deadline = time.monotonic() + limit_s
        with contextlib.suppress(LinkError):
            while not self.closed and time.monotonic() < deadline:
                self.receive(0.5)

    def close(self) -> None:
        """Close the link. May be called twice."""
        if self._in < 0:
            return
        if self._owner:
            self._owner.close()
        else:
            for fd in (self._in, self._out):
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._in = self._out = -1
        self.closed = True


def _readable(fd: int, limit_s: float) -> bool:
    """Whether there is something to read, or the end. `select.select` takes no descriptor from 1,024 on."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(1000 * max(0.0, limit_s)))


def to_recorder(given: int, taken: int) -> Link[FromRecorder]:
    """The link of an agent over two pipes."""
    return Link(FromRecorder, given, taken)


def to_agent(given: int, taken: int) -> Link[FromAgent]:
    """The link of a recorder to an agent over two pipes."""
    return Link(FromAgent, given, taken, noisy=True)


def recorder_at(connected: socket.socket) -> Link[FromRecorder]:
    """The link of an agent over a TCP connection."""
    _kept_alive(connected)
    return Link(FromRecorder, connected.fileno(), connected.fileno(), connected)


def agent_at(connected: socket.socket) -> Link[FromAgent]:
    """The link of a recorder over a TCP connection."""
    _kept_alive(connected)
    return Link(FromAgent, connected.fileno(), connected.fileno(), connected)


def _kept_alive(connected: socket.socket) -> None:
    """Let the kernel ask an idle host whether it is still there. A host that lost its power sends no end."""
    connected.setblocking(True)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENT_S)
