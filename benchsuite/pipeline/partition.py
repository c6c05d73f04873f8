"""The partitioner of PipeDream: the division of a model into stages with the shortest time between two minibatches.

Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training" (SOSP 2019), with the terms of
the program that its authors published. `docs/pipelines.md` explains them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from benchsuite.errors import PipelineError
from benchsuite.pipeline.cuts import Cuts, Floats, cuts_of
from benchsuite.pipeline.graph import Graph
from benchsuite.pipeline.stages import Level, Stage, StagePlan


def plan(graph: Graph, levels: Sequence[Level], *, straight: bool = False, transfers: bool = True) -> StagePlan:
    """The fastest plan that uses every GPU.

    Args:
        levels: the machine, the innermost level first: 4 GPUs and 2 hosts are 8 GPUs.
        straight: give one GPU to each stage.
        transfers: count the time of transfers between stages; if False, they take no time.

    Raises:
        PipelineError: the graph is too large, not connected or without times, or has too few units for straight stages.
    """
    cuts = cuts_of(graph)
    if not cuts.compute_s[-1]:
        raise PipelineError(
            "the units take no time; give their times in forward_compute_time and backward_compute_time"
        )
    searches = _search(cuts, levels, straight, transfers)
    seconds = float(searches[-1].best(0)[-1][-1])
    if math.isinf(seconds):
        gpus = math.prod(level.parts for level in levels)
        raise PipelineError(f"the graph cannot be cut into {gpus} stages, one for each GPU; take fewer GPUs")
    stages = tuple(_stages(searches, 0, len(cuts.compute_s) - 1, seconds))
    return StagePlan(
        levels=tuple(levels),
        straight=straight,
        transfers=transfers,
        seconds=seconds,
        one_gpu_s=float(cuts.compute_s[-1]),
        data_parallel_s=data_parallel_s(float(cuts.compute_s[-1]), float(cuts.parameter_bytes[-1]), levels),
        stages=stages,
        module_to_stage_map=(*range(len(stages)), len(stages) - 1),
        stage_to_rank_map={str(i): stage.ranks for i, stage in enumerate(stages)},
    )


def data_parallel_s(compute_s: float, parameter_bytes: float, levels: Sequence[Level]) -> float:
    """The predicted time between two minibatches if every GPU holds the whole model.

    Args:
        compute_s: seconds of one minibatch on one GPU.
        levels: as those of `plan`.
    """
    seconds, inner = compute_s, 1
    for level in levels:
        seconds = (seconds + _exchange_s(level, level.parts, parameter_bytes) / inner) / level.parts
        inner *= level.parts
    return seconds


def _exchange_s(level: Level, replicas: int, parameter_bytes: Any) -> Any:
    """Seconds in which a replica sends its gradients to the others and receives theirs; both ways count twice."""
    return 4 * (replicas - 1) / replicas * parameter_bytes / level.bandwidth


@dataclass(frozen=True)
class _Part:
    """The units between two cuts, as a stage of `replicas` parts of a level. `follows`: another stage comes before."""

    start: int
    end: int
    replicas: int
    follows: bool = False


@dataclass(frozen=True)
class _Costs:
    """The times of the stages of one level.

    Attributes:
        inner: GPUs in one part of the level.
        part_s: [cuts, cuts] seconds of the units between two cuts on one part; infinite if they make no stage.
    """

    cuts: Cuts
    level: Level
    inner: int
    part_s: Floats
    transfers: bool

    def first_s(self, replicas: int, start: Any, end: Any) -> Any:
        """Seconds of the first or only stage. Its inner GPUs exchange over their links at the same time.

        Args:
            start, end: numbers of cuts; arrays are broadcast.
        """
        exchange = _exchange_s(self.level, replicas, self._parameter_bytes(start, end))
        return (self.part_s[start, end] + exchange / self.inner) / replicas

    def later_s(self, replicas: int, start: Any, end: Any) -> Any:
        """As `first_s`, for a stage that follows another one."""
        exchange = _exchange_s(self.level, replicas, self._parameter_bytes(start, end))
        return np.maximum((self.part_s[start, end] + exchange) / replicas, self._transfer_s(replicas, start, end))

    def of_inner(self, part: _Part, inner_s: float, first: bool, last: bool) -> float:
        """Seconds of an inner stage of a stage of this level; the longest is the time of the stage.

        Args:
            inner_s: its seconds on one part of this level.
            first, last: whether it receives the inputs of the stage, and whether it sends the outputs.
        """
        exchange = _exchange_s(self.level, part.replicas, self._parameter_bytes(part.start, part.end))
        if not part.follows:
            return float((inner_s + exchange / self.inner) / part.replicas)
        ends = ([part.start] if first else []) + ([part.end] if last else [])
        transfers = (float(self._transfer_s(part.replicas, end, end)) for end in ends)
        return max(float((inner_s + exchange) / part.replicas), *transfers, 0.0)

    def _parameter_bytes(self, start: Any, end: Any) -> Any:
        return self.cuts.parameter_bytes[end] - self.cuts.parameter_bytes[start]

    def _transfer_s(self, replicas: int, start: Any, end: Any) -> Any:
        """Seconds in which a stage receives its inputs, or sends its outputs; the gradients go the opposite way."""
        passed = self.cuts.passed_bytes
        busiest = np.maximum(passed[start], passed[end]) if self.transfers else 0.0
        return 2 * busiest / (self.level.bandwidth * replicas)


class _Search:
    """The dynamic programme of one level: a plan is one stage, or the best plan for fewer parts and a last stage.

    Args:
        most: replicas that a stage may have.
    """

    def __init__(self, costs: _Costs, most: int) -> None:
        self.costs = costs
        self.most = most
        # Every stage that can follow another one, sorted by its end.
        self._ends, self._starts = np.nonzero(costs.cuts.within.T)
        self._later = [costs.later_s(replicas, self._starts, self._ends) for replicas in range(1, most + 1)]

    def best(self, start: int, limit: float | None = None) -> list[Floats]:
        """The best plans for the units from one cut to each other cut, on 1, 2, ... parts.

        Args:
            limit: None for the least time between two minibatches. Else for the least sum of the squares of the stages'
                seconds if no stage takes longer than `limit`.

        Returns:
            For each number of parts [cuts] the time or the sum; infinite where there is no plan.
        """
        costs, parts = self.costs, self.costs.level.parts
        chosen = np.flatnonzero(costs.cuts.within[start, self._starts])
        starts = self._starts[chosen]
        reached, offsets = np.unique(self._ends[chosen], return_index=True)
        later = [_within(seconds[chosen], limit) for seconds in self._later[: parts - 1]]
        join = np.maximum if limit is None else np.add
        found: list[Floats] = []
        for number in range(1, parts + 1):
            best = np.full(len(costs.part_s), np.inf)
            if number <= self.most:
                best = _within(costs.first_s(number, start, np.arange(len(best))), limit)
            for replicas, seconds in enumerate(later[: number - 1], 1):
                joined = join(found[number - replicas - 1][starts], seconds)
                if len(joined):
                    best[reached] = np.minimum(best[reached], np.minimum.reduceat(joined, offsets))
            found.append(best)
        return found

    def stages(self, start: int, end: int, limit: float) -> list[_Part]:
        """The plan for the units between two cuts, on all parts, with the least sum of squares.

        Args:
            limit: the least time between two minibatches, which many plans may share.
        """
        best = self.best(start, limit)
        found: list[_Part] = []
        number = len(best)
        while best[number - 1][end] < self._alone(number, start, end, limit):
            found.append(self._last(best[: number - 1], end, limit))
            end, number = found[-1].start, number - found[-1].replicas
        return [_Part(start, end, number), *reversed(found)]

    def _alone(self, replicas: int, start: int, end: int, limit: float) -> float:
        return float(_within(self.costs.first_s(replicas, start, end), limit)) if replicas <= self.most else np.inf

    def _last(self, best: list[Floats], end: int, limit: float) -> _Part:
        """The last of several stages, of the plan for one part more than `best` has."""
        places = np.arange(end)
        choices = []
        for replicas, before in enumerate(reversed(best[-self.most :]), 1):
            sums = before[:end] + _within(self.costs.later_s(replicas, places, end), limit)
            choices.append((float(sums.min()), replicas, int(sums.argmin())))
        _, replicas, start = min(choices)
        return _Part(start, end, replicas, follows=True)


def _within(seconds: Any, limit: float | None) -> Any:
    """The squares of times up to a limit, infinite above it; without a limit the times themselves."""
    return seconds if limit is None else np.square(np.where(seconds <= limit, seconds, np.inf))


def _search(cuts: Cuts, levels: Sequence[Level], straight: bool, transfers: bool) -> list[_Search]:
    """The search of each level. The least time on all parts of a level is the time on one part of the next level."""
    found: list[_Search] = []
    part_s = np.where(cuts.within, cuts.compute_s - cuts.compute_s[:, None], np.inf)
    inner = 1
    for level in levels:
        if found:
            part_s = np.array([found[-1].best(start)[-1] for start in range(len(part_s))])
        found.append(_Search(_Costs(cuts, level, inner, part_s, transfers), 1 if straight else level.parts))
        inner *= level.parts
    return found


def _stages(searches: Sequence[_Search], start: int, end: int, limit: float) -> Iterator[Stage]:
    """The stages of the units between two cuts, on the GPUs of all levels, which count from 0.

    Each part of a level runs the best plan of the level below. Replicas of a part are copies of this plan.
    """
    *below, level = searches
    rank = 0
    for part in level.stages(start, end, limit):
        part_s = float(level.costs.part_s[part.start, part.end])
        inner = list(_stages(below, part.start, part.end, part_s)) if below else [_one_gpu(level.costs, part)]
        firsts = [rank + replica * level.costs.inner for replica in range(part.replicas)]
        for stage in inner:
            ranks = tuple(first + own for first in firsts for own in stage.ranks)
            seconds = level.costs.of_inner(part, stage.seconds, stage is inner[0], stage is inner[-1])
            yield msgspec.structs.replace(stage, ranks=ranks, seconds=seconds)
        rank += part.replicas * level.costs.inner


def _one_gpu(costs: _Costs, part: _Part) -> Stage:
    cuts, start, end = costs.cuts, part.start, part.end
    compute_s = float(cuts.compute_s[end] - cuts.compute_s[start])
    return Stage(
        units=tuple(unit.name for unit in cuts.between(start, end)),
        ranks=(0,),
        compute_s=compute_s,
        seconds=compute_s,
        parameter_bytes=float(cuts.parameter_bytes[end] - cuts.parameter_bytes[start]),
        activation_bytes=float(cuts.activation_bytes[end] - cuts.activation_bytes[start]),
        passed_bytes=float(cuts.passed_bytes[end]),
    )
