"""The jobs over nodes of a run on a Slurm cluster: one job of Slurm runs all of them, with one folder of results."""

from __future__ import annotations

from collections.abc import Sequence

from benchsuite.cluster.fleet import ACROSS, Fleet
from benchsuite.cluster.slurm import Node, SlurmError
from benchsuite.describe.placement import PAIRS
from benchsuite.describe.tasks import Job
from benchsuite.errors import UsageError


def spanning(jobs: Sequence[Job]) -> tuple[str, ...]:
    """The names of the jobs over nodes."""
    return tuple(job.name for job in jobs if job.placement.spanned > 1)


def most_nodes(jobs: Sequence[Job], nodes: Sequence[Node]) -> tuple[str, ...]:
    """The names of the nodes that the jobs over nodes need: the first of the run, or all for pairs of nodes.

    Empty without such a job.

    Raises:
        UsageError: a job spans more nodes than the run has, or a node has the name of the results folder.
    """
    largest = max(jobs, key=lambda job: job.placement.spanned, default=None)
    if largest is None or largest.placement.spanned == 1:
        return ()
    if largest.placement.spanned > len(nodes):
        raise UsageError(
            f"job '{largest.name}': it spans {largest.placement.spanned} nodes, and the run has {len(nodes)}; ask for "
            f"more nodes, or leave it out: --exclude {largest.name}"
        )
    if any(node.name == ACROSS for node in nodes):
        raise UsageError(f"node {ACROSS}: its name is that of the results of jobs over nodes; leave it out")
    every = any(job.placement.nodes == PAIRS for job in jobs)
    return tuple(node.name for node in nodes[: None if every else largest.placement.spanned])


def with_across(fleet: Fleet, nodes: Sequence[Node]) -> list[Node]:
    """What is to be submitted: the nodes that run jobs of their own, and one for the jobs over nodes.

    Args:
        nodes: the nodes of the run.

    Raises:
        SlurmError: the nodes of jobs over nodes have different numbers of GPUs.
    """
    own = list(nodes) if fleet.each else []
    return [*own, together(fleet, nodes)] if fleet.across else own


def together(fleet: Fleet, known: Sequence[Node]) -> Node:
    """The nodes of the jobs over nodes, as Slurm is asked for them.

    Raises:
        SlurmError: they have different numbers of GPUs.
    """
    used = [node for node in known if node.name in fleet.across]
    if len({node.gpus for node in used}) > 1:
        shown = ", ".join(f"{node.name} has {node.gpus}" for node in used[:8])
        raise SlurmError(
            f"--nodes: the nodes of a job over nodes have different numbers of GPUs ({shown}); name nodes with equally "
            "many with --nodelist"
        )
    return Node(ACROSS, "idle", gpus=used[0].gpus if used else 0, members=fleet.across)


def not_usable(fleet: Fleet, known: Sequence[Node]) -> str | None:
    """Why the jobs over nodes cannot run now; None if all their nodes can run jobs."""
    usable = {node.name for node in known if node.usable}
    missing = [name for name in fleet.across if name not in usable]
    return f"{ACROSS}: {', '.join(missing)} cannot run jobs" if missing else None
