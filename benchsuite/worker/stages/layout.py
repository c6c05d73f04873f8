"""Which rank runs which stages, and how large the bubble of a schedule is in theory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchsuite.describe.training import INTERLEAVED, Parallel, Schedule


def schedule_of(parallel: Parallel) -> Schedule:
    """The schedule, or the one that a job has by default."""
    return parallel.schedule or "1f1b"


def num_stages(parallel: Parallel) -> int:
    """The stages into which the units of a model are cut."""
    assert parallel.pp
    return parallel.pp * (INTERLEAVED if schedule_of(parallel) == "interleaved-1f1b" else 1)


def num_microbatches(parallel: Parallel) -> int:
    """The micro-batches of each batch. `pipedream` passes on whole batches."""
    assert parallel.pp
    return 1 if schedule_of(parallel) == "pipedream" else parallel.microbatches or 4 * parallel.pp


@dataclass(frozen=True)
class Layout:
    """The ranks of each stage. Ranks with neighbouring numbers are replicas of a stage, as in PipeDream.

    Attributes:
        ranks: the ranks of each place of the pipeline. Place `p` has stage `p`, and in the interleaved schedule also
            the stage `p + number of places`.
        stages: the number of stages.
    """

    ranks: tuple[tuple[int, ...], ...]
    stages: int

    @classmethod
    def of(cls, parallel: Parallel, ranks: int) -> Layout:
        """The layout of a task of `ranks` ranks."""
        assert parallel.pp
        if schedule_of(parallel) == "pipedream":
            sizes = parallel.replicas or (1,) * parallel.pp
        else:
            sizes = (ranks // parallel.pp,) * parallel.pp
        firsts = [sum(sizes[:place]) for place in range(len(sizes))]
        places = tuple(tuple(range(first, first + size)) for first, size in zip(firsts, sizes, strict=True))
        return cls(places, num_stages(parallel))

    def place(self, rank: int) -> int:
        """The place of a rank in its pipeline."""
        return next(place for place, ranks in enumerate(self.ranks) if rank in ranks)

    def replica(self, rank: int) -> int:
        """The number of a rank among the replicas of its place."""
        return self.ranks[self.place(rank)].index(rank)

    def own_stages(self, rank: int) -> tuple[int, ...]:
        """The stages of a rank."""
        return tuple(range(self.place(rank), self.stages, len(self.ranks)))

    def of_stage(self, stage: int) -> tuple[int, ...]:
        """The ranks that run a stage."""
        return self.ranks[stage % len(self.ranks)]

    @property
    def minibatches(self) -> int:
        """With uneven replicas: the minibatches that one step holds, so that all replicas of a stage get as many."""
        return math.lcm(*map(len, self.ranks))


def ideal_bubble(schedule: Schedule, places: int, microbatches: int) -> float:
    """The share of a step in which a rank waits if all stages take equally long and transfers take no time.

    GPipe (Huang et al., 2019) and 1F1B: (p - 1) / (m + p - 1). Interleaved with v stages a rank (Narayanan et al.,
    2021): (p - 1) / (v m + p - 1). Zero bubble in its form ZB-H1 (Qi et al., 2023), with a forward pass, the gradients
    of inputs and those of weights of equal length: (p - 1) / (3 m + p - 1). PipeDream's does not empty: 0.
    """
    if schedule == "pipedream":
        return 0.0
    parts = {"interleaved-1f1b": INTERLEAVED, "zero-bubble": 3}.get(schedule, 1)
    return (places - 1) / (parts * microbatches + places - 1)
