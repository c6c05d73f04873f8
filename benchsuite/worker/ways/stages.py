"""Pipeline-parallel training: each rank computes one or two stages of the model, by torch's schedules.

A batch is cut into micro-batches, which pass through the stages one behind the other. The gradients of a step are those
of the whole batch, and all stages take their optimiser step once the pipeline is empty. With `dp`, each stage has
replicas, which read batches of their own and average their gradients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from benchsuite.describe.training import Training
from benchsuite.models import Batch, Workload
from benchsuite.worker.feed import feed
from benchsuite.worker.learner import learner
from benchsuite.worker.precision import device_type
from benchsuite.worker.ranks import Ranks
from benchsuite.worker.stages.averaging import FlatGradients, clipping
from benchsuite.worker.stages.bubble import Observer
from benchsuite.worker.stages.layout import schedule_of
from benchsuite.worker.stages.losses import Losses
from benchsuite.worker.stages.prepared import Prepared, even, microbatch, prepared
from benchsuite.worker.stages.schedules import Schedules, stepped
from benchsuite.worker.stages.watch import Watch
from benchsuite.worker.state import State
from benchsuite.worker.step import Step, trainable


def make(workload: Workload, training: Training, device: str, ranks: Ranks) -> Step:
    """The step of a workload. Its check: the weights of each stage have changed, and are the same on its replicas.

    Raises:
        ModelError: the model cannot be cut as the job asks for.
    """
    if schedule_of(training.parallel) == "pipedream":
        from benchsuite.worker.pipedream import way

        return way.make(workload, training, device, ranks)
    model = prepared(workload, training, device, ranks)
    groups = _groups(model, device)
    learning, watch = model.learning(), Watch(device)
    runner = _Runner(model, training, device, groups, watch)
    replicas = len(model.layout.ranks[0])
    ranks.counting = replicas

    def check() -> None:
        learning.check()
        model.check_replicas()

    losses = Losses(model)
    return Step(
        runner.run,
        runner.losses,
        runner.notes,
        feed=feed(training, device) if model.first or model.last else iter,
        check=check,
        state=runner.state(),
        read_losses=losses.reader(runner.losses),
        counts_items=ranks.rank < replicas,
        observe=Observer(model, training, watch, runner.run).observe,
    )


def _groups(model: Prepared, device: str) -> tuple[Any, Any]:
    """The ranks of this pipeline and the replicas of its stages, each as a group; None for a single pipeline.

    Each group meets once: NCCL wants all its ranks to take part in its first call.
    """
    pipelines, replicas = len(model.layout.ranks), len(model.layout.ranks[0])
    found: tuple[Any, Any] = (None, None)
    if replicas > 1:
        mesh = init_device_mesh(device_type(device), (pipelines, replicas), mesh_dim_names=("stage", "replica"))
        found = mesh.get_group("stage"), mesh.get_group("replica")
    for group in found[: 1 + (replicas > 1)]:
        dist.all_reduce(torch.zeros(1, device=device), group=group)
    return found


class _Runner:
    """The stages of one rank, and how they take a step."""

    def __init__(self, model: Prepared, training: Training, device: str, groups: tuple[Any, Any], watch: Watch) -> None:
        self.losses: list[Tensor] = []
        self._model, self._watch, self._count = model, watch, model.microbatches
        pipeline, self._replicas = groups
        self._params = [param for stage in model.own.values() for param in trainable(stage)]
        spec = model.update.optimiser
        self._clip = clipping(self._params, spec.clip_norm, pipeline) if spec.clip_norm is not None else None
        self._learner = learner(self._params, replace(spec, clip_norm=None), training, device, None)
        self.notes = self._learner.notes
        self._flat = FlatGradients(self._params) if self._replicas else None
        self._numbers = torch.arange(self._count)
        self._batch: Batch = None
        self._schedules = Schedules(
            schedule_of(training.parallel),
            model.own,
            model.layout.stages,
            self._count,
            model.shapes.of,
            self._loss,
            device,
            pipeline,
            watch,
            model.ranks.beat,
        )

    def _loss(self, output: Any, number: Tensor) -> Tensor:
        """The loss of a micro-batch. Its number is a tensor on the CPU, so that reading it is no sync."""
        part = microbatch(self._batch, int(number), self._count)
        with self._watch, self._model.cast:
            return self._model.chain.loss(output, part)

    def run(self, batch: Batch) -> int:
        """Take a step."""
        model = self._model
        self._batch = batch = even(batch, self._count, model.chain)
        schedule = self._schedules.of(model.chain.inputs(microbatch(batch, 0, self._count)))
        (self._flat or self._learner).clear()
        found: list[Tensor] | None = [] if model.last else None
        # torch 2.11 compares strides as well.
        inputs = tuple(one.contiguous() for one in model.chain.inputs(batch)) if model.first else ()
        stepped(schedule, inputs, self._numbers if model.last else None, found)
        if self._flat:
            self._flat.average(self._replicas, len(model.layout.ranks[0]))
        if self._clip:
            self._clip()
        with self._watch:
            self._learner.update()
        if found:
            self.losses[:] = [torch.stack([loss.detach() for loss in found]).mean()]
        self._batch = None
        model.ranks.beat()
        return model.workload.items(batch)

    def state(self) -> State:
        """What this rank trains, by the names of the whole model. The first replica of a stage writes it."""
        model = self._model
        trains, places = model.update.trains, len(model.layout.ranks)
        first = model.ranks.rank in [ranks[0] for ranks in model.layout.ranks]
        return State(lambda: {trains: _held(model)}, {f"0.{trains}": self._learner}, model.place, places, first)


def _held(model: Prepared) -> dict[str, Tensor]:
    """The parameters and persistent buffers of this rank's stages, by their names in the whole module."""
    own = {id(held) for stage in model.own.values() for held in stage.state_dict(keep_vars=True).values()}
    whole = model.workload.modules[model.update.trains].state_dict(keep_vars=True)
    return {name: tensor for name, tensor in whole.items() if id(tensor) in own}
