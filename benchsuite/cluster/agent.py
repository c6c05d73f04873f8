"""The agent of a node in a run over nodes: it fences, samples and starts the ranks of its node, task after task.

    python -m benchsuite.cluster.agent NAME RANK NODE

Started like this, it talks to the recorder over its standard input and output. It ends its ranks and itself as soon as
the recorder is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

from benchsuite import __version__
from benchsuite.cluster import link as links
from benchsuite.cluster.link import Link, LinkError
from benchsuite.cluster.messages import (
    Asked,
    Bye,
    End,
    Fenced,
    FromRecorder,
    Hello,
    NotPrepared,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Refused,
    Say,
    Start,
    Welcome,
)
from benchsuite.cluster.network import address_of_ssh, free_port, gloo_environ
from benchsuite.cluster.part import Part
from benchsuite.describe.spanning import Seat
from benchsuite.describe.variables import recorded_environ
from benchsuite.errors import BenchError, UsageError
from benchsuite.host import machine as host
from benchsuite.host.interfaces import interface_of
from benchsuite.host.monitor import Monitor
from benchsuite.host.visible import chosen
from benchsuite.isolation.fencing import Fencing, Isolation
from benchsuite.launch import orphans
from benchsuite.launch.context import WaveError
from benchsuite.launch.interrupt import Interrupt
from benchsuite.records import Failure, Machine

# What an agent exits with if the recorder has refused it, and if the recorder is gone.
REFUSED, ALONE = 2, 1
LOOK_EVERY_S = 0.1


def hello(
    seat: Seat, rank: int, machine: Machine, address: str, environ: Mapping[str, str], sha256: str | None
) -> Hello:
    """How an agent introduces itself.

    Args:
        sha256: the hash of the jobs that it was started with; None if it knows none.
    """
    return Hello(
        version=__version__,
        name=seat.name,
        rank=rank,
        node=seat.node,
        address=address,
        profile_sha256=sha256,
        machine=machine,
        gpus=seat.gpus,
        environ=recorded_environ(environ),
    )


class Agent:
    """The agent of a node. It asks the recorder what to do until the recorder says goodbye or is gone.

    Args:
        link: leads to the recorder.
        environ: the environment that the ranks inherit.
    """

    def __init__(self, link: Link[FromRecorder], greeting: Hello, environ: Mapping[str, str]) -> None:
        self._link, self._greeting, self._environ = link, greeting, environ
        self._interrupt = Interrupt()
        self._said_asked = self._ended = self._hurried = False
        self._waiting: list[FromRecorder] = []
        self._part: Part | None = None
        self._address = greeting.address

    def run(self) -> int:
        """Serve the recorder.

        Returns:
            The exit status: 0 after its goodbye.

        Raises:
            UsageError: the recorder refuses this agent, or isolation is required and not possible.
        """
        with self._interrupt:
            self._link.send(self._greeting)
            with ExitStack() as given_back:
                fencing = self._fencing()
                if fencing is None:
                    return ALONE
                given_back.enter_context(closing(fencing))
                monitor = given_back.enter_context(Monitor(list(self._greeting.gpus)))
                end_orphans = given_back.enter_context(orphans.adopted())
                while (message := self._next()) is not None:
                    if isinstance(message, Bye):
                        return 0
                    if isinstance(message, Refused):
                        raise UsageError(message.message)
                    if isinstance(message, Prepare):
                        self._task(message, fencing, monitor)
                        end_orphans()
        return ALONE

    def _fencing(self) -> Fencing | None:
        """The fences of this node; None if the recorder is gone or has none of our tasks."""
        welcome = self._next()
        if isinstance(welcome, Refused):
            raise UsageError(welcome.message)
        if not isinstance(welcome, Welcome):
            return None
        self._address = welcome.address or self._address
        try:
            kind = cast("Isolation", welcome.isolation)
            fencing = Fencing.choose(kind, require=welcome.require_isolation, largest=1)
        except UsageError as error:
            self._link.send(Refused(message=str(error)))
            raise
        self._link.send(Fenced(notes=(*fencing.swept, *fencing.unknown)))
        return fencing

    def _next(self) -> FromRecorder | None:
        """The next message; None if the recorder is gone."""
        while not self._waiting:
            self._look(0.5)
            if self._link.closed and not self._waiting:
                print("benchsuite: the process that records the run is gone", file=sys.stderr)
                return None
        return self._waiting.pop(0)

    def _look(self, limit_s: float = 0.0) -> None:
        """Take what the recorder says; what does not concern the task that runs waits."""
        if self._interrupt.asked() and not self._said_asked:
            self._said_asked = True
            self._link.send(Asked())
        try:
            said = self._link.receive(limit_s)
        except LinkError:
            said = []
        for message in said:
            if isinstance(message, Ping):
                self._link.send(Pong(at_s=time.monotonic()))
            elif isinstance(message, End):
                self._ended, self._hurried = True, self._hurried or message.at_once
            elif isinstance(message, Say) and self._part:
                self._part.say(message.word)
            else:
                if isinstance(message, Prepare):  # an end that follows is of this task
                    self._ended = self._hurried = False
                self._waiting.append(message)

    def _asked_to_stop(self) -> bool:
        self._look()
        return self._ended or self._link.closed

    def _task(self, message: Prepare, fencing: Fencing, monitor: Monitor) -> None:
        """Run this node's part of a task."""
        with tempfile.TemporaryDirectory(prefix="benchsuite-agent-") as folder, ExitStack() as given_back:
            added = gloo_environ(interface_of(self._address), self._environ)
            part = Part(message, Path(folder), self._link, self._environ, fencing, monitor, added)
            part.stopped_by(self._asked_to_stop, lambda: self._hurried)
            try:
                part.prepare(given_back)
            except WaveError as error:
                self._link.send(NotPrepared(status=error.status, failure=error.failure))
                return
            except BenchError as error:
                self._link.send(NotPrepared(status="failed", failure=Failure(kind="start", message=str(error))))
                return
            self._link.send(Prepared(port=free_port()))
            start = self._started()
            if start is None:
                part.not_started(self._greeting)
                return
            self._part = part
            try:
                part.run(start, self._look, LOOK_EVERY_S)
            except (BenchError, OSError) as error:
                self._link.send(NotPrepared(status="failed", failure=Failure(kind="start", message=str(error))))
            else:
                part.ended(self._greeting)
            finally:
                self._part = None

    def _started(self) -> Start | None:
        """The word to start the ranks; None if the task is to end before."""
        while not self._asked_to_stop():
            self._look(0.5)
            if self._waiting:
                message = self._waiting.pop(0)
                return message if isinstance(message, Start) else None
        return None


def main(name: str, rank: str, node: str) -> int:
    """Serve a recorder over standard input and output.

    Returns:
        The exit status.
    """
    given, taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what is printed must not come between the messages
    os.write(taken, b"\n")  # ends a line that a login shell has begun
    link = links.to_recorder(given, taken)
    try:
        machine = host.describe(os.environ)
        gpus = tuple(chosen(machine.gpus, os.environ, machine.gpu_note))
        seat = Seat(name=name, node=int(node), host=machine.host, gpus=gpus)
        return Agent(
            link, hello(seat, int(rank), machine, address_of_ssh(os.environ), os.environ, None), os.environ
        ).run()
    except BenchError as error:
        link.send(Refused(message=str(error)))
        return REFUSED


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(main(*sys.argv[1:4]))
