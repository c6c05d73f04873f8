"""How the agents of a run over nodes and its recorder find each other under a launcher.

The agent with number 0 belongs to the recorder, which waits for the others at MASTER_ADDR and MASTER_PORT. Under
torchrun a store of torch has this port; the recorder then takes another one and leaves its number in the store.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchsuite.cluster import handshake
from benchsuite.cluster import link as links
from benchsuite.cluster.link import Link, LinkError
from benchsuite.cluster.messages import Challenge, FromAgent, FromRecorder, Hello, Refused, Response
from benchsuite.cluster.network import is_loopback, only_here, plain
from benchsuite.cluster.seat import Invited
from benchsuite.cluster.team import Colleague
from benchsuite.describe.plan import NO_GPU
from benchsuite.describe.tasks import Gpu
from benchsuite.errors import UsageError, one_line, reason
from benchsuite.launch.child import python
from benchsuite.launch.process import last_lines

# The other nodes may start later: a container is pulled, a file system is slow.
MEET_S = 600.0
# A connection that does not introduce itself in this time is dropped.
SILENT_S = 20.0


def local_agent(
    name: str, number: int, node: int, gpus: Sequence[Gpu] | None, environ: Mapping[str, str], log: IO[bytes]
) -> tuple[Link[FromAgent], subprocess.Popen[bytes]]:
    """Start an agent on this host.

    Args:
        gpus: those that it may use; None for all that this process may use.
        log: gets what it prints.
    """
    words = [*python(), "-m", "benchsuite.cluster.agent", name, str(number), str(node)]
    visible = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus) or NO_GPU}
    return started(words, {**environ, **visible}, log)


def started(
    words: Sequence[str], environ: Mapping[str, str], log: IO[bytes]
) -> tuple[Link[FromAgent], subprocess.Popen[bytes]]:
    """Start a program that leads to an agent over its standard input and output. It ends at the end of its input."""
    process = subprocess.Popen(
        words, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
    )
    assert process.stdin and process.stdout
    link = links.to_agent(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
    process.stdin.close()
    process.stdout.close()
    return link, process


def greeting_of(
    link: Link[FromAgent],
    process: subprocess.Popen[bytes],
    name: str,
    words: Callable[[], str],
    stop: Callable[[], bool],
) -> Hello:
    """The greeting of an agent that was started here.

    Args:
        words: what the program printed last, as the end of a message.
        stop: ends the wait.

    Raises:
        UsageError: it ends before, or says something else.
    """
    deadline = time.monotonic() + MEET_S
    while time.monotonic() < deadline and not stop():
        try:
            said = link.receive(0.1)
        except LinkError as error:
            raise UsageError(f"{name}: {error}") from None
        for message in said:
            if isinstance(message, Hello):
                return message
            if isinstance(message, Refused):
                raise UsageError(f"{name}: {message.message}")
        if link.closed:
            process.wait(10.0)
            raise UsageError(f"{name}: no agent of benchsuite starts{words()}")
    raise UsageError(f"{name}: no agent of benchsuite starts within {MEET_S:g} s{words()}")


def printed_by(log: Path) -> Callable[[], str]:
    """What a program has printed last, as the end of a message."""

    def words() -> str:
        lines = last_lines(log).splitlines()
        return f": {one_line(lines[-1])}" if lines else ""

    return words


@contextlib.contextmanager
def recording(
    place: Invited, gpus: Sequence[Gpu], environ: Mapping[str, str], stop: Callable[[], bool]
) -> Iterator[list[Colleague]]:
    """The agents of a run, in the order of their numbers, for the process with number 0.

    Raises:
        UsageError: they do not come, or one comes that must not.
        Interrupted: the user has asked for the end.
    """
    with tempfile.TemporaryDirectory(prefix="benchsuite-") as folder, contextlib.ExitStack() as opened:
        log = Path(folder) / "agent.err"
        with log.open("wb") as err:
            name = place.name if place.local_size == 1 else f"{place.name}:{place.local_rank}"
            own = gpus if place.local_size > 1 else None
            link, process = local_agent(name, 0, place.node, own, environ, err)
        opened.callback(_end, link, process)
        listener = opened.enter_context(contextlib.closing(_listen(place)))
        if place.store:
            _in_store(place, "publish", f"{listener.getsockname()[1]}")
        hello = greeting_of(link, process, name, printed_by(log), stop)
        found = [Colleague(link, hello, name, place.address, process, last_words=printed_by(log))]
        found += _accepted(place, listener, opened, stop)
        # MASTER_ADDR may be a name to which this host itself, as Debian does, gives a loopback address.
        found[0].address = next((one.reached for one in found[1:] if not is_loopback(one.reached)), place.address)
        yield _named(found)


def _end(link: Link[FromAgent], process: subprocess.Popen[bytes]) -> None:
    link.close()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _listen(place: Invited) -> socket.socket:
    """A socket at which the other agents find this process.

    Raises:
        UsageError: the port is in use, or the name is not known.
    """
    try:
        family, _, _, _, found = socket.getaddrinfo(place.address, place.port, proto=socket.IPPROTO_TCP)[0]
        everywhere = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - other nodes come in here
        host = found[0] if only_here(place.address) else everywhere
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, 0 if place.store else place.port))
        listener.listen(place.size)
        listener.setblocking(False)
        return listener
    except (OSError, UnicodeError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"--join: MASTER_ADDR {place.address}, MASTER_PORT {place.port}: {why}; give an address of the first node "
            "and a free port"
        ) from None


@dataclass
class _Guest:
    """A connection that has not introduced itself yet.

    Attributes:
        peer, reached: the addresses of its two ends: the other one, and that of this host.
        known: it has shown that it knows the secret of the run.
    """

    link: Link[FromAgent]
    peer: str
    reached: str
    since_s: float
    challenge: Challenge
    known: bool = False

    def hello(self) -> Hello | None:
        """Its greeting; None if it has not come yet. The link of a stranger is closed."""
        try:
            said = self.link.receive()
        except LinkError:
            return None  # somebody else, for instance a port scanner
        for message in said:
            if isinstance(message, Hello) and self.known:
                return message
            if not isinstance(message, Response) or self.known:
                self.link.close()
                return None
            answer = handshake.answered(self.challenge, message)
            self.link.send(answer)
            self.known = not isinstance(answer, Refused)
        return None


def _accepted(
    place: Invited, listener: socket.socket, opened: contextlib.ExitStack, stop: Callable[[], bool]
) -> list[Colleague]:
    """The other agents, once all have come."""
    guests: list[_Guest] = []
    found: dict[int, Colleague] = {}
    deadline = time.monotonic() + MEET_S
    while len(found) < place.size - 1:
        if stop():
            raise UsageError("--join: the end was asked for before all agents had come")
        if time.monotonic() > deadline:
            missing = sorted(set(range(1, place.size)) - set(found))
            raise UsageError(
                f"--join: {len(missing)} of {place.size} agents did not come within {MEET_S:g} s, the first is number "
                f"{missing[0]}; look at its output"
            )
        with contextlib.suppress(BlockingIOError, ConnectionError):
            guests.append(_guest(listener))
            opened.callback(guests[-1].link.close)
        for guest in list(guests):
            hello = guest.hello()
            if hello and 0 < hello.rank < place.size and hello.rank not in found:
                found[hello.rank] = Colleague(guest.link, hello, hello.name, guest.peer, reached=guest.reached)
                guests.remove(guest)
                continue
            if hello:
                taken = f"--join: number {hello.rank} of {place.size} agents is taken or too high"
                guest.link.send(Refused(message=taken))
            if hello or guest.link.closed or time.monotonic() > guest.since_s + SILENT_S:
                guest.link.close()
                guests.remove(guest)
        time.sleep(0.02)
    return [found[rank] for rank in sorted(found)]


def _guest(listener: socket.socket) -> _Guest:
    """Who connects next. Raises BlockingIOError: nobody does."""
    connected, (peer, *_) = listener.accept()
    link, challenge = links.agent_at(connected), handshake.challenge()
    link.send(challenge)
    return _Guest(link, plain(peer), plain(connected.getsockname()[0]), time.monotonic(), challenge)


def _named(found: list[Colleague]) -> list[Colleague]:
    """The agents with distinct names: of several with one name each gets its number behind it."""
    names = [one.name for one in found]
    for number, one in enumerate(found):
        if names.count(names[number]) > 1:
            one.name = f"{names[number]}:{number}"
    return found


def recorder_of(place: Invited, stop: Callable[[], bool]) -> Link[FromRecorder]:
    """The link to the recorder, for a process with another number than 0.

    Raises:
        UsageError: it cannot be reached.
        Interrupted: the user has asked for the end.
    """
    deadline = time.monotonic() + MEET_S
    port = int(_in_store(place, "find")) if place.store else place.port
    why = ""
    while time.monotonic() < deadline and not stop():
        try:
            link = links.recorder_at(socket.create_connection((place.address, port), timeout=10.0))
        except (OSError, UnicodeError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            time.sleep(0.2)
            continue
        try:
            handshake.introduce(link, f"{place.address}, port {port}", deadline - time.monotonic(), stop)
        except UsageError:
            link.close()
            raise
        return link
    remedy = "check MASTER_ADDR and MASTER_PORT, and that it has started"
    raise UsageError(f"--join: number 0 cannot be reached at {place.address}, port {port}: {why}; {remedy}")


def _in_store(place: Invited, what: str, value: str = "") -> str:
    """Leave the port of the recorder in the store of torch's launcher, or find it there.

    Raises:
        UsageError: the store does not answer.
    """
    key = f"benchsuite/{place.meeting}"
    words = [*python(), "-m", "benchsuite.worker.meeting", what, place.address, str(place.port), key, value]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=MEET_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode:
        lines = done.stderr.strip().splitlines() if done else []
        why = f": {one_line(lines[-1])}" if lines else ""
        raise UsageError(f"--join: the store of torch's launcher at {place.address}:{place.port} does not answer{why}")
    return done.stdout.strip()
