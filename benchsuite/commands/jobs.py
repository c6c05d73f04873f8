"""`benchsuite jobs`: run the jobs of a profile; each task leaves one result."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from benchsuite.commands import completion
from benchsuite.commands._budget import budget_of, budget_option, check_alone, repeats_follow
from benchsuite.commands._changes import WithChanges
from benchsuite.commands._over_nodes import join_options
from benchsuite.commands._running import check_out, run_plan, tasks_words
from benchsuite.commands._slurm import slurm_options
from benchsuite.commands._traces import recorded
from benchsuite.describe.budget import BUDGET
from benchsuite.describe.invocation import (
    EXCLUDE,
    ISOLATION,
    NO_CGEXEC,
    ONLY,
    PRELOAD,
    REQUIRE_ISOLATION,
)

if TYPE_CHECKING:
    from benchsuite.describe.tasks import Plan
    from benchsuite.isolation.fencing import Isolation
    from benchsuite.launch.asked import Asked
    from benchsuite.launch.budget import Budget

_DATA = "Data sets.  [default: $BENCHSUITE_DATA, else data]"
_EPILOG = (
    "After -- come job fields (--max-count, --min-time-s, --precision, ...) and parameters of the jobs' models: "
    "'benchsuite jobs PROFILE -- --help' lists them."
)


_EXAMPLES = (
    ("benchsuite jobs smoke", "Does every kind of job train here? It needs no data and no GPU."),
    ("benchsuite jobs standard -d data --repeat 3", "The standard score, with an interval from three repeats."),
    ("benchsuite jobs standard --name convnet --name vae", "Only two jobs."),
    (
        "benchsuite jobs standard --name convnet -- --batch-size 128 --precision bf16",
        "With other parameters. The report marks the run as modified.",
    ),
    ("benchsuite jobs --resume results/standard-20260105-101500", "Continue a run that was stopped."),
    ("benchsuite jobs standard --slurm --partition gpu --nodes 4 --detach", "Run on four nodes of a Slurm cluster."),
)


@click.command(cls=WithChanges, epilog=_EPILOG, examples=_EXAMPLES)
@click.argument("profile", required=False, shell_complete=completion.profiles_or_runs)
@click.option("-d", "--data", metavar="DIR", help=_DATA)
@click.option("-o", "--out", metavar="OUT", help="New folder for the results; - prints JSON lines.")
@click.option("--repeat", type=click.IntRange(min=1), metavar="N", help="Run the profile N times.  [default: 1]")
@click.option(
    BUDGET,
    callback=budget_option,
    metavar="TIME",
    help="Run once, and spend the rest of TIME, such as 30m or 1h30m, on the repeats that narrow the score most.",
)
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
@join_options
def command(
    profile: str | None,
    data: str | None,
    out: str | None,
    repeat: int | None,
    budget: float | None,
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

    'jobs --resume OUT' continues the run in OUT. The record of the run gives all other options; a higher --repeat or
    --budget adds repeats.

    Exit status: 0 if every task ran; 1 if a task failed or was skipped; 2 for wrong input; 3 if nothing ran; 130 or 143
    if Ctrl-C or SIGTERM interrupted the run.
    """
    from benchsuite.describe.plan import make_plan
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen as chosen_gpus
    from benchsuite.launch.asked import Asked, fresh, resumed
    from benchsuite.launch.session import Invocation

    if resume and out is None:
        profile, out = None, profile
    check_out(out, resume)
    check_alone(budget, {"--repeat": repeat, "--profile": timeline, "--profile-fp32": cores})
    isolation = "none" if no_cgexec else isolation
    data = str(Path(data).absolute()) if data else data
    asked = Asked(profile, only, exclude, changes, data, repeat, isolation, require_isolation, budget)
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
    allowed = budget_of(settled.budget_s, plan)
    if timeline or cores:
        plan = recorded(plan, timeline, cores, resume)
    if dry_run and resume:
        from benchsuite.launch.resume import left_of
        from benchsuite.rundir import RunDir

        plan = left_of(RunDir(Path(out or "")), plan, machine).remaining
    if dry_run:
        _show(plan, machine.gpu_note, allowed)
        return 0
    kind, required = cast("Isolation", settled.isolation), settled.require_isolation
    how = Invocation(
        machine, os.environ, sys.argv, kind, required, allow_mig=allow_mig, budget=allowed, preload=preload
    )
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


def _show(plan: Plan, gpu_note: str | None, budget: Budget | None) -> None:
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
    click.echo(f"# {tasks_words(len(plan.tasks))}, {in_words(Forecast().bounds_s(plan.tasks))}")
    if budget:
        click.echo(f"# {repeats_follow(budget)}")
