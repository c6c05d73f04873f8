"""End the Slurm jobs of a run, and no others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchsuite.cluster import slurm
from benchsuite.cluster.fleet import Fleet
from benchsuite.cluster.slurm import SlurmJob

# benchsuite gives its tasks 5 s to end; Slurm needs a moment to pass a signal on.
GRACE_S = 20.0
# Slurm kills what does not end within KillWait, by default 30 s.
GONE_S = 60.0


@dataclass(frozen=True)
class Stopped:
    """How many jobs were ended, and the ids of those that are still there."""

    ended: int
    left: tuple[str, ...]


def live_jobs(fleet: Fleet) -> list[SlurmJob]:
    """The jobs of a run that have not ended, by their name and their comment.

    Raises:
        SlurmError: Slurm does not answer.
    """
    return [job for job in slurm.jobs(fleet.job_name) if not job.ended and fleet.from_comment(job.comment)]


def stop(fleet: Fleet, hurried: Callable[[], bool] = lambda: False, every_s: float = 0.5) -> Stopped:
    """Cancel the jobs that wait, ask those that run to end, and cancel them after a grace.

    Args:
        hurried: whether the user wants the end now: the grace is then over.
        every_s: seconds between two looks.

    Raises:
        SlurmError: Slurm does not answer.
    """
    before = live_jobs(fleet)
    slurm.cancel(job.id for job in before if job.pending)
    slurm.ask_to_end(job.id for job in before if not job.pending)
    began_s, cancelled = time.monotonic(), False
    while left := live_jobs(fleet):
        gone_s = time.monotonic() - began_s
        if not cancelled and (hurried() or gone_s > GRACE_S):
            slurm.cancel(job.id for job in left)
            cancelled = True
        if gone_s > GRACE_S + GONE_S:
            break
        time.sleep(every_s)
    return Stopped(len(before) - len(left), tuple(job.id for job in left))
