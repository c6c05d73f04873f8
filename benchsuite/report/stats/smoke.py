"""A run that checks function only: which of its jobs train. It has no score."""

from __future__ import annotations

from dataclasses import dataclass

from benchsuite.report.read.load import INSUFFICIENT
from benchsuite.report.read.summary import JobSummary, Summary

TAG = "smoke"
NO_SCORE = f"the jobs are tagged `{TAG}`; their measurement is too short to judge a machine by"


@dataclass(frozen=True)
class SmokeCheck:
    """Which jobs train.

    Attributes:
        jobs: all jobs.
        failed: the jobs of which a task fails, with the number of such tasks.
        unfinished: the other jobs of which a task has not ended.
    """

    jobs: tuple[JobSummary, ...]
    failed: tuple[tuple[JobSummary, int], ...]
    unfinished: tuple[JobSummary, ...]

    @property
    def train(self) -> int:
        """The number of jobs of which every task trains."""
        return len(self.jobs) - len(self.failed) - len(self.unfinished)


def smoke_check(summary: Summary) -> SmokeCheck | None:
    """The check of a run all of whose jobs carry the tag `smoke`; None for any other run."""
    if not summary.jobs or not all(TAG in job.tags for job in summary.jobs):
        return None
    failed = tuple((job, failures) for job in summary.jobs if (failures := _failures(job)))
    well = [job for job in summary.jobs if not _failures(job)]
    return SmokeCheck(summary.jobs, failed, tuple(job for job in well if job.to_run))


def failing(summary: Summary, job: JobSummary) -> int:
    """The tasks of a job that fail. In a run that checks function, a task that is too short for a window trains."""
    return job.fail if smoke_check(summary) is None else _failures(job)


def _failures(job: JobSummary) -> int:
    """The tasks that fail. A task that is too short for a window trains."""
    return job.fail - sum(task.status == INSUFFICIENT for task in job.tasks)
