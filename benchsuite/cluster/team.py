"""The agents of a run over nodes, as the recorder sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from benchsuite import __version__
from benchsuite.cluster.link import Link, LinkError
from benchsuite.cluster.merging import merged
from benchsuite.cluster.messages import PROTOCOL, Asked, Bye, Fenced, FromAgent, Hello, Ping, Pong, Refused, Welcome
from benchsuite.cluster.network import is_loopback
from benchsuite.cluster.spanned import Spanned
from benchsuite.describe.spanning import Seat
from benchsuite.describe.tasks import Gpu, Task
from benchsuite.errors import UsageError, one_line
from benchsuite.launch.context import RunContext, WaveContext
from benchsuite.launch.outcome import Setting
from benchsuite.launch.working import Working
from benchsuite.measurement import read_boot_id
from benchsuite.records import Machine, Result

PINGS = 8
# To find its fences, an agent makes control groups and sweeps those of dead runs.
FENCE_LIMIT_S = 120.0
BYE_LIMIT_S = 10.0
A = TypeVar("A", Fenced, Pong)


@dataclass
class Colleague:
    """An agent of the run.

    Attributes:
        name: its node; of several agents on a node each has its number behind it.
        address: by which the other nodes reach its host.
        reached: the address of this host to which it has connected; empty if it was started here.
        process: started by this process; None for an agent that has connected.
        gpus: those of its host that the run may use.
        ranks: its ranks in each task; None for as many as the others have.
        task: the task of which it runs a part; None if it has none.
        offset_s: the CLOCK_MONOTONIC of its host minus that of this host, with the largest error.
        gone: why it takes no further task; None if it is there.
        last_words: what its process has printed last.
    """

    link: Link[FromAgent]
    hello: Hello
    name: str
    address: str
    process: subprocess.Popen[bytes] | None = None
    reached: str = ""
    gpus: tuple[Gpu, ...] | None = None
    ranks: int | None = None
    task: Spanned | None = None
    offset_s: float = 0.0
    offset_error_s: float = 0.0
    gone: str | None = None
    last_words: Callable[[], str] = field(default=str)


class Team:
    """The agents of a run, in the order of their numbers.

    Args:
        asked_to_stop: ends the wait for an agent.
    """

    def __init__(self, colleagues: Sequence[Colleague], asked_to_stop: Callable[[], bool]) -> None:
        self.colleagues, self._asked_to_stop = list(colleagues), asked_to_stop
        self.notes: list[str] = []

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The agents, for the plan."""
        return tuple(
            Seat(
                name=one.name,
                node=one.hello.node,
                host=one.hello.machine.host,
                gpus=one.hello.gpus if one.gpus is None else one.gpus,
                ranks=one.ranks,
            )
            for one in self.colleagues
        )

    @property
    def environ(self) -> dict[str, str]:
        """The recorded variables of the first agent, which hold for all ranks."""
        return self.colleagues[0].hello.environ

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The machines of the agents, each once."""
        return tuple({one.hello.machine.sha256: one.hello.machine for one in self.colleagues}.values())

    def welcome(self, isolation: str, require_isolation: bool, sha256: str) -> None:
        """Take all agents: each finds its fences, and the offset of its clock is measured.

        Args:
            sha256: the hash of the run's jobs.

        Raises:
            UsageError: an agent is of another version, has other jobs, or cannot take part.
        """
        for one in self.colleagues:
            self._check(one, sha256)
        for one in self.colleagues:
            one.link.send(Welcome(isolation=isolation, require_isolation=require_isolation, address=one.address))
        for one in self.colleagues:
            answer = self._answer(one, Fenced, FENCE_LIMIT_S)
            self.notes += [f"{one.name}: {line}" for line in answer.notes]
            self._measure_offset(one)

    def _check(self, one: Colleague, sha256: str) -> None:
        hello, first = one.hello, self.colleagues[0].name
        if (hello.protocol, hello.version) != (PROTOCOL, __version__):
            raise UsageError(
                f"{one.name}: runs benchsuite {hello.version}, and {first} runs {__version__}; install one version on "
                "all nodes"
            )
        if hello.profile_sha256 not in (None, sha256):
            raise UsageError(
                f"{one.name}: its jobs are not those of {first}; start all with the same profile and the same changes"
            )
        elsewhere = hello.machine.boot_id != self.colleagues[0].hello.machine.boot_id
        alone = next((other for other in (one, self.colleagues[0]) if is_loopback(other.address)), None)
        if elsewhere and alone:
            raise UsageError(
                f"{alone.name}: no other host reaches its address {alone.address}; give one that they reach"
            )

    def refuse(self, message: str) -> None:
        """End all agents with a message for their users, since the run does not start."""
        for one in self.colleagues:
            one.link.send(Refused(message=message))

    def _answer(self, one: Colleague, kind: type[A], limit_s: float) -> A:
        """The answer of an agent.

        Raises:
            UsageError: it refuses, is gone, or does not answer.
        """
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and not self._asked_to_stop():
            try:
                said = one.link.receive(0.1)
            except LinkError as error:
                raise UsageError(f"{one.name}: {error}") from None
            for message in said:
                if isinstance(message, Refused):
                    raise UsageError(f"{one.name}: {message.message}")
                if isinstance(message, Asked):
                    os.kill(os.getpid(), signal.SIGTERM)
                if isinstance(message, kind):
                    return message
            if one.link.closed:
                raise UsageError(f"{one.name}: its agent has ended{one.last_words()}")
        raise UsageError(f"{one.name}: its agent does not answer; look at its output")

    def _measure_offset(self, one: Colleague) -> None:
        """Ask for its time some times. The fastest answer has the smallest error."""
        if one.hello.machine.boot_id == read_boot_id() != "unknown":
            return
        best = float("inf")
        for _ in range(PINGS):
            asked_s = time.monotonic()
            one.link.send(Ping())
            answer = self._answer(one, Pong, FENCE_LIMIT_S)
            took_s = time.monotonic() - asked_s
            if took_s < best:
                best = took_s
                one.offset_s, one.offset_error_s = answer.at_s - (asked_s + took_s / 2), took_s / 2

    def start(self, run: RunContext, task: Task, wave: WaveContext) -> Spanned:
        """Start a task over nodes. An agent has one task at a time: no two tasks of a wave may have one in common.

        Raises:
            OSError: its files cannot be written.
        """
        self._asked_to_stop = run.asked_to_stop
        by_name = {one.name: one for one in self.colleagues}
        return Spanned(self, [by_name[share.node] for share in task.nodes], run, task, wave)

    def result(self, working: Working, setting: Setting) -> Result:
        """The result of a task that is finished."""
        assert isinstance(working, Spanned)
        return merged(working, setting)

    def lost(self, tasks: Sequence[Task]) -> str | None:
        """Why tasks cannot run, since an agent of theirs is gone; None if they can."""
        wanted = {share.node for task in tasks for share in task.nodes}
        return next((one.gone for one in self.colleagues if one.gone and one.name in wanted), None)

    def look(self) -> None:
        """Take what the agents say."""
        for one in self.colleagues:
            if one.gone:
                continue
            try:
                said = one.link.receive()
            except LinkError as error:
                self.give_up(one, str(error))
                continue
            for message in said:
                self._take(one, message)
            if one.link.closed:
                self.give_up(one, f"its agent has ended{one.last_words()}")

    def _take(self, one: Colleague, message: FromAgent) -> None:
        if isinstance(message, Asked):
            if not self._asked_to_stop():  # a signal to one agent ends the run, as a signal to this process does
                os.kill(os.getpid(), signal.SIGTERM)
        elif isinstance(message, Refused):
            self.give_up(one, message.message)
        elif one.task:
            one.task.take(one, message)

    def give_up(self, one: Colleague, why: str) -> None:
        """Take an agent for gone. Its end of the link notices it and ends what is left of its part."""
        if one.gone:
            return
        one.gone = f"node {one.name} is gone: {one_line(why)}"
        one.link.close()
        if one.task:
            one.task.lost(one, one.gone)

    def close(self) -> None:
        """Say goodbye, and end the processes of agents that were started here."""
        for one in self.colleagues:
            one.link.send(Bye())
        deadline = time.monotonic() + BYE_LIMIT_S
        for one in self.colleagues:
            one.link.wait_closed(deadline - time.monotonic())
            while one.process and one.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            one.link.close()
            if one.process and one.process.poll() is None:
                one.process.kill()
                one.process.wait()
