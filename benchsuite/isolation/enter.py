"""Enter control groups and CPUs, then become a command: `enter.py --join FILE ... --cpus 0,1 -- COMMAND ARGUMENT ...`.

It is a program of its own between fork and exec, so that nothing of the command runs outside its fence. It needs the
standard library only. If a group cannot be entered or the command cannot be started, it prints one line on stderr and
exits with 125.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

FAILED = 125
NAME = "benchsuite.isolation.enter"


def prefix(join: Sequence[Path], cpus: Sequence[int] = (), *, always: bool = False) -> list[str]:
    """The words to put before a command; empty if there is nothing to enter, unless `always`.

    Args:
        join: the `cgroup.procs` files of the groups, in the order in which the process enters them.
        cpus: the CPUs to run on; empty for no change.
    """
    if not join and not cpus and not always:
        return []
    # By its path, and with -I: nothing in the current folder or on PYTHONPATH can shadow it.
    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve())]
    for file in join:
        words += ["--join", str(file)]
    if cpus:
        words += ["--cpus", ",".join(map(str, cpus))]
    return [*words, "--"]


def main(words: Sequence[str]) -> int:
    """Enter and become the command; returns only if that fails."""
    try:
        files, cpus, command = _parse(words)
        die_with_parent()
        enter(files, cpus)
        # Python ignores these two signals, and the command would inherit that.
        for signum in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        print(refusal(error), file=sys.stderr)
    except ValueError as error:
        print(f"benchsuite: {NAME}: {error}", file=sys.stderr)
    return FAILED


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, even after `exec`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG


def enter(files: Sequence[str], cpus: Sequence[int]) -> None:
    """Move this process into groups, by their `cgroup.procs` files, and to CPUs; empty for no change.

    Raises:
        OSError: one cannot be entered.
    """
    for file in files:
        _join(file)
    if cpus:
        os.sched_setaffinity(0, cpus)


def refusal(error: OSError) -> str:
    """The line for a task that cannot enter its fence or start there."""
    where = f"{error.filename}: " if error.filename else ""
    return f"benchsuite: cannot start the task in its fence: {where}{error.strerror}"


def _join(file: str) -> None:
    try:
        handle = os.open(file, os.O_WRONLY)
        try:
            os.write(handle, b"0")
        finally:
            os.close(handle)
    except OSError as error:
        raise OSError(error.errno, error.strerror, file) from None


def _parse(words: Sequence[str]) -> tuple[list[str], list[int], list[str]]:
    files: list[str] = []
    cpus: list[int] = []
    rest = list(words)
    while rest and rest[0] != "--":
        option = rest.pop(0)
        if option not in ("--join", "--cpus") or not rest:
            raise ValueError(f"not understood: {option!r}")
        if option == "--join":
            files.append(rest.pop(0))
        else:
            cpus = [int(cpu) for cpu in rest.pop(0).split(",")]
    if len(rest) < 2:
        raise ValueError("no command after '--'")
    return files, cpus, rest[1:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
