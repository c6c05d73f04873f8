"""Whether a task can get a number at all, judged by the limits of its job before it starts. Light to import."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchsuite.describe.tasks import Job, Task
from benchsuite.report.measure.window import END_CUT_S, MIN_WINDOW_S

# The shortest measurement that can give a number, and one that gives it also with slices that do not fit evenly.
NEEDED_S = MIN_WINDOW_S + END_CUT_S
SAFE_S = NEEDED_S + 1.0
_NAMED = 5


@dataclass(frozen=True)
class Doubt:
    """Why a job may get no number.

    Attributes:
        certain: no task of the job can get one.
        reason, remedy: in words.
    """

    certain: bool
    reason: str
    remedy: str


def doubt(job: Job) -> Doubt | None:
    """Why a job cannot get a number, or may get none; None if its limits leave enough time."""
    needed = f"and a number needs {NEEDED_S:g} s"
    least_s = min(job.min_time_s, job.max_time_s)
    longer = f"--min-time-s {SAFE_S:g}"
    if job.max_time_s < SAFE_S:
        longer += f" --max-time-s {2 * SAFE_S:g}"
    counted = f"max_count {job.max_count}" if job.max_count else f"max_steps {job.max_steps}" if job.max_steps else ""
    if job.max_time_s < NEEDED_S:
        return Doubt(True, f"the measurement ends after max_time_s {job.max_time_s:g}, {needed}", longer)
    if counted and least_s < NEEDED_S:
        return Doubt(False, f"{counted} may end the measurement within {NEEDED_S:g} s, {needed}", longer)
    if least_s < NEEDED_S:
        return Doubt(True, f"the measurement ends after min_time_s {job.min_time_s:g}, {needed}", longer)
    if least_s < SAFE_S and not counted:
        return Doubt(False, f"the measurement ends after {least_s:g} s, {needed} of whole slices", longer)
    return None


def warnings(tasks: Sequence[Task]) -> list[str]:
    """The jobs among these tasks that cannot or may not get a number, each with reason and remedy, a line each.

    Trainings by epochs need no number.
    """
    run = {task.cell: task.job for task in tasks if task.skip is None and not task.job.by_epochs}
    doubts = {cell: found for cell, job in run.items() if (found := doubt(job))}
    alike: dict[Doubt, list[str]] = defaultdict(list)
    for cell, found in doubts.items():
        alike[found].append(cell)
    lines = []
    for found, cells in alike.items():
        what = "cannot get a number" if found.certain else "may get no number"
        lines.append(f"warning: {_names(cells)} {what}: {found.reason}. Remedy: -- {found.remedy}")
    if run and all(cell in doubts and doubts[cell].certain for cell in run):
        lines.append(
            "warning: no task of this run can get a number. The run starts: it shows whether the jobs train. "
            "The report counts its tasks as failed."
        )
    return lines


def _names(cells: Iterable[str]) -> str:
    names = list(cells)
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more jobs"
