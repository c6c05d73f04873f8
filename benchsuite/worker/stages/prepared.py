"""What both kinds of pipelines begin with: the cut, the stages of this rank on its device, and what they pass on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Batch, Chain, Share, Update, Workload, on_tensors
from benchsuite.worker.checkpoint import checkpoint_blocks
from benchsuite.worker.checks import Learning
from benchsuite.worker.compiling import settings
from benchsuite.worker.precision import autocast
from benchsuite.worker.ranks import Ranks
from benchsuite.worker.stages.borders import Border, Shapes, Stage, explored
from benchsuite.worker.stages.cut import Cut, Flow, checked_chain, cut, names_of
from benchsuite.worker.stages.layout import Layout, num_microbatches, num_stages, schedule_of
from benchsuite.worker.ways.ddp import apart


@dataclass(frozen=True)
class Prepared:
    """A model whose stages are on their ranks.

    Attributes:
        own: stage -> its module, for the stages of this rank.
        shapes: what each stage returns, by the inputs of one micro-batch.
        sizes: the parameters of each stage.
    """

    workload: Workload
    chain: Chain
    layout: Layout
    cut: Cut
    own: Mapping[int, Stage]
    shapes: Shapes
    sizes: tuple[int, ...]
    cast: AbstractContextManager[Any]
    microbatches: int
    ranks: Ranks

    @property
    def update(self) -> Update:
        """The only update of the workload."""
        return self.workload.updates[0]

    @cached_property
    def place(self) -> int:
        """The place of this rank in its pipeline."""
        return self.layout.place(self.ranks.rank)

    @property
    def first(self) -> bool:
        """This rank has the first stage."""
        return 0 in self.own

    @property
    def last(self) -> bool:
        """This rank has the last stage."""
        return self.layout.stages - 1 in self.own

    def learning(self) -> Learning:
        """Remembers the weights of this rank's stages."""
        module = nn.ModuleList(self.own.values())
        return Learning(replace(self.workload, modules={self.update.trains: module}))

    def check_replicas(self) -> None:
        """Raises ModelError: the weights of a stage differ among its replicas. All ranks wait for it."""
        mine = [float(p.detach().double().norm()) for stage in self.own.values() for p in stage.parameters()]
        found: list[Any] = [None] * self.ranks.ranks
        dist.all_gather_object(found, mine)
        for place, ranks in enumerate(self.layout.ranks):
            if any(apart(found[ranks[0]], found[rank]) for rank in ranks):
                raise ModelError(f"the replicas of stage {place} have drifted apart: not all gradients were averaged")


def prepared(workload: Workload, training: Training, device: str, ranks: Ranks) -> Prepared:
    """Cut the model, move the stages of this rank to its device, and free all others.

    Shapes are those of a generated batch, also if the job reads a data set.

    Raises:
        ModelError: the model cannot be cut as the job asks for.
    """
    parallel = training.parallel
    layout = Layout.of(parallel, ranks.ranks)
    chain = checked_chain(workload)
    _check_clip(workload, training)
    checkpoint_blocks(workload, training)
    count = num_microbatches(parallel)
    batch = microbatch(even(sample(workload, device), count, chain), 0, count)
    found = cut(chain, layout.stages, parallel.stages, batch, parallel.replicas)
    stages = layout.own_stages(ranks.rank)
    sizes = tuple(sum(p.numel() for unit in units for p in unit.parameters()) for units in found.stages)
    cast = autocast(training.precision, device)
    _place(workload, found, stages, device)
    inputs = chain.inputs(batch)
    own_units = {stage: found.stages[stage] for stage in stages}
    borders = explored(layout, ranks.rank, own_units, inputs, cast, device)
    shapes = Shapes(found.stages, inputs, borders)
    own = {stage: _module(found, stage, borders, cast, training) for stage in stages}
    return Prepared(workload, chain, layout, found, own, shapes, sizes, cast, count, ranks)


def check_cut(workload: Workload, training: Training) -> None:
    """Cut the model of a job, and nothing else.

    Raises:
        ModelError: the model cannot be cut as the job asks for.
    """
    chain, count = checked_chain(workload), num_microbatches(training.parallel)
    batch = microbatch(even(sample(workload), count, chain), 0, count)
    cut(chain, num_stages(training.parallel), training.parallel.stages, batch, training.parallel.replicas)
    _check_clip(workload, training)


def _check_clip(workload: Workload, training: Training) -> None:
    if schedule_of(training.parallel) == "pipedream" and workload.updates[0].optimiser.clip_norm is not None:
        raise ModelError(
            "pipedream: stages take their steps at different times and have no common norm to clip gradients by; give "
            "another schedule, or no clipping (parameter 'clip': null)"
        )


def sample(workload: Workload, device: str = "cpu") -> Batch:
    """A generated batch: the same on all ranks."""
    return next(iter(workload.batches(Share(device=device))))


def _module(
    found: Cut, stage: int, borders: list[Border], cast: AbstractContextManager[Any], training: Training
) -> Stage:
    last = stage == len(found.stages) - 1
    module = Stage(found.stages[stage], borders[stage - 1] if stage else None, last, cast)
    if training.compile != "none":
        module.compile(**settings(training))
    return module


def _place(workload: Workload, found: Cut, own: tuple[int, ...], device: str) -> None:
    name = workload.updates[0].trains
    for stage, units in enumerate(found.stages):
        for unit in units:
            if stage not in own:
                unit.to("meta")
            elif workload.fill:
                unit.to_empty(device=device)
            else:
                unit.to(device)
    if workload.fill:
        held = [unit for stage in own for unit in found.stages[stage]]
        with torch.no_grad():
            for path, tensor in names_of(workload.modules[name], held).items():
                workload.fill(f"{name}.{path}", tensor)


def even(batch: Batch, microbatches: int, chain: Chain) -> Batch:
    """The batch, without the samples that do not divide among the micro-batches if the model's batches vary.

    Raises:
        ModelError: it has fewer samples than micro-batches, or its samples do not divide among them.
    """
    samples = len(_inputs(chain, batch)[0])
    rest = samples % microbatches
    if samples < microbatches:
        raise ModelError(
            f"a batch has {samples} samples, fewer than {microbatches} micro-batches; raise batch_size, or lower "
            "parallel.microbatches"
        )
    if not rest:
        return batch
    if not chain.varies:
        raise ModelError(
            f"a batch has {samples} samples, which {microbatches} micro-batches do not divide; give a batch_size or "
            "parallel.microbatches that fits"
        )
    return on_tensors(lambda tensor: tensor[: samples - rest], batch)


def microbatch(batch: Batch, number: int, microbatches: int) -> Batch:
    """One of equal parts of a batch, by its number."""

    def part(tensor: torch.Tensor) -> torch.Tensor:
        size = len(tensor) // microbatches
        return tensor[number * size : (number + 1) * size]

    return on_tensors(part, batch)


def _inputs(chain: Chain, batch: Batch) -> Flow:
    return chain.inputs(batch)
