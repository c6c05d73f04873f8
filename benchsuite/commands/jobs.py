"""`benchsuite jobs`: run the jobs of a profile; each task leaves one result."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from benchsuite.commands import completion
from benchsuite.commands._changes import WithChanges
from benchsuite.commands._slurm import slurm_options
from benchsuite.commands._traces import add_tracks, new_folder, recorded
from benchsuite.describe.invocation import (
    EXCLUDE,
    ISOLATION,
    NO_CGEXEC,
    ONLY,
    PRELOAD,
    REQUIRE_ISOLATION,
    program,
    resume_command,
)
from benchsuite.errors import BenchError, Interrupted, UsageError

if TYPE_CHECKING:
    from benchsuite.describe.tasks import Plan, ProfileUsed, Task
    from benchsuite.isolation.fencing import Isolation
    from benchsuite.launch.asked import Asked
    from benchsuite.launch.progress import Progress
    from benchsuite.launch.session import Invocation

_DATA = "Data sets.  [default: $BENCHSUITE_DATA, else data]"
_EPILOG = (
    "After -- come job fields (--max-count, --min-time-s, --precision, ...) and parameters of the jobs' models: "
    "'benchsuite jobs PROFILE -- --help' lists them."
)


@click.command(cls=WithChanges, epilog=_EPILOG)
@click.argument("profile", required=False, shell_complete=completion.profiles_or_runs)
@click.option("-d", "--data", metavar="DIR", help=_DATA)
@click.option("-o", "--out", metavar="OUT", help="New folder for the results; - prints JSON lines.")
@click.option("--repeat", type=click.IntRange(min=1), metavar="N", help="Run the profile N times.  [default: 1]")
@click.option("--resume", is_flag=True, help="Continue the run in OUT: jobs --resume OUT")
@click.option(
    ONLY,
    "only",
    multiple=True,
    metavar="JOB",
    shell_complete=completion.jobs,
    help="Run only this job; may be repeated.",
)
@click.option(
    EXCLUDE,
    "exclude",
    multiple=True,
    metavar="JOB",
    shell_complete=completion.jobs,
    help="Leave this job out; may be repeated.",
)
@click.option(
    ISOLATION,
    type=click.Choice(["auto", "cgroup", "affinity", "none"]),
    metavar="KIND",
    help="auto, cgroup, affinity or none.  [default: auto]",
)
@click.option(NO_CGEXEC, is_flag=True, help="The same as --isolation none.")
@click.option(REQUIRE_ISOLATION, is_flag=True, help="Refuse to start with a weaker isolation.")
@click.option("--allow-mig", is_flag=True, help="Let jobs with sharing mig divide their GPU, and make it whole again.")
@click.option("--profile", "timeline", is_flag=True, help="Record a timeline of each task; see 'trace'.")
@click.option("--profile-fp32", "cores", is_flag=True, help="Record the use of the cores of each task, with ncu.")
@click.option(PRELOAD, is_flag=True, help="Fork workers from a process that has imported torch; see docs/measuring.md.")
@click.option("--dry-run", is_flag=True, help="Print each task and its command line; start nothing.")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
@slurm_options
def command(
    profile: str | None,
    data: str | None,
    out: str | None,
    repeat: int | None,
    resume: bool,
    only: tuple[str, ...],
    exclude: tuple[str, ...],
    isolation: str | None,
    no_cgexec: bool,
    require_isolation: bool,
    allow_mig: bool,
    timeline: bool,
    cores: bool,
    preload: bool,
    dry_run: bool,
    changes: tuple[str, ...],
) -> int:
    """Run the jobs of a profile on every GPU.

    PROFILE is a file or the name of a shipped profile. The results go to results/PROFILE-DATE-TIME, or below
    $BENCHSUITE_OUT.

    'jobs --resume OUT' continues the run in OUT. The record of the run gives all other options; a higher --repeat adds
    repeats.
    """
    from benchsuite.describe.plan import make_plan
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen as chosen_gpus
    from benchsuite.launch.asked import Asked, fresh, resumed
    from benchsuite.launch.session import Invocation

    if resume and out is None:
        profile, out = None, profile
    check_out(out, resume)
    isolation = "none" if no_cgexec else isolation
    data = str(Path(data).absolute()) if data else data
    asked = Asked(profile, only, exclude, changes, data, repeat, isolation, require_isolation)
    if resume:
        out = _go_to(Path(out or ""), asked)
        settled = resumed(Path(out), asked, os.environ)
    elif profile is None:
        raise click.UsageError("Missing argument 'PROFILE'; 'benchsuite list profiles' shows the shipped ones.")
    else:
        settled = fresh(asked, os.environ)
    chosen = settled.profile
    machine = host.describe(os.environ)
    gpus = chosen_gpus(machine.gpus, settled.environ, machine.gpu_note)
    plan = make_plan(
        chosen.name, chosen.jobs, gpus, environ=os.environ, repeats=settled.repeats, data_root=settled.data_root
    )
    if timeline or cores:
        plan = recorded(plan, timeline, cores, resume)
    if dry_run and resume:
        from benchsuite.launch.resume import left_of
        from benchsuite.rundir import RunDir

        plan = left_of(RunDir(Path(out or "")), plan, machine).remaining
    if dry_run:
        _show(plan, machine.gpu_note)
        return 0
    kind, required = cast("Isolation", settled.isolation), settled.require_isolation
    how = Invocation(machine, os.environ, sys.argv, kind, required, allow_mig=allow_mig, preload=preload)
    return run_plan(plan, chosen.used(), out, resume, how)


def _go_to(out: Path, asked: Asked) -> str:
    """Change to the folder in which the run found the user's own model, unless a profile is given.

    Returns:
        The run's folder as seen from there.
    """
    from benchsuite.launch.asked import folder_of

    home = folder_of(out) if asked.profile is None else None
    if home is None or home == Path.cwd():
        return str(out)
    out = out.absolute()
    os.chdir(home)
    return str(out)


def check_out(out: str | None, resume: bool) -> None:
    """Refuse a value of -o that names no folder of results."""
    if resume and out in (None, "-"):
        raise UsageError("--resume needs the folder of a run: benchsuite jobs --resume OUT")
    if out == "":
        raise UsageError("-o: name a folder")
    if out and out.endswith(".json"):
        raise UsageError(f"-o {out}: 'jobs' writes a file for each task; name a folder")


def _show(plan: Plan, gpu_note: str | None) -> None:
    from benchsuite.describe.command_line import command_line
    from benchsuite.launch.forecast import Forecast, in_words
    from benchsuite.report.measure.foresight import warnings

    if gpu_note:
        click.echo(f"# {gpu_note}")
    for line in warnings(plan.tasks):
        click.echo(f"# {line}")
    for task in plan.tasks:
        place = f"{task.device} ({task.gpus[0].name}, {task.gpus[0].uuid})" if task.gpus else task.device
        click.echo(f"# {task.id}: job {task.cell}, repeat {task.repeat}, on {place}")
        if task.job.gpu_memory_gib and not task.skip:
            click.echo(f"# needs {task.job.gpu_memory_gib:g} GiB of GPU memory")
        click.echo(f"# skipped: {task.skip}" if task.skip else command_line(task))
    click.echo(f"# {_tasks(len(plan.tasks))}, {in_words(Forecast().bounds_s(plan.tasks))}")


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
    from benchsuite.launch.progress import Progress
    from benchsuite.launch.resume import Left
    from benchsuite.records import Result
    from benchsuite.report.measure.foresight import warnings
    from benchsuite.report.show.one_line import figure, traced_figure
    from benchsuite.report.stats.rate import alone
    from benchsuite.schema import to_json

    def print_line(result: Result) -> None:
        click.echo(to_json(alone(result, how.machine)), nl=False)

    streamed, total, traced = out == "-", len(plan.tasks), any(task.trace for task in plan.tasks)
    shown, foresee = (traced_figure, _nothing) if traced else (figure, warnings)
    progress = Progress(shown, keep=print_line if streamed else None, foresee=foresee)

    def progress_of(left: Left) -> Progress:
        nonlocal progress, total
        total = len(left.plan.tasks)
        progress = Progress(figure, settled=left.settled, foresee=warnings)
        if not left.remaining.waves:
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


def _nothing(tasks: Sequence[Task]) -> Sequence[str]:
    """No warnings: a recording needs no number."""
    return ()


def _tasks(count: int) -> str:
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
        click.echo(f"{_tasks(total)}{earlier}: {', '.join(words)}.{empty}", err=True)
        if folder and traced:
            click.echo(f"Recordings: {folder}/logs/*.trace.*    Read one: {program()} trace --read FILE", err=True)
        elif folder:
            click.echo(f"Results: {folder}    Report: {program()} report {shlex.quote(str(folder))}", err=True)
    return 3 if idle == total else int(counts["ok"] != total)
