"""What to do about a run whose tasks have not all ended, or that has too few repeats: commands that work on it."""

from __future__ import annotations

import math
from collections import defaultdict

from benchsuite.describe.budget import BUDGET, written
from benchsuite.describe.invocation import resume_command
from benchsuite.report.read.load import OPEN
from benchsuite.report.verify.evidence import Evidence

_AGAIN = "make a new run: this one cannot be resumed"


def finish(evidence: Evidence) -> str:
    """How the tasks get an outcome that have none yet."""
    if evidence.loaded.in_progress:
        return "verify it again after its end"
    if not _resumable(evidence):
        return _AGAIN
    return f"finish the run: {resume_command(evidence.path)}"


def more_repeats(evidence: Evidence, wanted: int) -> str:
    """How every job gets a figure in `wanted` repeats.

    A task that has not ended can still give a figure; a failure stands. Each job is counted with both in mind.
    """
    needs = f"an interval needs {wanted}"
    if evidence.run and not _resumable(evidence):
        return f"{needs}: this run cannot be resumed; make a new one with 'benchsuite jobs PROFILE --repeat {wanted}'"
    possible: dict[str, set[int]] = defaultdict(set)
    for row in evidence.loaded.rows:
        possible[row.task.row] |= {row.task.repeat} if row.status == "ok" or row.status in OPEN else set()
    least = min(map(len, possible.values()), default=0)
    planned = len({row.task.repeat for row in evidence.loaded.rows})
    if planned and not least:
        return f"{needs}: a job always fails; remove the cause, and make a new run with --repeat {wanted}"
    more = ("--repeat", str(planned + wanted - least)) if least < wanted else ()
    if more and evidence.run and evidence.run.budget_s is not None:
        more = (BUDGET, written(60 * math.ceil(evidence.run.budget_s * wanted / least / 60)))
    when = "after its end, " if evidence.loaded.in_progress and more else ""
    return f"{needs}: {when}{resume_command(evidence.path, *more)}" if more else f"{needs}: {finish(evidence)}"


def _resumable(evidence: Evidence) -> bool:
    """Whether `jobs --resume` continues the run: it needs run.json with a profile, and plan.json."""
    return bool(evidence.run and evidence.run.profile.text and evidence.loaded.planned)
