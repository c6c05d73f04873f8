"""The order in which a rank of PipeDream's pipeline computes, and the version of the weights of each minibatch.

Minibatches count from 0 over all replicas of a stage: replica `r` of `n` takes minibatches r, r + n, r + 2 n, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


def warm_up(replicas: Sequence[int], stage: int) -> int:
    """The minibatches that a rank takes forward before its first backward pass, as in PipeDream's runtime.

    Args:
        replicas: the ranks of each stage.
    """
    return (sum(replicas[stage:]) - 1) // replicas[stage]


def version(replicas: Sequence[int], stage: int, minibatch: int) -> int:
    """The number of updates in the weights with which a stage computes a minibatch, forward and backward."""
    return max(0, minibatch // replicas[stage] - warm_up(replicas, stage))


@dataclass(frozen=True)
class Turn:
    """What a rank does with one of its minibatches: first the backward pass of an earlier one, then its own forward.

    Numbers are those of minibatches.
    """

    backward: int | None
    forward: int


class Order:
    """The turns of one rank.

    Args:
        replicas: the ranks of each stage.
        replica: the number of this rank among those of its stage.
    """

    def __init__(self, replicas: Sequence[int], stage: int, replica: int) -> None:
        self._step, self._replica = replicas[stage], replica
        self._warm_up = warm_up(replicas, stage)
        self._taken = self._returned = 0

    def turns(self, count: int) -> Iterator[Turn]:
        """The next turns."""
        for _ in range(count):
            backward = None
            if self._taken - self._returned > self._warm_up:
                backward, self._returned = self._number(self._returned), self._returned + 1
            yield Turn(backward, self._number(self._taken))
            self._taken += 1

    def next_backward(self) -> int | None:
        """The minibatch whose backward pass begins the next turn, if the one of the current turn is taken forward."""
        return self._number(self._returned) if self._taken + 1 - self._returned > self._warm_up else None

    def rest(self) -> Iterator[int]:
        """The minibatches whose backward passes are still to come, which empty the pipeline."""
        while self._returned < self._taken:
            self._returned += 1
            yield self._number(self._returned - 1)

    def _number(self, own: int) -> int:
        return own * self._step + self._replica
