"""Start a process tree in a session of its own, with output to files, and end all of it and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import psutil

from benchsuite.host.kernel_files import descendants, started_ticks
from benchsuite.writing import open_own

# Every process of a tree inherits this variable. It identifies even one that left its session and its parent.
MARK = "BENCHSUITE_TREE"
KILL_LIMIT_S = 10.0
# What `last_lines` reads of a log.
_LAST_LINES, _LAST_BYTES = 20, 8192


class Root(Protocol):
    """The root of a tree: a `Popen`, or a process that was forked elsewhere and is a child of this one."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired: it still runs after `timeout` seconds."""


@dataclass(frozen=True)
class Tree:
    """A started process and all that descend from it.

    Attributes:
        process: the root.
        ticks: when the root began, in clock ticks since boot; None if it had ended before that could be read.
        mark: the value of the variable `MARK` that all processes of the tree inherit.
    """

    process: Root
    ticks: int | None
    mark: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self.process.poll()

    def members(self) -> list[psutil.Process]:
        """All living processes of the tree, found by descent, by session, or by the mark that they inherited."""
        found: dict[int, psutil.Process] = {}
        for pid in (self.pid, *descendants(self.pid)) if self.process.returncode is None else ():
            with contextlib.suppress(psutil.Error):
                found[pid] = psutil.Process(pid)
        for process in psutil.process_iter():
            if process.pid not in found and process.pid != os.getpid() and self._owns(process):
                found[process.pid] = process
        return [p for p in found.values() if _alive(p)]

    def _owns(self, process: psutil.Process) -> bool:
        try:
            if process.uids().real != os.getuid():
                return False
            return self._in_session(process.pid) or process.environ().get(MARK) == self.mark
        except (psutil.Error, OSError):
            return False

    def _in_session(self, pid: int) -> bool:
        """Is the process in the tree's session? One that began before the root is of an older session of that id."""
        began = started_ticks(pid)
        return os.getsid(pid) == self.pid and None not in (began, self.ticks) and (began or 0) >= (self.ticks or 0)

    def terminate(self) -> None:
        """SIGTERM to the whole tree, without waiting."""
        _signal(self.members(), signal.SIGTERM)

    def kill(self, limit_s: float = KILL_LIMIT_S) -> None:
        """SIGKILL until nothing is left of the tree; at least once, however long the search for its processes takes.

        Args:
            limit_s: the time after which to give up, since a process that is stuck in the kernel does not end.
        """
        deadline = time.monotonic() + limit_s
        while left := self.members():
            _signal(left, signal.SIGKILL)
            if time.monotonic() >= deadline:
                break
            self.wait_gone(0.2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1.0)

    def wait_gone(self, limit_s: float) -> None:
        """Wait until nothing is left of the tree, for at most this long."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self.process.poll()
            if not self.members():
                return
            time.sleep(0.05)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(processes: Sequence[psutil.Process], signum: int) -> None:
    """Signal each process. psutil compares the start time first, so a reused pid is never signalled."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signum)


def start(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    mark: str,
    out: Path,
    err: Path,
    given: Path = Path(os.devnull),
    pass_fds: Sequence[int] = (),
) -> Tree:
    """Start a command in a session of its own.

    Args:
        mark: see `Tree`.
        out, err: the files to which its output is appended, byte for byte.
        given: the file that it reads as its standard input.
        pass_fds: the file descriptors that it inherits.

    Raises:
        OSError: the program cannot be started, or a file cannot be opened.
        ValueError: the locale cannot encode a word of the command or of the environment.
    """
    with given.open("rb") as stdin, _appended(out) as stdout, _appended(err) as stderr:
        process = subprocess.Popen(
            command,
            env={**environ, MARK: mark},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    return Tree(process, started_ticks(process.pid), mark)


def _appended(path: Path) -> BinaryIO:
    return os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def last_lines(path: Path) -> str:
    """The last 20 lines of a log, at most 8 KiB, undecodable bytes replaced; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LAST_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_LAST_LINES:]).strip()


def signal_name(exit_code: int) -> str | None:
    """ "SIGKILL" for -9; None for an exit code that stands for no signal."""
    if exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def signal_of(exit_code: int) -> str | None:
    """As `signal_name`, and also "SIGKILL" for 137, by which a shell reports that a signal ended its command."""
    through_shell = exit_code - 128 in signal.Signals.__members__.values()
    return signal_name(128 - exit_code if through_shell else exit_code)


def exit_in_words(exit_code: int | None) -> str:
    """How a process ended that should not have ended yet, to follow its name.

    Args:
        exit_code: negative for a signal.
    """
    if not exit_code:
        return "exited with 0 before its end"
    if exit_code < 0:
        return f"was killed by {signal_name(exit_code)}"
    words = f"exited with status {exit_code}"
    if signal_of(exit_code):
        number = exit_code - 128
        words += f", probably signal {number} ({(signal.strsignal(number) or '').lower()})"
    return words
