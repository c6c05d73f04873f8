"""`benchsuite drive`: run the training that a driver configuration of PipeDream describes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchsuite.commands._changes import WithChanges
from benchsuite.commands._hosts import give_ranks, hosts_of, obstacles, spread_over
from benchsuite.commands._over_nodes import launcher_options, team_on, welcomed

if TYPE_CHECKING:
    from benchsuite.cluster.team import Team
    from benchsuite.describe.profile import Profile
    from benchsuite.describe.tasks import Gpu
    from benchsuite.pipeline.layout import Layout
    from benchsuite.records import Machine

# The folder of a run in which the files of the configuration lie.
KEPT = "driver"


_EXAMPLES = (
    ("benchsuite drive driver.yml --quiet", "Print the command that would run."),
    ("benchsuite drive driver.yml --no-container -o results/try -- --max-steps 100", "A short try on the host itself."),
)


@click.command(cls=WithChanges, examples=_EXAMPLES)
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG")
@click.option("--resume", metavar="PREFIX", help="Continue from the checkpoints whose paths begin with PREFIX.")
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="A folder that the container has at the same path; may be repeated.",
)
@click.option("--no-container", is_flag=True, help="Run on this host itself.")
@click.option("--quiet", is_flag=True, help="Print what would run; start nothing.")
@click.option("-d", "--data", metavar="DIR", help="Data sets.  [default: the data_dir of CONFIG, else as for 'jobs']")
@click.option(
    "-o", "--out", metavar="OUT", help="New folder for the results.  [default: in the log_directory of CONFIG]"
)
@launcher_options
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
def command(
    config: Path,
    resume: str | None,
    mounts: tuple[str, ...],
    no_container: bool,
    quiet: bool,
    data: str | None,
    out: str | None,
    launcher: str | None,
    ssh_args: tuple[str, ...],
    changes: tuple[str, ...],
) -> int:
    """Run a training of PipeDream.

    CONFIG is the YAML file of PipeDream's driver. Its stage configuration is found beside it, as PipeDream finds it.
    Machines on other hosts are reached over ssh, or by srun in a Slurm allocation.
    After -- come job fields and parameters of the model, such as --max-steps 100.
    """
    from benchsuite.errors import UsageError, one_line
    from benchsuite.pipeline import layout as layouts
    from benchsuite.pipeline.training import in_words, without_effect

    layout = layouts.of_file(config)
    where = one_line(str(config))
    fields = _fields(layout, where, resume=resume, mounts=mounts, contained=not no_container)
    problems = _obstacles(layout, fields, launcher)
    if hosts := hosts_of(layout):
        spread_over(fields, hosts)
    profile = _profile(config, layout, fields, changes)
    if not hosts:
        problems += _missing_data(profile, _data_root(layout, data))
    if problems and not quiet:
        raise UsageError(f"{where}: {problems[0]}")
    if unused := without_effect(layout):
        click.echo(f"warning: {where}: without effect: {', '.join(unused)}", err=True)
    if quiet:
        for line in in_words(layout):
            click.echo(f"# {line}")
        for line in problems:
            click.echo(f"# cannot run here: {line}")
        click.echo(json.dumps({config.stem: _changed(config, layout, fields, changes)}, indent=2))
        return 0
    if not hosts:
        return _run(config, layout, profile, data, out)
    with team_on(hosts, launcher, ssh_args) as team:
        give_ranks(team, layout)
        with welcomed(team, "auto", False, profile.used().sha256):
            return _run(config, layout, profile, data, out, team)


def _fields(
    layout: Layout, where: str, *, resume: str | None, mounts: Sequence[str], contained: bool
) -> dict[str, Any]:
    from benchsuite.describe import entries
    from benchsuite.errors import PipelineError
    from benchsuite.pipeline.training import job_fields

    default = entries.declared(layout.model, None).parameters["batch_size"].default
    batch_size = layout.params.get("batch_size", default)
    try:
        return job_fields(layout, batch_size, mounts=mounts, contained=contained, resume=resume)
    except PipelineError as error:
        raise PipelineError(f"{where}: {error}") from None


def _obstacles(layout: Layout, fields: dict[str, Any], launcher: str | None) -> list[str]:
    """Why the job cannot run on this host or in this version, each in one line."""
    import msgspec

    from benchsuite.describe.containers import Container, engine_of
    from benchsuite.errors import one_line

    found = obstacles(layout, fields, launcher)
    image = fields.get("container")
    if image and not hosts_of(layout) and engine_of(msgspec.convert(image, Container)) is None:
        found.append(
            f"field 'container': no docker, podman or apptainer is on PATH to run {one_line(image['image'])}; install "
            "one, or give --no-container"
        )
    return found


def _missing_data(profile: Profile, data_root: str | None) -> list[str]:
    """Why the job's data set on this host is not ready, in one line; empty if it is, or if the job reads none."""
    from benchsuite.launch.datasets import why_not_ready

    name = profile.jobs[0].data
    why = why_not_ready(name, data_root) if name else None
    return [why] if why else []


