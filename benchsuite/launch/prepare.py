"""What a profile asks for before a job: commands in turn, bounded in time, their trees ended whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchsuite.launch import process
from benchsuite.records import Failure
from benchsuite.tasks import Job


def prepare(
    job: Job,
    environ: Mapping[str, str],
    log: Path,
    interrupted: Callable[[], bool],
    started: Callable[[process.Tree], None],
) -> Failure | None:
    """Run a job's `prepare`; why the job may not start, or None.

    Args:
        log: the file that keeps the commands' output.
        interrupted: looked at while a command runs; True ends it.
        started: told of each command's tree, so that a later run can find what a crash leaves of it.
    """
    commands = [job.prepare] if isinstance(job.prepare, str) else list(job.prepare)
    deadline = time.monotonic() + job.timeout_s
    for number, command in enumerate(commands):
        shown = command if isinstance(command, str) else " ".join(command)
        try:
            tree = process.start(command, environ=environ, mark=f"prepare.{time.monotonic_ns()}", out=log, err=log)
        except (OSError, ValueError) as error:  # ValueError: what this locale cannot hand to a child
            return Failure(kind="prepare", message=f"prepare command {number + 1} '{shown}': {error}")
        started(tree)
        exit_code = _wait(tree, deadline, interrupted)
        if exit_code is None and not interrupted():
            message = f"prepare command {number + 1} '{shown}' did not end within {job.timeout_s:g} s"
            return Failure(kind="prepare", message=message, traceback=process.last_lines(log))
        if exit_code != 0:
            how = process.signal_name(exit_code or 0) or f"status {exit_code}"
            message = f"prepare command {number + 1} '{shown}' ended with {how}"
            return Failure(kind="prepare", message=message, traceback=process.last_lines(log))
    return None


def _wait(tree: process.Tree, deadline: float, interrupted: Callable[[], bool]) -> int | None:
    """The exit code; None where the command was ended by the limit or the user."""
    while (exit_code := tree.poll()) is None:
        if time.monotonic() > deadline or interrupted():
            tree.stop()
            return None
        time.sleep(0.05)
    tree.kill()
    return exit_code
