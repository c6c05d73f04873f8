"""Where the ranks of a job over several nodes go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from benchsuite.describe.obstacles import apart, too_few
from benchsuite.describe.pairing import rounds
from benchsuite.describe.tasks import Gpu, Job, NodeShare
from benchsuite.errors import ProfileError, UsageError
from benchsuite.schema import Record

PAIR = 2


class Seat(Record, frozen=True, kw_only=True):
    """An agent of a run over nodes, and what it may use. Usually a node has one agent."""

    name: Annotated[
        str, Meta(description="the agent's node; of several agents on a node each has its number behind it")
    ]
    node: Annotated[int, Meta(description="number of the node, from 0")]
    host: Annotated[str, Meta(description="name of the machine")]
    gpus: Annotated[tuple[Gpu, ...], Meta(description="GPUs that the agent may use, in order")] = ()
    ranks: Annotated[int | None, Meta(description="its ranks in each task; null: as many as the others have")] = None


@dataclass(frozen=True)
class Spread:
    """The place of a task over nodes.

    Attributes:
        gpus: all GPUs of the task, in the order of its ranks.
        shares: the part of each agent, in the order of the ranks.
        skip: why the task cannot run; None if it can.
    """

    gpus: tuple[Gpu, ...] = ()
    shares: tuple[NodeShare, ...] = ()
    skip: str | None = None
    ranks: int = 1


def check(job: Job, at: str) -> None:
    """Refuse a job over nodes that asks for what only one machine has.

    Args:
        at: the file and the job, for the message.

    Raises:
        ProfileError: another field does not go with several nodes.
    """
    if job.placement.spanned < 1:
        raise ProfileError(f"{at}: field 'placement.nodes': {job.placement.nodes} is under 1; give a number of nodes")
    if job.placement.nodes == 1:
        return
    if job.placement.devices not in ("all", "none"):
        raise ProfileError(
            f"{at}: field 'placement': a job over nodes trains one model on all of them: give devices all (or none for "
            f"the CPU) with nodes {job.placement.nodes}"
        )
    for name, differs, remedy in (
        ("sharing", job.sharing != "serial" or job.copies != 1, "leave out sharing and copies"),
        ("batch_size", job.params.get("batch_size") == "auto", "give batch_size as a number"),
        ("container", job.container is not None, "start the nodes in an image instead: --container"),
    ):
        if differs:
            raise ProfileError(f"{at}: field '{name}': does not go with placement.nodes; {remedy}")


def alone(job: Job) -> Spread:
    """The place of a job over nodes on one machine that runs on its own."""
    nodes = job.placement.spanned
    return Spread(skip=f"the job spans {nodes} nodes: start it with --slurm, --launcher ssh or --join; docs/cluster.md")


def spread(job: Job, seats: Sequence[Seat]) -> Spread:
    """The place of a job on the first nodes of a run over nodes.

    Raises:
        UsageError: there are too few nodes, or the ranks cannot be divided among them.
    """
    nodes = job.placement.spanned
    if nodes == 1:
        return Spread(skip="the job runs on one node, and this run is over nodes: start it without --join")
    there = len({seat.node for seat in seats})
    if nodes > there:
        raise UsageError(
            f"job '{job.name}': it spans {nodes} nodes, and the run has {there}; start more, or lower nodes"
        )
    used = [seat for seat in seats if seat.node < nodes]
    if job.placement.devices == "all" and any(seat.gpus for seat in used):
        return _on_gpus(job, used)
    if job.placement.devices == "all" and not job.placement.cpu_allowed:
        return Spread(skip="no GPU is visible on the nodes, and the job's placement does not allow the CPU")
    ranks = job.training.parallel.ranks or _least_multiple(job.training.parallel.multiple, len(used))
    shares = [NodeShare(node=seat.name, ranks=of) for seat, of in zip(used, _each(job, ranks, used), strict=True)]
    return Spread(shares=tuple(shares), ranks=ranks)


def spread_pairs(job: Job, seats: Sequence[Seat]) -> Iterator[tuple[int, Spread]]:
    """The places of a job on each pair of nodes, with the numbers of their rounds: the pairs of a round run together.

    A single place if the job cannot run.

    Raises:
        UsageError: the run has a single node, or the ranks cannot be divided among two.
    """
    nodes = sorted({seat.node for seat in seats})
    if len(nodes) < PAIR:
        raise UsageError(f"job '{job.name}': it runs on pairs of nodes, and the run has {len(nodes)}; start more")
    for number, met in enumerate(rounds(len(nodes))):
        for pair in met:
            ends = [nodes[place] for place in pair]
            own = [replace(seat, node=ends.index(seat.node)) for seat in seats if seat.node in ends]
            yield number, (found := spread(job, own))
            if found.skip:  # what one pair lacks, as a GPU, all lack
                return


def _on_gpus(job: Job, used: Sequence[Seat]) -> Spread:
    asked = job.training.parallel.ranks
    counts = [len(seat.gpus) for seat in used]
    if asked is None and len(set(counts)) > 1:
        shown = ", ".join(f"{seat.name} has {len(seat.gpus)}" for seat in used[:8])
        raise UsageError(f"job '{job.name}': the nodes have different numbers of GPUs ({shown}); give parallel.dp")
    each = _each(job, asked or sum(counts), used)
    for seat, of in zip(used, each, strict=True):
        if of > len(seat.gpus):
            raise UsageError(f"job '{job.name}': {seat.name} gets {of} ranks and has {len(seat.gpus)} GPUs; lower them")
    if skip := too_few(job, sum(counts)) or apart([gpu for seat in used for gpu in seat.gpus]):
        return Spread(skip=skip)
    shares = [NodeShare(node=seat.name, ranks=of, gpus=of) for seat, of in zip(used, each, strict=True)]
    gpus = [gpu for seat, of in zip(used, each, strict=True) for gpu in seat.gpus[:of]]
    return Spread(tuple(gpus), tuple(shares), ranks=len(gpus))


def _each(job: Job, ranks: int, used: Sequence[Seat]) -> list[int]:
    """The ranks of each agent: those that are given, else equally many."""
    given = [seat.ranks for seat in used if seat.ranks]
    if len(given) == len(used) and sum(given) == ranks:
        return given
    multiple = job.training.parallel.multiple
    if ranks % multiple:
        raise UsageError(
            f"job '{job.name}': {ranks} ranks cannot be divided by {multiple}, as parallel asks; change it"
        )
    if ranks % len(used):
        what = f"{len(used)} nodes" if len({seat.node for seat in used}) == len(used) else f"{len(used)} agents"
        raise UsageError(f"job '{job.name}': {ranks} ranks cannot be divided equally among {what}; change parallel")
    return [ranks // len(used)] * len(used)


def _least_multiple(multiple: int, nodes: int) -> int:
    """The least number of ranks that is a multiple of both."""
    return next(ranks for ranks in range(nodes, multiple * nodes + 1, nodes) if ranks % multiple == 0)