def _run(
    config: Path, layout: Layout, profile: Profile, data: str | None, out: str | None, team: Team | None = None
) -> int:
    from benchsuite.commands._running import run_plan
    from benchsuite.describe.plan import make_plan
    from benchsuite.errors import BenchError
    from benchsuite.host import machine as host
    from benchsuite.launch.session import Invocation

    root = _data_root(layout, data)
    machine = host.describe(os.environ)
    gpus = [] if team else _gpus_here(layout, machine)
    environ, seats = (team.environ, team.seats) if team else (os.environ, ())
    plan = make_plan(profile.name, profile.jobs, gpus, environ=environ, data_root=root, seats=seats)
    folder = Path(out) if out else _new_folder(config, layout)
    how = Invocation(machine, os.environ, sys.argv, kept=_kept(config, layout), team=team)
    try:
        return run_plan(plan, profile.used(), str(folder), False, how)
    except BenchError:
        if not out:
            with contextlib.suppress(OSError):
                folder.rmdir()  # the folder is empty, since nothing was started
        raise


def _gpus_here(layout: Layout, machine: Machine) -> list[Gpu]:
    """The GPUs of this host that the configuration names; a warning says if they are others.

    Raises:
        UsageError: there are too few.
    """
    from benchsuite.errors import one_line
    from benchsuite.host.visible import chosen
    from benchsuite.launch.machines import gpus_of

    places = [place for stage in layout.stages for place in stage.places]
    gpus, note = gpus_of(places, chosen(machine.gpus, os.environ, machine.gpu_note))
    if note:
        click.echo(f"warning: {one_line(note)}", err=True)
    return gpus


def _profile(config: Path, layout: Layout, fields: dict[str, Any], changes: Sequence[str]) -> Profile:
    """The profile of the job with its changes. Without a change of its own, the learning rate follows the others."""
    from benchsuite.describe import profile as profiles
    from benchsuite.describe.overrides import Overrides
    from benchsuite.pipeline.training import lr_schedule_of

    overrides = Overrides.parse(changes)

    def made() -> Profile:
        return profiles.of_text(json.dumps({config.stem: fields}, indent=2), config, overrides=overrides)

    profile = made()
    changed = {name for name, _ in overrides.pairs}
    kept = "lr_schedule" in changed or profile.jobs[0].params["batch_size"] == "auto"
    if kept or not changed & {"batch_size", "epoch_items", "max_epochs"}:
        return profile
    job = profile.jobs[0]
    fields["lr_schedule"] = lr_schedule_of(layout, job.params["batch_size"], job.epoch_items, job.max_epochs)
    return made()


def _changed(config: Path, layout: Layout, fields: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The fields of the job with its changes, as a profile holds them."""
    from benchsuite.describe import entries
    from benchsuite.describe.overrides import Overrides

    return Overrides.parse(changes).applied(fields, entries.declared(layout.model, None), str(config))


def _data_root(layout: Layout, given: str | None) -> str | None:
    """The folder of the data sets: as given, else the configuration's if the data set is in it, else as for `jobs`."""
    from benchsuite.launch.session import data_root
    from benchsuite.pipeline.training import data_set

    name, place = data_set(layout), Path(layout.config.data_dir)
    if given is None and name is not None:
        for folder in (place, place.parent):
            if (folder / name).is_dir():
                return str(folder.resolve())
    return data_root(given, os.environ)


def _new_folder(config: Path, layout: Layout) -> Path:
    """A new folder in the configuration's log_directory.

    Raises:
        UsageError: there is no such folder.
    """
    from benchsuite.default_out import new_default_out
    from benchsuite.errors import UsageError, one_line
    from benchsuite.files import look

    parent = layout.config.log_directory
    if look(Path(parent)) != "folder":
        at = f"{one_line(str(config))}: field 'log_directory'"
        raise UsageError(f"{at}: no folder '{one_line(parent)}'; make it, or name a new folder with -o")
    return new_default_out(config.stem, {"BENCHSUITE_OUT": parent}, datetime.now())


def _kept(config: Path, layout: Layout) -> dict[str, bytes]:
    """The files that the run folder keeps: the configurations, the machines, the command, the commit and the diff."""
    from benchsuite.describe.invocation import pasteable
    from benchsuite.host.repository import commit_and_changes

    found = {config.name: config.read_bytes()}
    if layout.stage_file:
        found[Path(layout.stage_file).name] = Path(layout.stage_file).read_bytes()
    hosts = dict.fromkeys(place.host for place in layout.config.machines)
    found["machinefile"] = "".join(f"{host}\n" for host in hosts).encode()
    found["command"] = f"{pasteable(sys.argv)}\n".encode(errors="surrogateescape")
    if known := commit_and_changes(config.absolute().parent):
        found["git_commit"], found["git_diff"] = known
    return {f"{KEPT}/{name}": content for name, content in found.items()}
