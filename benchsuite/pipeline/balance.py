"""Cut a chain of units into stages of similar cost, without a profile: what a job with a pipeline does by default."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def balanced(costs: Sequence[float], stages: int, replicas: Sequence[int] | None = None) -> tuple[int, ...]:
    """The number of units of each stage, so that the largest cost of a stage is least.

    Of several such cuts, the one with the least sum of the squares of all costs is taken, and then the one whose first
    stages are longest.

    Args:
        costs: one for each unit, in the order of the forward pass.
        stages: from 1 to the number of units.
        replicas: of each stage; they share its cost. None: one each.
    """
    before = [0.0, *itertools.accumulate(costs)]
    units = len(costs)
    # best[end]: (largest cost, sum of squares, sizes) of the first units, up to `end`, in the stages so far
    best: dict[int, tuple[float, float, tuple[int, ...]]] = {0: (0.0, 0.0, ())}
    for stage in range(stages):
        later = stages - stage - 1
        ends = range(stage + 1, units - later + 1)
        shared = replicas[stage] if replicas else 1
        best = {
            end: min((_grown(best[s], before, s, end, shared) for s in best if s < end), key=_order) for end in ends
        }
    return best[units][2]


def _grown(
    found: tuple[float, float, tuple[int, ...]], before: Sequence[float], start: int, end: int, replicas: int
) -> tuple[float, float, tuple[int, ...]]:
    cost = (before[end] - before[start]) / replicas
    return max(found[0], cost), found[1] + cost**2, (*found[2], end - start)


def _order(found: tuple[float, float, tuple[int, ...]]) -> tuple[float, float, list[int]]:
    return found[0], found[1], [-size for size in found[2]]
