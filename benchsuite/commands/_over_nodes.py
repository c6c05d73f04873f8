"""The options of `benchsuite jobs` by which it takes its part in a run over nodes, and what they do."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from benchsuite.describe.invocation import JOIN
from benchsuite.errors import UsageError

if TYPE_CHECKING:
    from benchsuite.cluster.seat import Invited
    from benchsuite.cluster.team import Team
    from benchsuite.isolation.fencing import Isolation
    from benchsuite.launch.asked import Settled
    from benchsuite.launch.interrupt import Interrupt

_OPTIONS = (
    click.option(JOIN, "join", is_flag=True, help="Take part in a run over nodes, under torchrun, srun and others."),
)
_ONE_MACHINE = {"timeline": "--profile", "cores": "--profile-fp32", "allow_mig": "--allow-mig"}


def join_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options for runs over nodes to the command `jobs`. Its own function runs what stays on this machine."""

    @functools.wraps(function)
    def chosen(join: bool, **given: Any) -> int:
        return _join(given) if join else function(**given)

    for option in reversed(_OPTIONS):
        chosen = option(chosen)
    return chosen


def _join(given: dict[str, Any]) -> int:
    """Take part under a launcher: record the run, or be the agent of a node."""
    from benchsuite.cluster.seat import invited
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen
    from benchsuite.launch.interrupt import Interrupt

    for name, option in _ONE_MACHINE.items():
        if given[name]:
            raise UsageError(f"{option}: does not go with --join; record on one machine")
    place = invited(os.environ)
    if given["out"] == "-":
        raise UsageError("-o -: does not go with --join; name a folder")
    settled, out = _settled(given)
    machine = host.describe(os.environ)
    gpus = place.own(chosen(machine.gpus, settled.environ, machine.gpu_note))
    sha256 = settled.profile.used().sha256
    with Interrupt() as interrupt:
        if place.rank:
            return _serve(place, gpus, machine, None if given["resume"] else sha256, interrupt)
        from benchsuite.cluster.gathering import recording
        from benchsuite.cluster.team import Team

        with recording(place, gpus, os.environ, interrupt.asked) as colleagues:
            team = Team(colleagues, interrupt.asked)
            return record(team, settled, out, given, sha256)


def _settled(given: dict[str, Any]) -> tuple[Settled, str | None]:
    """What the run is asked for, and its folder; see `benchsuite jobs`."""
    from benchsuite.launch.asked import Asked, fresh, resumed

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
    link = recorder_of(place, interrupt.asked)
    return Agent(link, hello(seat, place.rank, machine, "", os.environ, sha256), os.environ).run()


def record(team: Team, settled: Settled, out: str | None, given: dict[str, Any], sha256: str) -> int:
    """Plan and run the jobs over nodes, and record them; the exit status."""
    from benchsuite.commands.jobs import run_plan
    from benchsuite.describe.plan import make_plan
    from benchsuite.host import machine as host
    from benchsuite.launch.session import Invocation

    with _welcomed(team, settled, sha256):
        chosen = settled.profile
        plan = make_plan(
            chosen.name,
            chosen.jobs,
            (),
            environ=os.environ,
            repeats=settled.repeats,
            data_root=settled.data_root,
            seats=team.seats,
        )
        kind, required = cast("Isolation", settled.isolation), settled.require_isolation
        machine = host.describe(os.environ)
        how = Invocation(machine, os.environ, sys.argv, kind, required, team=team)
        return run_plan(plan, chosen.used(), out, given["resume"], how)


@contextlib.contextmanager
def _welcomed(team: Team, settled: Settled, sha256: str) -> Iterator[None]:
    try:
        team.welcome(settled.isolation, settled.require_isolation, sha256)
        yield
    except UsageError as error:
        team.refuse(str(error))
        raise
    finally:
        team.close()
