"""Ask how all nodes of a run stand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from benchsuite.cluster import slurm
from benchsuite.cluster.fleet import Fleet, FleetDir, Submitted
from benchsuite.cluster.slurm import SlurmJob
from benchsuite.cluster.states import NodeStatus, node_status
from benchsuite.cluster.tally import Tallies
from benchsuite.errors import OutputError, one_line
from benchsuite.host import kernel_files


class Survey:
    """Looks at the nodes of a run, once or again and again.

    Attributes:
        fleet: the run's record.
    """

    def __init__(self, folder: FleetDir) -> None:
        self.folder, self.fleet = folder, folder.fleet()
        self._tallies = Tallies()

    def look(self) -> list[NodeStatus]:
        """How each node stands now, in the order of the run.

        Raises:
            SlurmError: Slurm does not answer.
            ResultError: the record of the jobs cannot be read.
        """
        lines = self.folder.submitted()
        newest = _newest(self.fleet, lines)
        known = _by_job(lines)
        seen = {job.id: job for job in slurm.jobs(self.fleet.job_name)}
        for job in seen.values():  # a job that Slurm took, but whose line a crash kept from being written
            of = self.fleet.from_comment(job.comment)
            if of and of[1] > newest.get(of[0], ("", 0))[1]:
                newest[of[0]] = job.id, of[1]
        gone = [id for id, _ in newest.values() if id not in seen and id not in known]
        seen |= {job.id: job for job in slurm.accounted(gone)}
        found = []
        for node in self.fleet.runs:
            job_id, submission = newest.get(node, (None, 0))
            before = known.get(job_id) if job_id else None
            now = (seen.get(job_id) if job_id else None) or before
            if before and before.state == slurm.NEVER_STARTED:
                now = before
            elif now and now.ended and (before is None or before.state != now.state):
                self.remember(node, submission, now)
            found.append(self._status(node, job_id, submission, now))
        return found

    def _status(self, node: str, job_id: str | None, submission: int, job: SlurmJob | None) -> NodeStatus:
        left = kernel_files.whole(kernel_files.read(self.folder.end(node, submission)) or "") if job_id else None
        status = node_status(node, job_id, job, left, self._tallies.of(self.folder.node(node)))
        if status.word in ("refused", "failed", "nothing ran"):
            details = filter(None, [status.detail, last_line(self.folder.log(node, submission))])
            return NodeStatus(node, status.word, "; ".join(details), job_id, status.tally)
        return status

    def give_up(self, status: NodeStatus) -> None:
        """Cancel the job of a node that waits for ever, and note why.

        Raises:
            SlurmError: Slurm does not answer.
        """
        assert status.job_id
        slurm.cancel([status.job_id])
        submission = _newest(self.fleet, self.folder.submitted()).get(status.node, ("", 1))[1]
        reason = f"the job would never start ({status.detail}), so that benchsuite has cancelled it"
        self.remember(status.node, submission, SlurmJob(id=status.job_id, state=slurm.NEVER_STARTED, reason=reason))

    def remember(self, node: str, submission: int, job: SlurmJob) -> None:
        """Note how a job ended: Slurm forgets it after some minutes."""
        line = Submitted(
            node=node,
            submission=submission,
            job_id=job.id,
            at=datetime.now(timezone.utc).isoformat(),
            state=job.state,
            exit_code=job.exit_code,
            reason=job.reason,
        )
        try:
            self.folder.note(line)
        except OutputError:
            return  # another user's run, which this one may only read


def _newest(fleet: Fleet, lines: Iterable[Submitted]) -> dict[str, tuple[str, int]]:
    """The id of each node's newest job, and the number of its submission."""
    found: dict[str, tuple[str, int]] = {}
    for line in lines:
        if line.node in fleet.runs and line.submission >= found.get(line.node, ("", 0))[1]:
            found[line.node] = line.job_id, line.submission
    return found


def _by_job(lines: Iterable[Submitted]) -> dict[str, SlurmJob]:
    """The jobs whose end was noted, by their ids."""
    return {
        line.job_id: SlurmJob(id=line.job_id, state=line.state, exit_code=line.exit_code, reason=line.reason)
        for line in lines
        if line.state
    }


def last_line(log: Path) -> str:
    """The last line that a node printed, without benchsuite's name; empty if there is none."""
    lines = [line for line in kernel_files.lines(log) if line.strip()]
    return one_line(lines[-1]).removeprefix("benchsuite: ") if lines else ""
