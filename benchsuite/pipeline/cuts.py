"""The places at which a graph of units can be cut in two.

A cut is a set of units that holds, with each unit, all units whose outputs it reads: what lies before the cut. The
outputs of its last units make an antichain of the graph, PipeDream's word for a cut. A chain of n units has n cuts; a
graph that branches has more, for the units of two branches have no order among each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchsuite.errors import PipelineError
from benchsuite.pipeline.graph import Graph, Unit, divided

# The time of the partitioner grows with the square of the number of cuts; with two kinds of links, with its cube.
MOST_CUTS = 2_000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cuts:
    """The cuts of a graph, from the empty one to that after all units. A cut stands after all cuts that it contains.

    Attributes:
        units: the units that are divided among stages: without inputs, and without parts of outputs that nothing reads.
        members: [cuts, units] whether a unit lies before a cut.
        within: [cuts, cuts] whether the first cut is a proper part of the second.
        compute_s: [cuts] seconds of the forward and backward passes before a cut, on one GPU.
        activation_bytes: [cuts] size of all outputs before a cut.
        parameter_bytes: [cuts] size of all parameters before a cut.
        passed_bytes: [cuts] size of the outputs before a cut that are read behind it.
    """

    units: tuple[Unit, ...]
    members: NDArray[np.bool_]
    within: NDArray[np.bool_]
    compute_s: Floats
    activation_bytes: Floats
    parameter_bytes: Floats
    passed_bytes: Floats

    def between(self, start: int, end: int) -> tuple[Unit, ...]:
        """The units behind the cut `start` and before the cut `end`."""
        chosen = self.members[end] & ~self.members[start]
        return tuple(unit for unit, is_between in zip(self.units, chosen, strict=True) if is_between)


def cuts_of(graph: Graph) -> Cuts:
    """The cuts of a graph. Each one holds the unit with which the longest path begins.

    Another unit that reads inputs alone lies behind a cut until a unit before the cut reads its output. Without this
    rule the cuts of a graph with several inputs would be too many to compare.

    Raises:
        PipelineError: the graph has too many cuts, or parts that no edge joins.
    """
    units = divided(graph)
    if not units:
        raise PipelineError("the graph has no units but inputs; there is nothing to divide into stages")
    place = {unit.name: i for i, unit in enumerate(units)}
    edges = [(place[a], place[b]) for a, b in graph.edges if a in place and b in place]
    reads, read_by = ([0] * len(units) for _ in range(2))
    for a, b in edges:
        reads[b] |= 1 << a
        read_by[a] |= 1 << b
    found = sorted(_reached(reads, read_by), key=lambda cut: (cut.bit_count(), cut))
    everything = (1 << len(units)) - 1
    if found[-1] != everything:
        apart = units[next(_bits(everything & ~found[-1]))].name
        raise PipelineError(f"no edge joins unit '{apart}' with the longest path of the graph; a model is one graph")
    return _with_costs(units, [0, *found], read_by)


def _reached(reads: list[int], read_by: list[int]) -> set[int]:
    """The cuts as sets of bits, one for each unit. A cut grows by a unit that reads from it, with all that it needs."""
    needs: list[int] = []
    for i, of in enumerate(reads):
        needs.append(1 << i)
        for j in _bits(of):
            needs[i] |= needs[j]
    length = [0] * len(reads)
    for i in reversed(range(len(reads))):
        length[i] = 1 + max((length[j] for j in _bits(read_by[i])), default=0)
    first = needs[max(range(len(reads)), key=length.__getitem__)]
    found, waiting = {first}, [first]
    while waiting:
        cut = waiting.pop()
        readers = 0
        for i in _bits(cut):
            readers |= read_by[i]
        larger = {cut | needs[i] for i in _bits(readers & ~cut)} - found
        found |= larger
        waiting.extend(larger)
        if len(found) > MOST_CUTS:
            raise PipelineError(
                f"the graph can be cut in over {MOST_CUTS:,} ways, too many to compare; make one unit of each block "
                "that branches"
            )
    return found


def _bits(of: int) -> Iterator[int]:
    while of:
        lowest = of & -of
        yield lowest.bit_length() - 1
        of ^= lowest


def _with_costs(units: tuple[Unit, ...], found: list[int], read_by: list[int]) -> Cuts:
    members = np.zeros((len(found), len(units)), dtype=bool)
    passed = np.zeros((len(found), len(units)), dtype=bool)
    for row, cut in enumerate(found):
        inside = list(_bits(cut))
        members[row, inside] = True
        passed[row, inside] = [bool(read_by[i] & ~cut) for i in inside]
    numbers = members.astype(np.float64)
    size = members.sum(axis=1)
    within = (numbers @ numbers.T == size[:, None]) & (size[:, None] < size[None, :])

    def before(cost: list[float]) -> Any:
        return numbers @ np.array(cost)

    return Cuts(
        units=units,
        members=members,
        within=within,
        compute_s=before([u.forward_s + u.backward_s for u in units]),
        activation_bytes=before([u.activation_bytes for u in units]),
        parameter_bytes=before([u.parameter_bytes for u in units]),
        passed_bytes=passed @ np.array([u.activation_bytes for u in units]),
    )
