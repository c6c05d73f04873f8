"""What a profile asks for before a job: commands in turn, bounded in time, their trees ended whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.errors import UsageError
from benchsuite.isolation import enter
from benchsuite.isolation.fencing import Fencing, Tenant
from benchsuite.launch import process
from benchsuite.launch.ledger import Ledger
from benchsuite.records import Failure


def prepare(
    task: Task, environ: Mapping[str, str], ledger: Ledger, fencing: Fencing, interrupted: Callable[[], bool]
) -> Failure | None:
    """Run a job's `prepare` for its wave, in a group of its own; why the job may not start, or None.

    Args:
        task: the wave's first, whose log keeps the commands' output.
        interrupted: looked at while a command runs; True ends it.
    """
    job = task.job
    commands = [["sh", "-c", job.prepare]] if isinstance(job.prepare, str) and job.prepare else list(job.prepare)
    if not commands:
        return None
    whole = msgspec.structs.replace(task, job=msgspec.structs.replace(job, tenant="machine"))
    try:
        (tenant,) = fencing.fence([whole])
    except UsageError as error:
        return Failure(kind="isolation", message=str(error))
    deadline = time.monotonic() + job.timeout_s
    try:
        for number, command in enumerate(commands, 1):
            shown = job.prepare if isinstance(job.prepare, str) else " ".join(command)
            what = f"prepare command {number} '{shown}'"
            failure = _command(command, what, task, {**environ, **job.env}, ledger, tenant, deadline, interrupted)
            if failure:
                return failure
    finally:
        tenant.kill()
        tenant.close()
    return None


def _command(
    command: Sequence[str],
    what: str,
    task: Task,
    environ: Mapping[str, str],
    ledger: Ledger,
    tenant: Tenant,
    deadline: float,
    interrupted: Callable[[], bool],
) -> Failure | None:
    log = ledger.log(task, "prepare")
    words = [*(tenant.prefix or enter.prefix((), always=True)), *command]
    mark = f"prepare.{os.getpid()}.{time.monotonic_ns()}"
    try:
        tree = process.start(words, environ=environ, mark=mark, out=log, err=log)
    except (OSError, ValueError) as error:  # ValueError: what this locale cannot hand to a child
        return Failure(kind="prepare", message=f"{what}: {error}")
    try:
        ledger.began("prepare", task, tree)
    except OSError as error:
        tree.kill()
        return Failure(kind="prepare", message=f"{what}: its start could not be noted: {error.strerror or error}")
    exit_code = _wait(tree, deadline, interrupted)
    if exit_code == 0:
        return None
    if exit_code is None:
        message = f"{what} did not end within {task.job.timeout_s:g} s"
    else:
        message = f"{what} ended with {process.signal_name(exit_code) or f'status {exit_code}'}"
    return Failure(kind="prepare", message=message, traceback=process.last_lines(log))


def _wait(tree: process.Tree, deadline: float, interrupted: Callable[[], bool]) -> int | None:
    """The exit code; None where the command was ended by the limit or the user."""
    while (exit_code := tree.poll()) is None:
        if time.monotonic() > deadline or interrupted():
            tree.stop()
            return None
        time.sleep(0.05)
    tree.kill()
    return exit_code
