"""`benchsuite stop`: end a run from another terminal."""

from __future__ import annotations

import time
from pathlib import Path

import click

from benchsuite.commands._examples import WithExamples

# A run ends its process trees one after another, each with a grace of some seconds.
LIMIT_S = 60.0


_EXAMPLES = (("benchsuite stop results/standard-20260105-101500", "End a run that was started in another terminal."),)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument("out")
def command(out: str) -> int:
    """End a run in progress.

    Finished results in OUT are kept. The rest can be resumed. Of a run on the nodes of a cluster, its Slurm jobs end.
    """
    from benchsuite.cluster.fleet import FleetDir
    from benchsuite.describe.invocation import resume_command
    from benchsuite.errors import ResultError
    from benchsuite.launch import lock

    folder = Path(out)
    if not folder.is_dir():
        raise ResultError(f"{folder}: no such folder; name the folder that 'benchsuite jobs' writes")
    if FleetDir.is_one(folder):
        return _stop_nodes(folder)
    holder = lock.holder(folder)
    if holder is None:
        click.echo(f"{folder}: no run is in progress", err=True)
        return 0
    process = holder.process(folder)
    if process is None:
        raise ResultError(
            f"{folder}: its run is process {holder.pid} on {holder.host}; stop it there, as the user who started it"
        )
    process.terminate()
    deadline = time.monotonic() + LIMIT_S
    while lock.holder(folder) == holder:
        if time.monotonic() > deadline:
            raise ResultError(f"{folder}: process {holder.pid} has not ended within {LIMIT_S:g} s")
        time.sleep(0.1)
    click.echo(f"{folder}: stopped", err=True)
    click.echo(f"Continue: {resume_command(folder)}", err=True)
    return 0


def _stop_nodes(folder: Path) -> int:
    """End the Slurm jobs of a run on many nodes; the exit status."""
    from benchsuite.cluster import slurm
    from benchsuite.cluster.fleet import FleetDir
    from benchsuite.cluster.stopping import live_jobs
    from benchsuite.commands._ending import end_jobs
    from benchsuite.describe.invocation import resume_command

    slurm.check_present()
    fleet = FleetDir(folder).fleet()
    if not live_jobs(fleet):
        click.echo(f"{folder}: Slurm has no job of this run", err=True)
        return 0
    status = 0 if end_jobs(fleet) else 1
    click.echo(f"Continue: {resume_command(folder)}", err=True)
    return status
