"""End the Slurm jobs of a run on many nodes, after a signal or for `benchsuite stop`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands._nodes import quoted, say
from benchsuite.errors import Interrupted

if TYPE_CHECKING:
    from benchsuite.cluster.fleet import Fleet


def end_or_leave(fleet: Fleet, signum: int, shown: Path) -> None:
    """End the jobs of the run or leave them: at Ctrl-C the user answers, and a terminal that closes leaves them.

    Raises:
        Interrupted: always.
    """
    from benchsuite.cluster.stopping import live_jobs
    from benchsuite.describe.invocation import program

    left = live_jobs(fleet)
    if left and (signum == signal.SIGHUP or not _wants_end(len(left), signum)):
        say(f"{jobs_of(len(left))} left in Slurm.", f"Watch: {program()} status {quoted(shown)}")
    elif left:
        end_jobs(fleet)
    say(f"Continue: {program()} jobs --resume {quoted(shown)}")
    raise Interrupted(signum)


def _wants_end(count: int, signum: int) -> bool:
    """Whether the jobs are to end: at Ctrl-C on a terminal the user is asked, and a second Ctrl-C says yes."""
    if signum != signal.SIGINT or not sys.stdin.isatty() or not sys.stderr.isatty():
        return True
    try:
        return click.confirm(f"End the {jobs_of(count)} of this run?", default=True, err=True)
    except click.Abort:
        return True


def end_jobs(fleet: Fleet) -> bool:
    """End the jobs of a run, and say what is left; whether nothing is."""
    from benchsuite.cluster.stopping import stop
    from benchsuite.launch.interrupt import Interrupt

    say("ending the jobs: running tasks have some seconds to end; Ctrl-C cancels them at once")
    with Interrupt() as again:
        done = stop(fleet, again.asked)
    say(f"{jobs_of(done.ended)} ended." + (f" Slurm still has {', '.join(done.left)}." if done.left else ""))
    return not done.left


def jobs_of(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"
