"""torch's schedules: one for each shape of a batch, since a schedule's buffers have fixed shapes."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, schedules

from benchsuite.describe.training import Schedule
from benchsuite.worker.stages.borders import Border, Stage, key_of
from benchsuite.worker.stages.cut import Flow
from benchsuite.worker.stages.watch import Watch

NAMES: Mapping[Schedule, str] = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-1f1b": "ScheduleInterleaved1F1B",
    "zero-bubble": "ScheduleInterleavedZeroBubble",
}
SINGLE = ("gpipe", "1f1b")
# Schedules that are kept, each with its buffers.
MOST_KEPT = 16


class Watched(PipelineStage):
    """A stage whose computing a watch sees."""

    watch: Watch
    beat: Callable[[], None]

    def forward_one_chunk(self, *arguments: Any, **named: Any) -> Any:
        """The forward pass of one micro-batch."""
        with self.watch:
            found = super().forward_one_chunk(*arguments, **named)
        self.beat()
        return found

    def backward_one_chunk(self, *arguments: Any, **named: Any) -> Any:
        """The backward pass of one micro-batch, or the part of it that computes gradients of inputs."""
        with self.watch:
            found = super().backward_one_chunk(*arguments, **named)
        self.beat()
        return found

    def backward_weight_one_chunk(self, *arguments: Any, **named: Any) -> Any:
        """The part of a backward pass that computes gradients of weights."""
        with self.watch:
            return super().backward_weight_one_chunk(*arguments, **named)


class Schedules:
    """The schedules of one rank.

    Args:
        own: the modules of this rank's stages.
        stages: the number of stages.
        borders_of: what each stage returns, for inputs of one micro-batch.
        loss: of the last stage's output and the number of the micro-batch.
        group: the ranks of this pipeline.
        beat: called after each pass.
    """

    def __init__(
        self,
        name: Schedule,
        own: Mapping[int, Stage],
        stages: int,
        microbatches: int,
        borders_of: Callable[[Flow], list[Border]],
        loss: Callable[[Any, Tensor], Tensor],
        device: str,
        group: Any,
        watch: Watch,
        beat: Callable[[], None],
    ) -> None:
        self._name, self._own, self._stages, self._microbatches = name, own, stages, microbatches
        self._borders_of, self._loss = borders_of, loss
        self._device, self._group = torch.device(device), group
        self._watch, self._beat = watch, beat
        self._kept: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()

    def of(self, inputs: Flow) -> Any:
        """The schedule for inputs of one micro-batch. The one that was not used for longest makes room for a new one.

        Args:
            inputs: of the first stage; only their shapes and formats count.
        """
        key = key_of(inputs)
        if key not in self._kept:
            if len(self._kept) == MOST_KEPT:
                self._kept.popitem(last=False)
            self._kept[key] = self._made(inputs)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _made(self, inputs: Flow) -> Any:
        borders = self._borders_of(inputs)
        first = tuple(torch.empty(one.shape, dtype=one.dtype, device="meta") for one in inputs)
        made = []
        for number, module in self._own.items():
            stage = Watched(
                module,
                stage_index=number,
                num_stages=self._stages,
                device=self._device,
                input_args=first if number == 0 else _travelling(borders[number - 1]),
                output_args=_travelling(borders[number]),
                group=self._group,
            )
            stage.watch, stage.beat = self._watch, self._beat
            made.append(stage)
        kind = getattr(schedules, NAMES[self._name])
        stages = {"stage": made[0]} if self._name in SINGLE else {"stages": made}
        return kind(**stages, n_microbatches=self._microbatches, loss_fn=self._loss)


def _travelling(border: Border) -> tuple[Tensor, ...]:
    """The tensors of a border as they travel, on the meta device."""
    return tuple(
        torch.empty(passed.shape, dtype=passed.carried, device="meta", requires_grad=passed.grad) for passed in border
    )


def stepped(schedule: Any, inputs: Flow, numbers: Tensor | None, losses: list[Tensor] | None) -> None:
    """Run a schedule for one batch. No rank keeps the outputs.

    Args:
        inputs: of the first stage; empty on other ranks.
        numbers: of the micro-batches; only on the rank of the last stage.
        losses: gets the loss of each micro-batch; only on the rank of the last stage.
    """
    named = {"target": numbers, "losses": losses, "return_outputs": False}
    known = inspect.signature(schedule.step).parameters
    schedule.step(*inputs, **{name: value for name, value in named.items() if name in known and value is not None})
