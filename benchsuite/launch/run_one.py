"""Run one task alone, in a folder that is kept or a temporary one, and return its result."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import ProfileUsed, Task
from benchsuite.errors import Interrupted, OutputError, UsageError, reason
from benchsuite.files import look
from benchsuite.isolation.fencing import Isolation
from benchsuite.launch.progress import Progress, Verdict
from benchsuite.launch.session import Invocation, execute
from benchsuite.records import Machine, Result
from benchsuite.rundir import write_result
from benchsuite.schema import to_json
from benchsuite.writing import write_new


@dataclass(frozen=True)
class Judge:
    """What the read side says of a result, and of tasks before they start; see `Progress`."""

    verdict: Callable[[Result], Verdict]
    foresee: Callable[[Sequence[Task]], Sequence[str]]


def run_single(
    task: Task,
    profile: ProfileUsed,
    machine: Machine,
    environ: Mapping[str, str],
    judge: Judge,
    folder: Path | None = None,
    like: Result | None = None,
) -> tuple[Result, int]:
    """Run one task.

    Returns:
        The result, and the exit status of the command.

    Args:
        folder: a new run folder that is kept; a temporary one if None.
        like: a result whose isolation and share of the machine are used again.

    Raises:
        OutputError: the folder cannot be written, or the result could not be written there.
        UsageError: the task writes checkpoints, and no folder is kept.
        Interrupted: a signal asked for the end before there was a result.
    """
    if folder is None and task.job.by_epochs and task.job.checkpoints != "none":
        remedy = "name a folder with 'benchsuite run -o', put the job into a profile for 'jobs', or add"
        raise UsageError(f"{task.id}: its checkpoints need a run folder; {remedy} '-- --checkpoints none'")
    results: list[Result] = []
    progress = Progress(judge.verdict, keep=results.append, foresee=judge.foresee, logs_stay=folder is not None)
    with nullcontext(str(folder)) if folder else tempfile.TemporaryDirectory(prefix="benchsuite-") as place:
        try:
            plan = plan_of([task])
            how = Invocation(machine, environ, sys.argv)
            if like:
                asked = cast(Isolation, like.tenant.isolation or "auto")
                how = replace(how, isolation=asked, share=like.tenant)
            execute(plan, profile, Path(place), progress, how)
        except Interrupted as error:
            if not results:
                raise
            return results[0], error.exit_code
    if progress.problems and folder:
        raise OutputError(progress.problems[0])
    return results[0], {"ok": 0, "skipped": 3}.get(results[0].status, 1)


def check_file(path: Path) -> None:
    """Can a result be written here later?

    Raises:
        OutputError: the file exists, or its folder is missing or cannot be written.
    """
    if look(path):
        raise OutputError(f"{path}: the file exists and is not overwritten; name another with -o")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".tmp"):
            pass
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {reason(error)}") from None


def keep(result: Result, path: Path) -> Path:
    """Write a result to exactly this file, or into this folder under its usual name.

    Raises:
        OutputError: it cannot be written, or the file exists by now.
    """
    try:
        if path.suffix == ".json":
            write_new(path, to_json(result, indent=2))
            return path
        return write_result(path, result, datetime.now(timezone.utc))
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {reason(error)}") from None
