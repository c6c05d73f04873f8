"""`benchsuite status`: how far a run has come, on this machine or on the nodes of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands._examples import WithExamples

if TYPE_CHECKING:
    from benchsuite.cluster.states import NodeStatus


_EXAMPLES = (("benchsuite status results/standard-20260105-101500", "Tasks that are done, and the time that is left."),)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument("out")
def command(out: str) -> int:
    """Show how far a run has come.

    OUT is a results folder. It may be that of 'jobs --slurm': then each node is a line.

    Exit status: 0; 1 if tasks or nodes have failed; 2 for wrong input.
    """
    from benchsuite.cluster.fleet import FleetDir
    from benchsuite.errors import ResultError

    folder = Path(out)
    if not folder.is_dir():
        raise ResultError(f"{folder}: no such folder; name the folder that 'benchsuite jobs' writes")
    return _of_nodes(folder) if FleetDir.is_one(folder) else _of_run(folder)


def _of_nodes(shown: Path) -> int:
    from benchsuite.cluster import slurm
    from benchsuite.cluster.fleet import FleetDir
    from benchsuite.cluster.survey import Survey
    from benchsuite.commands._nodes import quoted, summary, table
    from benchsuite.commands._terminal import console
    from benchsuite.describe.invocation import program, resume_command

    slurm.check_present()
    statuses = Survey(FleetDir(shown.absolute())).look()
    console().print(table(statuses))
    console().print(f"{summary(statuses)}.")
    for status in statuses:
        if status.stays:
            why = "never starts" if status.stays == "never" else "does not start before an administrator acts"
            click.echo(f"{status.node}: its job {why}; end the run: {program()} stop {quoted(shown)}", err=True)
    if not any(status.live for status in statuses) and any(status.to_run for status in statuses):
        click.echo(f"Continue: {resume_command(shown)}", err=True)
    return int(any(_is_bad(status) for status in statuses))


def _is_bad(status: NodeStatus) -> bool:
    return not status.live and status.word not in ("ok", "not submitted")


def _of_run(folder: Path) -> int:
    from benchsuite.cluster.tally import Tallies
    from benchsuite.describe.invocation import resume_command
    from benchsuite.errors import ResultError
    from benchsuite.launch import lock
    from benchsuite.records import FAILURES

    tally = Tallies().of(folder)
    if tally is None:
        raise ResultError(f"{folder}: holds no run; name the folder that 'benchsuite jobs' writes")
    holder = lock.holder(folder)
    if holder:
        click.echo(f"{folder}: running (process {holder.pid} on {holder.host}), {tally.words}")
    else:
        click.echo(f"{folder}: {'complete' if tally.complete else 'not in progress'}, {tally.words}")
        if not tally.complete:
            click.echo(f"Continue: {resume_command(folder)}", err=True)
    return int(any(tally.statuses[status] for status in FAILURES))
