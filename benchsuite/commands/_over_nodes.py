"""The options of `benchsuite jobs` by which it takes its part in a run over nodes, and what they do."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from benchsuite.describe.invocation import JOIN
from benchsuite.errors import BenchError, UsageError

if TYPE_CHECKING:
    from benchsuite.cluster.seat import Invited
    from benchsuite.cluster.team import Team
    from benchsuite.isolation.fencing import Isolation
    from benchsuite.launch.asked import Settled
    from benchsuite.launch.interrupt import Interrupt

_OPTIONS = (
    click.option(JOIN, "join", is_flag=True, help="Take part in a run over nodes, under torchrun, srun and others."),
    click.option("--hosts", metavar="A,B", help="Run jobs over nodes on these hosts."),
)
_LAUNCHER_OPTIONS = (
    click.option(
        "--launcher",
        type=click.Choice(["ssh", "srun"]),
        metavar="KIND",
        help="What starts ranks on other hosts: ssh or srun.  [default: srun in a Slurm allocation]",
    ),
    click.option("--ssh-arg", "ssh_args", multiple=True, metavar="A", help="Pass A to ssh; may be repeated."),
)
# Options of `jobs` that a run over nodes does not have.
_ONE_MACHINE = {
    "timeline": "--profile",
    "cores": "--profile-fp32",
    "allow_mig": "--allow-mig",
    "dry_run": "--dry-run",
}


def launcher_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that choose how agents on other hosts are started."""
    for option in reversed(_LAUNCHER_OPTIONS):
        function = option(function)
    return function


