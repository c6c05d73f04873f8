"""Which nodes a run on many nodes uses. A request that Slurm cannot fulfil is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchsuite.cluster import slurm
from benchsuite.cluster.slurm import Node, SlurmError
from benchsuite.errors import UsageError, nearest
from benchsuite.rundir import slug

# Arguments of sbatch that the submission itself gives. Each has its long and its short form.
_OURS = {
    "--array": "-a",
    "--chdir": "-D",
    "--comment": "",
    "--error": "-e",
    "--input": "-i",
    "--job-name": "-J",
    "--nodelist": "-w",
    "--nodes": "-N",
    "--ntasks": "-n",
    "--output": "-o",
    "--parsable": "",
    "--partition": "-p",
    "--test-only": "",
    "--wait": "-W",
    "--wrap": "",
}
_OWN_OPTIONS = {"--nodelist", "--nodes", "--partition"}


@dataclass(frozen=True)
class Request:
    """The options of `benchsuite jobs --slurm`. What is not given is None or empty."""

    count: int | None = None
    node_list: str | None = None
    partition: str | None = None
    sbatch_args: tuple[str, ...] = ()
    container: str | None = None


def check_args(words: Sequence[str]) -> None:
    """Refuse arguments of sbatch that the submission itself gives.

    Raises:
        UsageError: one of them is such an argument, or none at all.
    """
    for word in words:
        name = word.partition("=")[0]
        for long, short in _OURS.items():
            if name == long or (short and not word.startswith("--") and word.startswith(short)):
                remedy = f"use the option {long} of benchsuite" if long in _OWN_OPTIONS else "leave it out"
                raise UsageError(f"--sbatch-arg {word}: benchsuite sets {long} itself; {remedy}")
        if not word.startswith("-"):
            raise UsageError(f"--sbatch-arg {word}: give one argument of sbatch with its value: --sbatch-arg=--time=60")


def partition_of(request: Request) -> str:
    """The partition: that of the request, or Slurm's default.

    Raises:
        SlurmError: Slurm has no such partition, or no default one.
    """
    names, default = slurm.partitions()
    if request.partition is None:
        if default is None:
            raise SlurmError(f"--slurm: Slurm has no default partition; name one with --partition: {', '.join(names)}")
        return default
    if request.partition not in names:
        raise SlurmError(
            f"--partition {request.partition}: Slurm has no such partition{nearest(request.partition, names)}"
        )
    return request.partition


def nodes_of(request: Request, partition: str) -> list[Node]:
    """The nodes that a request names or counts; without either, all nodes of the partition that can run jobs.

    Raises:
        UsageError: a node does not exist, cannot run jobs, or there are too few.
    """
    if request.count is not None and request.node_list is not None:
        raise UsageError("--nodes: does not go with --nodelist; give one of them")
    known = slurm.nodes(partition)
    for node in known:
        if slug(node.name) != node.name:
            raise SlurmError(f"node {node.name}: its name cannot be that of a folder")
    if request.node_list is not None:
        return _named(request.node_list, known, partition)
    usable = [node for node in known if node.usable]
    count = len(usable) if request.count is None else request.count
    if not usable or count > len(usable):
        asked = f"--nodes {request.count}" if request.count else f"--partition {partition}"
        raise SlurmError(f"{asked}: {_can_run(usable, known, partition)}")
    if request.count is None:
        return usable
    chosen = {node.name for node in sorted(usable, key=lambda node: not node.idle)[:count]}
    return [node for node in usable if node.name in chosen]


def _named(expression: str, known: Sequence[Node], partition: str) -> list[Node]:
    by_name = {node.name: node for node in known}
    found = []
    for name in slurm.host_names(expression):
        if name not in by_name:
            raise SlurmError(
                f"--nodelist {expression}: partition {partition} has no node {name}{_nearest_node(name, list(by_name))}"
            )
        node = by_name[name]
        if not node.usable:
            raise SlurmError(f"--nodelist {expression}: node {_with_state(node)} and cannot run jobs; leave it out")
        found.append(node)
    if not found:
        raise UsageError("--nodelist: names no node")
    return found


def _can_run(usable: Sequence[Node], known: Sequence[Node], partition: str) -> str:
    down = [_with_state(node) for node in known if not node.usable]
    shown = "; ".join(down[:3]) + (f"; and {len(down) - 3} more" if len(down) > 3 else "")
    why = f" ({shown})" if down else ""
    remedy = f"ask for at most {len(usable)}" if usable else "name another partition"
    return f"partition {partition} has {len(known)} nodes, and {len(usable)} can run jobs{why}; {remedy}"


def _with_state(node: Node) -> str:
    return f"{node.name} is {node.state}" + (f" ({node.reason})" if node.reason else "")


def _nearest_node(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown node."""
    words = nearest(name, known)
    return words if len(known) <= 20 or not words.startswith("; known") else "; sinfo --Node lists its nodes"
