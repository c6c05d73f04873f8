"""Run a plan and show it, from the first line to the last."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands._traces import add_tracks, new_folder
from benchsuite.describe.invocation import program, resume_command
from benchsuite.errors import BenchError, Interrupted, UsageError

if TYPE_CHECKING:
    from benchsuite.describe.tasks import Plan, ProfileUsed
    from benchsuite.launch.progress import Progress
    from benchsuite.launch.session import Invocation


def check_out(out: str | None, resume: bool) -> None:
    """Refuse a value of -o that names no folder of results."""
    if resume and out in (None, "-"):
        raise UsageError("--resume needs the folder of a run: benchsuite jobs --resume OUT")
    if out == "":
        raise UsageError("-o: name a folder")
    if out and out.endswith(".json"):
        raise UsageError(f"-o {out}: 'jobs' writes a file for each task; name a folder")


def run_plan(
    plan: Plan,
    used: ProfileUsed,
    out: str | None,
    resume: bool,
    how: Invocation,
    ended: Callable[[Path], int] = lambda folder: 0,
) -> int:
    """Run a plan in the folder OUT, or in a new one, and show it; the exit status.

    Args:
        ended: called with the folder at the end; gives a further exit status.
    """
    from benchsuite.launch import session
    from benchsuite.launch.progress import Progress, no_warnings
    from benchsuite.launch.resume import Left
    from benchsuite.records import Result
    from benchsuite.report.measure.foresight import warnings
    from benchsuite.report.show.one_line import figure, traced_figure
    from benchsuite.report.stats.rate import alone
    from benchsuite.schema import to_json

    def print_line(result: Result) -> None:
        click.echo(to_json(alone(result, how.machine)), nl=False)

    streamed, total, traced = out == "-", len(plan.tasks), any(task.trace for task in plan.tasks)
    shown, foresee = (traced_figure, no_warnings) if traced else (figure, warnings)
    progress = Progress(shown, keep=print_line if streamed else None, foresee=foresee)

    def progress_of(left: Left) -> Progress:
        nonlocal progress, total
        total = len(left.plan.tasks)
        progress = Progress(figure, settled=left.settled, foresee=warnings)
        if not left.remaining.waves and how.budget is None:
            click.echo("Nothing to do: every task of this run has ended. A higher --repeat adds repeats.", err=True)
        return progress

    folder = _folder(out, used.name, traced)
    with tempfile.TemporaryDirectory(prefix="benchsuite-") if streamed else nullcontext(str(folder)) as place:
        try:
            if resume:
                session.resume(plan, Path(place), progress_of, how)
            else:
                session.execute(plan, used, Path(place), progress, how)
        except BenchError:
            if not out:
                with contextlib.suppress(OSError):
                    folder.rmdir()  # the folder is empty, since nothing was started
            raise
        except Interrupted:
            _close(progress, progress.total or total, None if streamed else folder, traced=traced)
            if not streamed and (folder / "run.json").exists():
                with contextlib.suppress(OSError):
                    click.echo(f"Continue: {resume_command(folder)}", err=True)
            raise
    if traced and not streamed:
        add_tracks(folder)
    status = _close(progress, progress.total or total, None if streamed else folder, traced=traced)
    return status or (0 if streamed else ended(folder))


def _folder(out: str | None, profile: str, traced: bool) -> Path:
    """The run's folder: OUT, or a new one."""
    from benchsuite.default_out import new_default_out

    if out:
        return Path(out)
    return new_folder(profile) if traced else new_default_out(profile, os.environ, datetime.now())


def tasks_words(count: int) -> str:
    """A number of tasks: "1 task" or "8 tasks"."""
    return f"{count} task" if count == 1 else f"{count} tasks"


def _close(progress: Progress, total: int, folder: Path | None, *, traced: bool) -> int:
    """Print the closing lines.

    Returns:
        The exit status: 0 if all tasks are ok, 1 if some are not, 3 if none ran.
    """
    counts = progress.counts
    idle = counts["skipped"] + counts["interrupted"] + total - counts.total()
    words = [f"{counts['ok'] - progress.thin} passed", f"{total - counts['ok'] - idle} failed", f"{idle} not run"]
    if progress.thin:
        words.append(f"{progress.thin} too short for a number, which the report counts as failed")
    earlier = f" ({len(progress.settled)} of them in earlier invocations)" if progress.settled else ""
    empty = " Nothing was measured." if progress.thin and progress.thin == counts["ok"] else ""
    with contextlib.suppress(OSError):  # the terminal, or the reader of a pipe, may be gone: the run is over anyway
        click.echo(f"{tasks_words(total)}{earlier}: {', '.join(words)}.{empty}", err=True)
        if folder and traced:
            click.echo(f"Recordings: {folder}/logs/*.trace.*    Read one: {program()} trace --read FILE", err=True)
        elif folder:
            click.echo(f"Results: {folder}    Report: {program()} report {shlex.quote(str(folder))}", err=True)
    return 3 if idle == total else int(counts["ok"] != total)
