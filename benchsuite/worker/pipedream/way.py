"""Training in PipeDream's pipeline: minibatches follow each other without a flush, each with its own weights.

A step holds as many minibatches as each rank needs to get a whole number of them. They begin in the step; those that
are in flight end in later steps, so that the pipeline stays full.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchsuite.describe.training import Training
from benchsuite.models import Batch, Optimiser, Workload
from benchsuite.worker.feed import feed
from benchsuite.worker.learner import learner
from benchsuite.worker.pipedream.links import Links, Received
from benchsuite.worker.pipedream.order import Order
from benchsuite.worker.pipedream.versions import Versions
from benchsuite.worker.ranks import Ranks
from benchsuite.worker.stages.borders import Border
from benchsuite.worker.stages.bubble import Observer
from benchsuite.worker.stages.losses import Losses
from benchsuite.worker.stages.prepared import Prepared, prepared
from benchsuite.worker.stages.watch import Watch
from benchsuite.worker.state import State
from benchsuite.worker.step import Step


@dataclass(frozen=True)
class Minibatch:
    """One of this rank's minibatches.

    Attributes:
        borders: what each stage returns of it.
    """

    borders: list[Border]


@dataclass
class Flight:
    """A minibatch between its forward and its backward pass.

    Attributes:
        weights: the version with which it went forward.
        received: the tensors from the stage before that get a gradient.
        sent: those tensors of the stage's output that get a gradient; of the last stage the loss.
        border: what the stage returns.
        gradients: what the next stage sends, once this rank has asked for it.
    """

    weights: dict[str, Tensor]
    received: list[Tensor]
    sent: list[Tensor]
    border: Border
    gradients: Received | None = None


def make(workload: Workload, training: Training, device: str, ranks: Ranks) -> Step:
    """The step of a workload. Its check: the weights of each stage have changed, and are the same on its replicas.

    Raises:
        ModelError: the model cannot be cut as the job asks for, or clips by the norm of all gradients.
    """
    model = prepared(workload, training, device, ranks)
    learning, watch = model.learning(), Watch(device)
    runner = _Runner(model, training, device, watch)
    ranks.counting = 1

    def check() -> None:
        runner.finish()
        learning.check()
        model.check_replicas()

    place = feed(training, device)
    return Step(
        runner.run,
        runner.losses,
        runner.notes,
        feed=lambda batches: place(_own(batches, model)),
        check=check,
        finish=runner.rest,
        forget=runner.refresh,
        state=runner.state(),
        read_losses=Losses(model).reader(runner.losses),
        counts_items=ranks.rank == 0,
        observe=Observer(model, training, watch, runner.run).observe,
    )


Minibatches = tuple[int, list[tuple[Minibatch, Batch]]]


def _own(batches: Iterator[Batch], model: Prepared) -> Iterator[Minibatches]:
    """For each step the items of all its minibatches, and those of this rank. Middle stages need their shapes only."""
    replicas = len(model.layout.ranks[model.place])
    replica = model.layout.replica(model.ranks.rank)
    count = model.layout.minibatches
    while len(step := list(itertools.islice(batches, count))) == count:
        items = sum(model.workload.items(batch) for batch in step)
        own = []
        for batch in step[replica::replicas]:
            borders = model.shapes.of(model.chain.inputs(batch))
            own.append((Minibatch(borders), batch if model.first or model.last else None))
        yield items, own


class _Runner:
    """The stage of one rank, and how it takes a step."""

    def __init__(self, model: Prepared, training: Training, device: str, watch: Watch) -> None:
        self.losses: list[Tensor] = []
        self._model, self._watch = model, watch
        ((self._stage, module),) = model.own.items()
        self._versions = Versions(module)
        replicas = [len(ranks) for ranks in model.layout.ranks]
        self._replicas = replicas[self._stage]
        self._order = Order(replicas, self._stage, model.layout.replica(model.ranks.rank))
        groups = [dist.new_group(list(ranks)) for ranks in model.layout.ranks]
        self._group = groups[self._stage]
        self._links = Links(model.layout, self._stage, device)
        pace = Fraction(self._replicas, replicas[0])
        spec = _scaled(model.update.optimiser, float(pace))
        self._learner = learner(self._versions.newest, spec, training, device, None, pace=pace)
        self.notes = (*self._learner.notes, "pipedream: stages compute with weights of different ages")
        self._flights: dict[int, Flight] = {}

    def run(self, step: Minibatches) -> int:
        """Take the turns of a step."""
        items, own = step
        for turn, (minibatch, batch) in zip(self._order.turns(len(own)), own, strict=True):
            # It is on its way while this rank computes the backward pass of another.
            coming = None
            if not self._model.first:
                coming = self._links.activations(turn.forward, minibatch.borders[self._stage - 1])
            if turn.backward is not None:
                self._back(turn.backward)
            self._forth(turn.forward, minibatch, batch, coming)
            self._model.ranks.beat()
        return items

    def _forth(self, number: int, minibatch: Minibatch, batch: Batch, coming: Received | None) -> None:
        model, chain = self._model, self._model.chain
        if coming is None:
            flow, received = chain.inputs(batch), []
        else:
            flow = tuple(coming.get())
            received = [
                tensor.requires_grad_()
                for tensor, passed in zip(flow, minibatch.borders[self._stage - 1], strict=True)
                if passed.grad
            ]
        weights, border = self._versions.current, minibatch.borders[self._stage]
        self._ask(self._order.next_backward())
        with self._watch:
            found: Any = self._versions.forward(flow)
            if model.last:
                with model.cast:
                    found = chain.loss(found, batch)
        if model.last:
            self.losses[:] = [found.detach()]
            self._flights[number] = Flight(weights, received, [found], border)
            return
        self._links.send_on(number, [tensor.detach() for tensor in found])
        sent = [tensor for tensor, passed in zip(found, border, strict=True) if passed.grad]
        self._flights[number] = Flight(weights, received, sent, border)

    def _ask(self, number: int | None) -> None:
        """Let the gradients of a minibatch come, which the next backward pass needs.

        A transfer that waits for its other side holds some multiprocessors of a GPU: no rank asks earlier.
        """
        flight = None if self._model.last or number is None else self._flights.get(number)
        if flight and number is not None and flight.gradients is None:
            flight.gradients = self._links.gradients(number, flight.border)

    def _back(self, number: int) -> None:
        self._ask(number)
        flight = self._flights.pop(number)
        gradients: list[Tensor] | None = flight.gradients.get() if flight.gradients else None
        with self._watch:
            torch.autograd.backward(flight.sent, gradients)
        if not self._model.first:
            with torch.no_grad():
                zeros = partial(torch.zeros_like, memory_format=torch.contiguous_format)
                back = [zeros(t) if t.grad is None else t.grad.contiguous() for t in flight.received]
            self._links.send_back(number, back)
        self._links.has_gone(number)
        self._versions.take(flight.weights)
        if self._replicas > 1:
            self._average()
        with self._watch:
            self._learner.update()
            self._versions.updated()

    def _average(self) -> None:
        """Average the gradients over the replicas of this stage."""
        have = [param for param in self._versions.newest if param.grad is not None]
        for dtype in dict.fromkeys(param.dtype for param in have):
            gradients = [param.grad for param in have if param.dtype == dtype and param.grad is not None]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat, group=self._group)
            flat.div_(self._replicas)
            for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(mean.view_as(gradient))

    def finish(self) -> None:
        """Empty the pipeline for good. All ranks call it."""
        self.rest()
        self._links.finish()

    def rest(self) -> None:
        """Empty the pipeline. All ranks call it; the next step fills it again."""
        for number in self._order.rest():
            self._back(number)

    def refresh(self) -> None:
        """Compute with the newest weights from here on, since they have been set from outside."""
        self._versions.updated()

    def state(self) -> State:
        """What this rank trains, by the names of the whole model. The first replica of a stage writes it."""
        model, trains = self._model, self._model.update.trains
        whole = model.workload.modules[trains].state_dict(keep_vars=True)
        own = {id(held): held for held in model.own[self._stage].state_dict(keep_vars=True).values()}
        own |= {id(param): newest for param, newest in self._versions.trained()}
        tensors = {name: own[id(held)] for name, held in whole.items() if id(held) in own}
        first = model.layout.replica(model.ranks.rank) == 0
        stages = len(model.layout.ranks)
        return State(lambda: {trains: tensors}, {f"0.{trains}": self._learner}, model.place, stages, first)


def _scaled(spec: Optimiser, factor: float) -> Optimiser:
    """The optimiser of a stage. A stage with more replicas takes fewer steps, of a larger learning rate (PipeDream)."""
    if factor == 1 or "lr" not in spec.settings:
        return spec
    return replace(spec, settings={**spec.settings, "lr": spec.settings["lr"] * factor})
