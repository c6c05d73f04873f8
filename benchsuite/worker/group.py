"""The launcher of a group: torch's elastic launcher starts all ranks and ends them together.

    python -m benchsuite.worker.group TASK_JSON

Each rank is `benchsuite.worker` with the same file. The launcher puts the rank's number into its environment.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchsuite.errors import reason
from benchsuite.events import PULSE_BYTES, Assignment, EventWriter, Member, Raised, pulse_file
from benchsuite.worker.exits import TOGETHER_S, Exits
from benchsuite.worker.parent_death import die_with_parent

TRIES = 3
RENDEZVOUS_S = 300


def main(task_file: str) -> int:
    """Run the ranks of one assignment.

    Returns:
        The exit status: 0 if all ranks exited with 0, or 1 after a failure, which is written as an event.
    """
    die_with_parent()
    assignment = msgspec.json.decode(Path(task_file).read_bytes(), type=Assignment)
    events = EventWriter(assignment.events)
    ranks, port = assignment.task.ranks, assignment.task.job.training.parallel.port
    if assignment.member:
        port = None if assignment.member.node else assignment.member.port  # the first part serves the rendezvous
    Path(pulse_file(assignment.events)).write_bytes(bytes(2 * ranks * PULSE_BYTES))
    problem = _port_in_use(port, given=assignment.member is None) if port else None
    if problem is None:
        problem = _launch(task_file, assignment, events)
    if problem is None:
        return 0
    kind, message = problem
    print(message, file=sys.stderr, flush=True)
    events.write(Raised(n=events.count, at_s=time.monotonic(), kind=kind, message=message, traceback=""))
    return 1


def _launch(task_file: str, assignment: Assignment, events: EventWriter) -> tuple[str, str] | None:
    """Start the ranks and wait for them.

    Returns:
        The kind and the message of the error; None if all ranks exited with 0.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    ranks, port = assignment.task.ranks, assignment.task.job.training.parallel.port
    safe_path = ["-P"] if sys.version_info >= (3, 11) else []
    command = [*safe_path, "-m", "benchsuite.worker", task_file]
    for attempt in range(1, TRIES + 1):
        member = assignment.member or Member(
            node=0, nodes=1, ranks=ranks, address="127.0.0.1", port=port or _free_port()
        )
        config = LaunchConfig(
            min_nodes=member.nodes,
            max_nodes=member.nodes,
            nproc_per_node=member.ranks,
            run_id=f"benchsuite-{member.port if assignment.member else os.getpid()}-{attempt}",
            rdzv_backend="static",  # the launcher of the first part serves the rendezvous, at exactly this port
            rdzv_endpoint=f"{member.address}:{member.port}",
            rdzv_configs={"rank": member.node, "timeout": RENDEZVOUS_S},
            local_addr=member.address,
            max_restarts=0,
            monitor_interval=0.1,
        )
        exits = Exits(Path(pulse_file(assignment.events)), ranks, events)
        try:
            with exits:
                elastic_launch(config, sys.executable)(*command)
        except ChildFailedError as error:
            codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
            exits.settle(codes)
            return _stuck(exits, ranks) or _failed(codes, ranks)
        except (RuntimeError, OSError) as error:
            # Another process may take the port between its choice and its use.
            if "address already in use" not in str(error).lower() and "EADDRINUSE" not in str(error):
                return "rendezvous", f"the ranks could not meet: {str(error).strip().splitlines()[0]}"
            if assignment.member:
                return "rendezvous", f"the ranks could not meet: port {member.port} of {member.address} is in use"
            if port or attempt == TRIES:
                where = f"port {port} (parallel.port)" if port else f"a port, in {TRIES} tries"
                return "rendezvous", f"the ranks could not meet: {where} is in use"
        else:
            exits.settle({})
            return None
    raise AssertionError


def _free_port() -> int:
    """A TCP port that the system chooses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _port_in_use(port: int, *, given: bool) -> tuple[str, str] | None:
    """The error if a port is in use; None if it is free.

    torch would connect to whatever listens there and wait for minutes.

    Args:
        given: the profile names the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            of = " (parallel.port)" if given else ""
            message = f"the ranks could not meet: port {port}{of} cannot be used: {reason(error)}"
            return "rendezvous", f"{message}; give another, or leave it out" if given else message
    return None


def _stuck(exits: Exits, ranks: int) -> tuple[str, str] | None:
    """The error of ranks that did not exit with the first one; None if all did. A rank that left early is the cause."""
    if not exits.stuck:
        return None
    others = ", ".join(map(str, sorted(exits.stuck)))
    message = f"rank {exits.left} of {ranks} exited; {TOGETHER_S:g} s later these had not, and were killed: {others}"
    return "silent", message


def _failed(codes: Mapping[int, int], ranks: int) -> tuple[str, str]:
    """The kind and the message of the error of the rank that probably failed first.

    The other ranks fail because they lost it: a rank that was killed is named before a rank that exited. The parent
    relies on this only if nothing better is known from the ranks and from `Exits`.

    Args:
        codes: rank -> exit code, of the ranks that failed.
    """
    killed = {rank: -code for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM}
    if killed:
        rank, signum = min(killed.items())
        name = signal.Signals(signum).name
        return name, f"rank {rank} of {ranks} was killed by {name}"
    # A rank that lost another reports that and exits with 1, so any other status is the cause.
    silent = {rank: code for rank, code in codes.items() if code not in (1, -signal.SIGTERM)}
    rank, code = min((silent or codes).items())
    return "rank", f"rank {rank} of {ranks} exited with status {code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