def join_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options for runs over nodes to the command `jobs`. Its own function runs what stays on this machine."""

    @functools.wraps(function)
    def chosen(join: bool, hosts: str | None, launcher: str | None, ssh_args: tuple[str, ...], **given: Any) -> int:
        if join and hosts:
            raise UsageError(
                "--join: does not go with --hosts; a launcher has started this process, or it is one itself"
            )
        if hosts:
            return _on_hosts(hosts.split(","), launcher, ssh_args, given)
        if launcher or ssh_args:
            raise UsageError(f"--{'launcher' if launcher else 'ssh-arg'}: needs --hosts A,B")
        return _join(given) if join else function(**given)

    with_options = launcher_options(chosen)
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def _join(given: dict[str, Any]) -> int:
    """Take part under a launcher: record the run, or be the agent of a node."""
    from benchsuite.cluster.seat import invited
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen
    from benchsuite.launch.interrupt import Interrupt

    place = invited(os.environ)
    settled, out = _settled(given, JOIN)
    machine = host.describe(os.environ)
    gpus = place.own(chosen(machine.gpus, settled.environ, machine.gpu_note))
    sha256 = settled.profile.used().sha256
    if place.rank:
        try:
            with Interrupt() as interrupt:
                return _serve(place, gpus, machine, None if given["resume"] else sha256, interrupt)
        finally:
            # If the run fails, srun ends the other tasks with SIGTERM. The exit status is then to be the recorder's.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Interrupt() as interrupt:
        from benchsuite.cluster.gathering import recording
        from benchsuite.cluster.team import Team

        with _interruptible(interrupt), recording(place, gpus, os.environ, interrupt.asked) as colleagues:
            team = Team(colleagues, interrupt.asked)
            return _record_jobs(team, settled, out, given, os.environ)


def _on_hosts(hosts: Sequence[str], launcher: str | None, ssh_args: tuple[str, ...], given: dict[str, Any]) -> int:
    """Start agents on hosts, and record the run here; the exit status."""
    settled, out = _settled(given, "--hosts")
    with team_on(hosts, launcher, ssh_args) as team:
        return _record_jobs(team, settled, out, given, team.environ)


@contextlib.contextmanager
def team_on(hosts: Sequence[str], launcher: str | None, ssh_args: tuple[str, ...]) -> Iterator[Team]:
    """An agent on each host.

    Raises:
        UsageError: a host cannot be reached; no agent is left.
        Interrupted: a signal has asked for the end.
    """
    from benchsuite.cluster import submit
    from benchsuite.cluster.hosts import Remote, agents_on, check_hosts
    from benchsuite.cluster.team import Team
    from benchsuite.launch.child import python
    from benchsuite.launch.interrupt import Interrupt

    kind = cast("Literal['ssh', 'srun'] | None", launcher or ("srun" if "SLURM_JOB_ID" in os.environ else None))
    if kind is None:
        raise UsageError(f"{', '.join(hosts)}: give --launcher ssh, or start this in a Slurm allocation of these nodes")
    if ssh_args and kind != "ssh":
        raise UsageError("--ssh-arg: needs --launcher ssh")
    check_hosts(hosts, kind)
    environ = submit.environment(os.environ)
    remote = Remote(kind, tuple(python()), str(Path.cwd()), environ, ssh_args)
    with (
        Interrupt() as interrupt,
        _interruptible(interrupt),
        agents_on(hosts, remote, os.environ, interrupt.asked) as colleagues,
    ):
        yield Team(colleagues, interrupt.asked)


@contextlib.contextmanager
def _interruptible(interrupt: Interrupt) -> Iterator[None]:
    """A wait that a signal has ended is an interruption. Raises Interrupted."""
    try:
        yield
    except UsageError:
        interrupt.check()
        raise


def _settled(given: dict[str, Any], option: str) -> tuple[Settled, str | None]:
    """What the run is asked for, and its folder; see `benchsuite jobs`.

    Args:
        option: that by which the run is over nodes.
    """
    from benchsuite.launch.asked import Asked, fresh, resumed

    for name, other in _ONE_MACHINE.items():
        if given[name]:
            raise UsageError(f"{other}: does not go with {option}; leave it out, or run on one machine")
    if given["out"] in ("-", "") or (given["out"] or "").endswith(".json"):
        raise UsageError(f"-o {given['out']}: does not go with {option}; name a folder")
    profile, out = given["profile"], given["out"]
    if given["resume"] and out is None:
        profile, out = None, profile
    data = str(Path(given["data"]).absolute()) if given["data"] else None
    isolation = "none" if given["no_cgexec"] else given["isolation"]
    required = given["require_isolation"]
    asked = Asked(
        profile, given["only"], given["exclude"], given["changes"], data, given["repeat"], isolation, required
    )
    if given["resume"]:
        if out is None:
            raise UsageError("--resume needs the folder of a run: benchsuite jobs --resume OUT --join")
        return resumed(Path(out), asked, os.environ), out
    if profile is None:
        raise click.UsageError("Missing argument 'PROFILE'; 'benchsuite list profiles' shows the shipped ones.")
    return fresh(asked, os.environ), out


def _serve(place: Invited, gpus: Any, machine: Any, sha256: str | None, interrupt: Interrupt) -> int:
    """Be the agent of a node; the exit status."""
    from benchsuite.cluster.agent import Agent, hello
    from benchsuite.cluster.gathering import recorder_of
    from benchsuite.describe.spanning import Seat

    name = place.name if place.local_size == 1 else f"{place.name}:{place.local_rank}"
    seat = Seat(name=name, node=place.node, host=machine.host, gpus=gpus)
    with _interruptible(interrupt), contextlib.closing(recorder_of(place, interrupt.asked)) as link:
        try:
            return Agent(link, hello(seat, place.rank, machine, "", os.environ, sha256), os.environ).run()
        except UsageError:
            # srun ends all tasks as soon as one exits with an error: the recorder's own message comes first.
            link.wait_closed(15.0)
            time.sleep(1.0)
            raise


def _record_jobs(
    team: Team, settled: Settled, out: str | None, given: dict[str, Any], environ: Mapping[str, str]
) -> int:
    """Plan and run the jobs of a profile; the exit status."""
    from benchsuite.commands.jobs import run_plan
    from benchsuite.describe.plan import make_plan
    from benchsuite.host import machine as host
    from benchsuite.launch.session import Invocation

    chosen = settled.profile
    if all(job.placement.spanned == 1 for job in chosen.jobs):
        team.refuse(message := f"{chosen.name}: no job spans nodes; give one the placement {{devices: all, nodes: 2}}")
        raise UsageError(message)
    with welcomed(team, settled.isolation, settled.require_isolation, chosen.used().sha256):
        plan = make_plan(
            chosen.name,
            chosen.jobs,
            (),
            environ=environ,
            repeats=settled.repeats,
            data_root=settled.data_root,
            seats=team.seats,
        )
        kind, required = cast("Isolation", settled.isolation), settled.require_isolation
        how = Invocation(host.describe(os.environ), os.environ, sys.argv, kind, required, team=team)
        return run_plan(plan, chosen.used(), out, given["resume"], how)


@contextlib.contextmanager
def welcomed(team: Team, isolation: str, require_isolation: bool, sha256: str) -> Iterator[None]:
    """Take the agents of a team into a run with these jobs, and dismiss them at its end.

    Raises:
        UsageError: one of them cannot take part.
    """
    try:
        team.welcome(isolation, require_isolation, sha256)
        yield
    except BenchError as error:
        team.refuse(str(error))
        raise
    finally:
        team.close()
