"""The file of a summary: reading, with a check for figures that no run can measure, and writing."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from benchsuite.errors import ResultError, one_line
from benchsuite.report.measure.intervals import perf_adjusted
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.rundir import read_record
from benchsuite.schema import to_json
from benchsuite.writing import write_for_user


def read_summary(path: Path) -> Summary:
    """Read a summary.

    Raises:
        ResultError: the file is unreadable or not a summary, or holds figures that no run can measure.
    """
    summary = _todays(read_record(path, Summary))
    for job in summary.jobs:
        if reason := _impossible(job):
            raise ResultError(f"{path}: job '{one_line(job.name)}': {reason}; name a summary as it was written")
    return summary


def _todays(summary: Summary) -> Summary:
    """The summary with tasks that never ended in `to_run`: an earlier version counts them as failures."""
    if not any(job.not_run > job.to_run for job in summary.jobs):
        return summary
    return replace(summary, jobs=tuple(_unfinished(job) if job.not_run > job.to_run else job for job in summary.jobs))


def _unfinished(job: JobSummary) -> JobSummary:
    job = replace(job, fail=job.fail - job.not_run, to_run=job.not_run)
    state = "never run" if job.to_run == job.n else "unfinished"
    return replace(job, state=state, perf_adj=perf_adjusted(job.perf, job.std, job.ended, job.fail))


def _impossible(job: JobSummary) -> str | None:
    """The first figure of a job that no run can measure, in words."""
    if not 0 <= job.fail <= job.n or not 0 <= job.to_run <= job.n:
        return f"fail {job.fail} and to_run {job.to_run} of n {job.n}"
    if job.perf is not None and job.perf < 0:
        return f"perf {job.perf:g} is below 0"
    if not 0 <= job.perf_adj <= (job.perf or 0.0) * (1 + 1e-9):
        return f"perf_adj {job.perf_adj:g} does not lie between 0 and perf"
    if job.unit_factor is not None and job.unit_factor <= 0:
        return f"unit_factor {job.unit_factor:g} is not above 0"
    return None


def write_summary(path: Path, summary: Summary) -> None:
    """Write a summary to a new file.

    Raises:
        OutputError: the file exists already, or cannot be written.
    """
    write_for_user(path, to_json(summary, indent=2), "-o")
