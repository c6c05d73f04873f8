"""Measure the bubble of a pipeline: the share of its time in which a rank waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from benchsuite.describe.training import Training
from benchsuite.measurement import PipelineUsed, StageUsed
from benchsuite.models import Batch
from benchsuite.worker.stages.layout import ideal_bubble, schedule_of
from benchsuite.worker.stages.prepared import Prepared
from benchsuite.worker.stages.watch import Watch

# Steps after the measurement: those before the watch starts fill the pipeline.
BEFORE, STEPS = 2, 5


class Observer:
    """Takes some steps after the measurement, in which a watch adds up the time of computing.

    Args:
        run: takes a step.
    """

    def __init__(self, model: Prepared, training: Training, watch: Watch, run: Callable[[Batch], int]) -> None:
        self._model, self._training, self._watch, self._run = model, training, watch, run

    def observe(self, batches: Iterator[Batch]) -> PipelineUsed:
        """The pipeline with its bubble, the same on all ranks. All ranks call it."""
        for batch in itertools.islice(batches, BEFORE):
            self._run(batch)
        self._watch.start()
        for batch in itertools.islice(batches, STEPS):
            self._run(batch)
        mine = self._watch.stop()
        found: list[Any] = [None] * self._model.ranks.ranks
        dist.all_gather_object(found, mine)
        return self._described([busy for busy, _ in found], max(elapsed for _, elapsed in found))

    def _described(self, busy_s: list[float], elapsed_s: float) -> PipelineUsed:
        model, parallel = self._model, self._training.parallel
        layout, schedule = model.layout, schedule_of(parallel)
        idle = tuple(max(0.0, 1 - busy / elapsed_s) for busy in busy_s)
        return PipelineUsed(
            schedule=schedule,
            microbatches=None if schedule == "pipedream" else model.microbatches,
            cut_by=model.cut.by,
            stages=tuple(
                StageUsed(units=len(units), parameters=size, ranks=layout.of_stage(stage))
                for stage, (units, size) in enumerate(zip(model.cut.stages, model.sizes, strict=True))
            ),
            idle=tuple(round(share, 4) for share in idle),
            bubble=round(sum(idle) / len(idle), 4),
            ideal_bubble=round(ideal_bubble(schedule, len(layout.ranks), model.microbatches), 4),
            watched_steps=STEPS,
        )
