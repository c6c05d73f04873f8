"""Run the set-up commands of a job, one after the other, within a limit of time; none of their processes is left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.errors import reason
from benchsuite.isolation import enter
from benchsuite.isolation.tenant import Tenant
from benchsuite.launch import process
from benchsuite.launch.context import RunContext, WaveContext, WaveError
from benchsuite.launch.supervise import Ended, bounded, supervise
from benchsuite.records import Failure


@contextmanager
def set_up(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
    """Run the job's `prepare` commands once for the wave, in a group of their own.

    Their output goes to the log of the wave's first task.

    Raises:
        WaveError: a command fails, or all together take longer than the job's timeout.
    """
    task = wave.tasks[0]
    job = task.job
    commands = [["sh", "-c", job.prepare]] if isinstance(job.prepare, str) and job.prepare else list(job.prepare)
    if commands:
        whole = msgspec.structs.replace(task, job=msgspec.structs.replace(job, tenant="machine"))
        why_end = bounded(time.monotonic() + job.timeout_s, run.asked_to_stop)
        with run.fenced([whole]) as (tenant,):
            for number, command in enumerate(commands, 1):
                shown = job.prepare if isinstance(job.prepare, str) else " ".join(command)
                problem = _command(command, run, task, tenant, why_end)
                if problem:
                    why, printed = problem
                    message = f"prepare command {number} '{shown}'{why}"
                    raise WaveError(Failure(kind="prepare", message=message, traceback=printed))
    yield wave


def _command(
    command: Sequence[str], run: RunContext, task: Task, tenant: Tenant, why_end: Callable[[], Ended | None]
) -> tuple[str, str | None] | None:
    """Run one command. Why it failed, with the last lines that it printed if it ran; None if it exited with 0."""
    log = run.ledger.log(task, "prepare")
    words = [*(tenant.prefix or enter.prefix((), always=True)), *command]
    environ = {**run.environ, **task.job.env}
    try:
        mark = f"prepare.{os.getpid()}.{time.monotonic_ns()}"
        tree = process.start(words, environ=environ, mark=mark, out=log, err=log)
    except (OSError, ValueError) as error:  # ValueError: the locale cannot encode a word
        return f": {error}", None
    try:
        run.ledger.began("prepare", task, tree)
    except OSError as error:
        tree.kill()
        return f": its start could not be noted: {reason(error)}", None
    exit = supervise(tree, why_end, run.hurried)
    if exit.ended != "exited":
        return f" did not end within {task.job.timeout_s:g} s", process.last_lines(log)
    if exit.code:
        return f" {process.exit_in_words(exit.code)}", process.last_lines(log)
    return None
