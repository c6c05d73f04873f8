"""`benchsuite jobs`: run the jobs of a profile; each task leaves one result."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from benchsuite.describe.invocation import EXCLUDE, ONLY
from benchsuite.errors import BenchError, Interrupted, UsageError

if TYPE_CHECKING:
    from benchsuite.describe.tasks import Plan, ProfileUsed
    from benchsuite.isolation.fencing import Isolation
    from benchsuite.launch.progress import Progress
    from benchsuite.launch.session import Invocation

_EPILOG = "After -- come job fields (--max-count, --min-time-s, --precision, ...) and parameters of the jobs' models."


@click.command(epilog=_EPILOG)
@click.argument("profile")
@click.option("-d", "--data", help="Folder of the data sets.  [default: $BENCHSUITE_DATA, else data]")
@click.option("-o", "--out", help="New folder for the results, or - to write each result as a line of JSON to stdout.")
@click.option("--repeat", type=click.IntRange(min=1), help="Number of times that the profile is run.  [default: 1]")
@click.option("--resume", is_flag=True, help="Continue the run in OUT; a higher --repeat adds repeats.")
@click.option(ONLY, "only", multiple=True, metavar="JOB", help="Run only this job. Can be given several times.")
@click.option(EXCLUDE, "exclude", multiple=True, metavar="JOB", help="Leave this job out. Can be given several times.")
@click.option(
    "--isolation",
    type=click.Choice(["auto", "cgroup", "affinity", "none"]),
    default="auto",
    show_default=True,
    help="How tasks that run at the same time are separated.",
)
@click.option("--no-cgexec", is_flag=True, help="The same as --isolation none.")
@click.option("--require-isolation", is_flag=True, help="Refuse to start instead of using a weaker isolation.")
@click.option(
    "--dry-run", is_flag=True, help="Print each task, its GPU and a command line that runs it; start nothing."
)
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
def command(
    profile: str,
    data: str | None,
    out: str | None,
    repeat: int | None,
    resume: bool,
    only: tuple[str, ...],
    exclude: tuple[str, ...],
    isolation: str,
    no_cgexec: bool,
    require_isolation: bool,
    dry_run: bool,
    changes: tuple[str, ...],
) -> int:
    """Run the jobs of a profile on every GPU.

    PROFILE is a file or the name of a shipped profile. The results go to results/PROFILE-DATE-TIME, or below
    $BENCHSUITE_OUT.
    """
    from benchsuite.describe import profile as profiles
    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.plan import make_plan
    from benchsuite.host import machine as host
    from benchsuite.launch.session import Invocation, data_root
    from benchsuite.rundir import planned_repeats

    if out == "":
        raise UsageError("-o: name a folder")
    if out and out.endswith(".json"):
        raise UsageError(f"-o {out}: 'jobs' writes a file for each task; name a folder")
    chosen = profiles.load(profile, only=only, exclude=exclude, overrides=Overrides.parse(changes))
    root = data_root(data, os.environ)
    machine = host.describe(os.environ)
    gpus, _ = host.visible(machine.gpus, os.environ)
    if resume:
        if not out or out == "-":
            raise UsageError("--resume needs the run's folder: -o OUT")
        repeat = repeat or planned_repeats(Path(out))
    plan = make_plan(chosen.name, chosen.jobs, gpus, environ=os.environ, repeats=repeat or 1, data_root=root)
    if dry_run and resume:
        from benchsuite.launch.resume import left_of
        from benchsuite.rundir import RunDir

        plan = left_of(RunDir(Path(out or "")), plan, machine).remaining
    if dry_run:
        _show(plan, machine.gpu_note)
        return 0
    if no_cgexec:
        isolation = "none"
    how = Invocation(machine, os.environ, sys.argv, cast("Isolation", isolation), require_isolation)
    return _run(plan, chosen.used(), out, resume, how)


def _show(plan: Plan, gpu_note: str | None) -> None:
    from benchsuite.describe.command_line import command_line
    from benchsuite.launch.forecast import Forecast, in_words

    if gpu_note:
        click.echo(f"# {gpu_note}")
    for task in plan.tasks:
        place = f"{task.device} ({task.gpus[0].name}, {task.gpus[0].uuid})" if task.gpus else task.device
        click.echo(f"# {task.id}: job {task.cell}, repeat {task.repeat}, on {place}")
        click.echo(f"# skipped: {task.skip}" if task.skip else command_line(task))
    click.echo(f"# {_tasks(len(plan.tasks))}, {in_words(Forecast().bounds_s(plan.tasks))}")


def _run(plan: Plan, used: ProfileUsed, out: str | None, resume: bool, how: Invocation) -> int:
    from benchsuite.launch import session
    from benchsuite.launch.progress import Progress
    from benchsuite.launch.resume import Left
    from benchsuite.records import Result
    from benchsuite.report.show.one_line import figure
    from benchsuite.rundir import new_default_out
    from benchsuite.schema import to_json

    def print_line(result: Result) -> None:
        click.echo(to_json(result), nl=False)

    streamed, total = out == "-", len(plan.tasks)
    progress = Progress(figure, keep=print_line if streamed else None)

    def progress_of(left: Left) -> Progress:
        nonlocal progress, total
        total = len(left.plan.tasks)
        progress = Progress(figure, settled=left.settled)
        return progress

    folder = Path(out) if out else new_default_out(used.name, os.environ, datetime.now())
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
            with contextlib.suppress(OSError):  # the terminal may be gone
                _close(progress, total, None if streamed else folder)
            raise
    return _close(progress, total, None if streamed else folder)


def _tasks(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"


def _close(progress: Progress, total: int, folder: Path | None) -> int:
    """Print the closing lines.

    Returns:
        The exit status: 0 if all tasks are ok, 1 if some are not, 3 if none ran.
    """
    counts = progress.counts
    idle = counts["skipped"] + counts["interrupted"] + total - counts.total()
    failed = total - counts["ok"] - idle
    words = [f"{counts['ok'] - progress.thin} passed", f"{failed} failed", f"{idle} not run"]
    if progress.thin:
        words.append(f"{progress.thin} too short for a figure, which the report counts as failed")
    earlier = f" ({len(progress.settled)} of them in earlier invocations)" if progress.settled else ""
    click.echo(f"{_tasks(total)}{earlier}: {', '.join(words)}.", err=True)
    if folder:
        click.echo(f"Results: {folder}    Report: benchsuite report {shlex.quote(str(folder))}", err=True)
    if idle == total:
        return 3
    return 0 if counts["ok"] == total else 1
