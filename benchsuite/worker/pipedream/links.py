"""Transfers between the stages of PipeDream's pipeline: activations one way, gradients the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchsuite.worker.stages.borders import Border
from benchsuite.worker.stages.layout import Layout

# Minibatches whose gradients may be on their way. The stage before asks for them before it needs them.
MOST_RETURNING = 2


class Received:
    """Tensors that are on their way."""

    def __init__(self, tensors: list[Tensor], works: list[Any]) -> None:
        self._tensors, self._works = tensors, works

    def get(self) -> list[Tensor]:
        """The tensors, once they are here. On a GPU the stream waits for them, and the host does not."""
        for work in self._works:
            work.wait()
        return self._tensors


class Links:
    """The links of one rank to those before and behind it.

    Both directions have a group of their own. NCCL carries out the transfers of a pair of ranks in their order, so that
    in one group two ranks that send to each other would wait for each other.
    """

    def __init__(self, layout: Layout, stage: int, device: str) -> None:
        self._layout, self._stage, self._device = layout, stage, torch.device(device)
        backend = "nccl" if self._device.type == "cuda" else "gloo"
        self._forward, self._backward = dist.new_group(backend=backend), dist.new_group(backend=backend)
        for group in (self._forward, self._backward):
            dist.all_reduce(torch.zeros(1, device=device), group=group)
        self._going: dict[int, list[Any]] = {}
        self._returning: deque[list[Any]] = deque()

    def _rank(self, stage: int, minibatch: int) -> int:
        ranks = self._layout.of_stage(stage)
        return ranks[minibatch % len(ranks)]

    def send_on(self, minibatch: int, flow: Sequence[Tensor]) -> None:
        """Send activations to the next stage."""
        self._going[minibatch] = _sent(flow, self._rank(self._stage + 1, minibatch), self._forward)

    def has_gone(self, minibatch: int) -> None:
        """Free what was sent on. The next stage has it, since its gradients are here."""
        _waited(self._going.pop(minibatch, []))

    def send_back(self, minibatch: int, gradients: Sequence[Tensor]) -> None:
        """Send gradients to the stage before."""
        self._returning.append(_sent(gradients, self._rank(self._stage - 1, minibatch), self._backward))
        if len(self._returning) > MOST_RETURNING:
            _waited(self._returning.popleft())

    def activations(self, minibatch: int, border: Border) -> Received:
        """What the stage before sends of a minibatch."""
        return self._receive(border, self._rank(self._stage - 1, minibatch), self._forward)

    def gradients(self, minibatch: int, border: Border) -> Received:
        """What the next stage sends of a minibatch: the gradients of those tensors that have one."""
        asked = tuple(passed for passed in border if passed.grad)
        return self._receive(asked, self._rank(self._stage + 1, minibatch), self._backward)

    def _receive(self, border: Border, rank: int, group: Any) -> Received:
        tensors = [torch.empty(one.shape, dtype=one.carried, device=self._device) for one in border]
        return Received(tensors, [dist.irecv(tensor, rank, group=group) for tensor in tensors])

    def finish(self) -> None:
        """Wait for all that was sent."""
        for pending in (*self._going.values(), *self._returning):
            _waited(pending)


def _sent(tensors: Sequence[Tensor], rank: int, group: Any) -> list[Any]:
    """Begin to send. Each work is kept with its tensor, whose memory must stay until the work is done."""
    return [(dist.isend(tensor, rank, group=group), tensor) for tensor in tensors]


def _waited(pending: list[Any]) -> None:
    for work, _ in pending:
        work.wait()
