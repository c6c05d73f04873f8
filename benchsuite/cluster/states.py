"""How a node of a run stands, from Slurm's word, the exit status of its script, and its own results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from benchsuite.cluster.script import NO_CWD, NO_OUT, NO_PYTHON, TIME_LIMIT
from benchsuite.cluster.slurm import NEVER_STARTED, SlurmJob
from benchsuite.cluster.tally import Tally

Word = Literal[
    "not submitted",
    "waiting",
    "starting",
    "running",
    "ok",
    "tasks failed",
    "refused",
    "nothing ran",
    "stopped",
    "cancelled",
    "time limit",
    "node failure",
    "out of memory",
    "preempted",
    "failed",
    "lost",
]
_LIVE = {"waiting", "starting", "running"}
# The states of Slurm in which a job ended before its script did.
_CUT_OFF: dict[str, Word] = {
    "BOOT_FAIL": "node failure",
    "CANCELLED": "cancelled",
    "DEADLINE": "time limit",
    NEVER_STARTED: "refused",
    "NODE_FAIL": "node failure",
    "OUT_OF_MEMORY": "out of memory",
    "PREEMPTED": "preempted",
    "REVOKED": "cancelled",
    "STOPPED": "cancelled",
    "TIMEOUT": "time limit",
}
_BY_EXIT: dict[int, tuple[Word, str]] = {
    0: ("ok", ""),
    1: ("tasks failed", ""),
    2: ("refused", ""),
    3: ("nothing ran", ""),
    129: ("stopped", ""),
    130: ("stopped", ""),
    143: ("stopped", ""),
    NO_OUT: (
        "refused",
        "the node does not see the results folder, or cannot write to it; name one on a shared file system with -o",
    ),
    NO_PYTHON: (
        "refused",
        "benchsuite does not start on the node; install it on a shared file system, or name an image with --container",
    ),
    NO_CWD: ("refused", "the node does not see the working folder; start from a folder on a shared file system"),
    TIME_LIMIT: ("time limit", "the time limit of the job was near"),
}
# Why a pending job never starts, whatever becomes of other jobs.
_NEVER = re.compile(
    r"BadConstraints|DependencyNeverSatisfied|Partition(Config|NodeLimit|TimeLimit)|Invalid(Account|QOS)"
    r"|(Account|QOS)NotAllowed|MaxMemPerLimit|(Assoc|QOS)\w*Per(Job|Node)\w*"
)
# Why a pending job does not start before an administrator acts.
_DOWN = re.compile(r"NodeDown|PartitionDown|PartitionInactive|.*UnavailableNodes:|.*are_?\s?DOWN")


@dataclass(frozen=True)
class NodeStatus:
    """How a node stands.

    Attributes:
        detail: the reason, in words; empty if there is nothing to say.
        job_id: its newest Slurm job; None if none was submitted.
        tally: how far its run has come; None if it has not begun.
        stays: a waiting job never starts ("never"), or not before an administrator acts ("down").
    """

    node: str
    word: Word
    detail: str = ""
    job_id: str | None = None
    tally: Tally | None = None
    stays: Literal["never", "down"] | None = None

    @property
    def live(self) -> bool:
        """Whether Slurm still has its job in the queue or running."""
        return self.word in _LIVE

    @property
    def to_run(self) -> bool:
        """Whether tasks of the node are left that a resume would run."""
        return not self.live and not (self.tally and self.tally.complete)


def node_status(
    node: str, job_id: str | None, job: SlurmJob | None, left_exit: int | None, tally: Tally | None
) -> NodeStatus:
    """How a node stands.

    Args:
        job_id: its newest job; None if none was submitted.
        job: what Slurm says of that job; None if it has forgotten it.
        left_exit: the exit status that the script left behind; None if it left none.
    """
    if job_id is None:
        return NodeStatus(node, "not submitted", tally=tally)
    if job and job.pending:
        return NodeStatus(node, "waiting", *_why_waiting(job), job_id=job_id, tally=tally, stays=_stays(job.reason))
    if job and not job.ended:
        if tally is None:
            return NodeStatus(node, "starting", job_id=job_id)
        return NodeStatus(node, "running", tally.now or "", job_id, tally)
    word, detail = _ended(job, left_exit, tally)
    return NodeStatus(node, word, detail, job_id, tally)


def _why_waiting(job: SlurmJob) -> tuple[str]:
    again = f"restarted by Slurm, restart {job.restarts}; " if job.restarts else ""
    return (f"{again}{job.reason}" if job.reason not in ("", "None") else again.removesuffix("; "),)


def _stays(reason: str) -> Literal["never", "down"] | None:
    if _NEVER.match(reason):
        return "never"
    return "down" if _DOWN.match(reason) else None


def _ended(job: SlurmJob | None, left_exit: int | None, tally: Tally | None) -> tuple[Word, str]:
    """The status of a node whose job is over. What the script left counts more than Slurm's word.

    A script that Slurm ends leaves the exit status of an interrupted run: then Slurm's word says why.
    """
    cut_off = _CUT_OFF.get(job.state) if job else None
    if job and cut_off and left_exit not in (0, 1, TIME_LIMIT):
        if job.state == NEVER_STARTED or _NEVER.match(job.reason):
            return "refused", job.reason
        return cut_off, f"Slurm reports {job.state}"
    exit = left_exit if left_exit is not None else job.exit_code if job else None
    if exit in _BY_EXIT:
        return _BY_EXIT[exit]
    if job and job.reason == "JobLaunchFailure":
        return "refused", "Slurm could not start the script on the node; its slurmd log says why"
    if exit is not None:
        return "failed", f"the script ended with exit status {exit}"
    if tally and tally.complete:
        return ("ok" if set(tally.statuses) <= {"ok"} else "tasks failed"), ""
    if job:
        return "failed", f"Slurm reports {job.state}"
    return "lost", "Slurm has forgotten the job, and its script left no exit status"
