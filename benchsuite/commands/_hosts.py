"""`benchsuite drive` with machines on several hosts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from benchsuite.errors import one_line

if TYPE_CHECKING:
    from benchsuite.cluster.team import Team
    from benchsuite.pipeline.driver import Place
    from benchsuite.pipeline.layout import Layout


def hosts_of(layout: Layout) -> tuple[str, ...]:
    """The hosts of a configuration, in the order of their ranks; empty if all its machines are this host."""
    from benchsuite.launch.machines import elsewhere

    places = _places(layout)
    return tuple(dict.fromkeys(place.host for place in places)) if elsewhere(places) else ()


def obstacles(layout: Layout, fields: dict[str, Any], launcher: str | None) -> list[str]:
    """Why a training cannot run on several hosts, each in one line."""
    hosts = hosts_of(layout)
    if not hosts:
        return []
    shown, found = one_line(", ".join(hosts)), []
    if launcher is None and "SLURM_JOB_ID" not in os.environ:
        remedy = "give --launcher ssh, or start this in a Slurm allocation of them"
        found.append(f"field 'machines': {shown}: not this host; {remedy}")
    if len(hosts) == 1:
        found.append(f"field 'machines': {shown}: a single host, and another one; start benchsuite there")
    if fields.get("container"):
        found.append("field 'container': the ranks of several hosts run on the hosts themselves; give --no-container")
    in_order = [host for host, _ in itertools.groupby(place.host for place in _places(layout))]
    if len(in_order) > len(hosts):
        found.append(
            f"field 'machines': the ranks of a host do not follow each other: {', '.join(in_order)}; order them"
        )
    return found


def spread_over(fields: dict[str, Any], hosts: Sequence[str]) -> None:
    """Let the job of a training span its hosts."""
    on_cpu = fields["placement"] == "all_gpus_or_cpu"
    fields["placement"] = {"devices": "all", "nodes": len(hosts), "cpu_allowed": on_cpu}
    fields.pop("container", None)  # `obstacles` has refused one


def give_ranks(team: Team, layout: Layout) -> None:
    """Give each host the ranks and the GPUs that the configuration names.

    Raises:
        UsageError: a host has too few GPUs.
    """
    from benchsuite.launch.machines import gpus_of

    places = _places(layout)
    for one in team.colleagues:
        own = [place for place in places if place.host == one.name]
        gpus, note = gpus_of(own, one.hello.gpus)
        if note:
            click.echo(f"warning: {one.name}: {one_line(note)}", err=True)
        one.gpus, one.ranks = tuple(gpus), len(own)


def _places(layout: Layout) -> list[Place]:
    """The machine of each rank, in the order of the ranks."""
    return [place for stage in layout.stages for place in stage.places]
