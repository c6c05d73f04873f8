"""Warm-up: untimed steps until kernels are chosen, memory is allocated, the loss scale fits and the time is over."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from benchsuite.errors import ModelError
from benchsuite.events import End, EventWriter
from benchsuite.measurement import WarmUp
from benchsuite.schema import finite
from benchsuite.worker.device import Device
from benchsuite.worker.loop import never, timed_loop, whole_items
from benchsuite.worker.rank_slices import AgreedRule
from benchsuite.worker.ranks import Ranks
from benchsuite.worker.step import Step
from benchsuite.worker.timing import SLICE_NS, SliceRule, Stop, TimedSlice

WARM_UP_STEPS = 5  # enough for lazy initialisation, autotuning and graph capture
WATCHED_STEP = 3  # neither the first, which initialises, nor the last
SETTLING_STEPS = 30  # the scale begins at 2 ** 16 and is halved at each overflow
PROBE_STEPS, PROBE_S = 50, 2.0


def warm_up(
    step: Step,
    batches: Iterator[Any],
    device: Device,
    warm_up_s: float = 0.0,
    ranks: Ranks | None = None,
    watch: AbstractContextManager[Any] | None = None,
) -> WarmUp:
    """Take the first steps, and more until `warm_up_s` seconds have passed since the first one began.

    Args:
        ranks: the group of this rank, if it has one. All ranks take the same number of steps.
        watch: entered for one of the first steps.

    Raises:
        ModelError: the data ended, a step did not return its number of items, a loss is not finite, or gradients
            overflow at every loss scale.
    """
    began, steps, first_s = time.monotonic(), 0, 0.0
    for batch in itertools.islice(batches, WARM_UP_STEPS):
        with watch if watch and steps == WATCHED_STEP else nullcontext():
            whole_items(step.run(batch))
        steps += 1
        if steps == 1:
            device.sync()
            first_s = time.monotonic() - began
    device.sync()
    if steps < WARM_UP_STEPS:
        raise ModelError(f"the data ended within the {WARM_UP_STEPS} steps of warm-up")
    steps += _settle(step, batches)
    steps += _steps_for(began + warm_up_s - time.monotonic(), step, batches, device, ranks)
    loss_of(step)
    return WarmUp(steps=steps, elapsed_s=time.monotonic() - began, first_step_s=first_s)


def _settle(step: Step, batches: Iterator[Any]) -> int:
    """In fp16, take steps until the loss scale fits: a step that overflows skips the optimiser, and would be too fast.

    Returns:
        The number of steps taken.

    Raises:
        ModelError: gradients overflow at every loss scale, or a loss is not finite.
    """
    if not step.scales:
        return 0
    scales = [scale() for scale in step.scales]
    loss_of(step)  # if the weights have diverged, no loss scale fits
    for steps, batch in enumerate(itertools.islice(batches, SETTLING_STEPS), 1):
        step.run(batch)
        before, scales = scales, [scale() for scale in step.scales]
        if all(now >= was for now, was in zip(scales, before, strict=True)):
            return steps
        loss_of(step)
    raise ModelError(f"amp-fp16: the gradients still overflow after {SETTLING_STEPS} steps of warm-up; try bf16")


def _steps_for(seconds: float, step: Step, batches: Iterator[Any], device: Device, ranks: Ranks | None = None) -> int:
    """Take steps for this time; none if it is 0 or less.

    The device is synced twice a second, as in the timed loop: neither each step waits for it, nor do steps queue up.

    Args:
        seconds: in a group, the value of rank 0 counts, and its clock.

    Returns:
        The number of steps taken, in a group the same on all ranks.

    Raises:
        ModelError: the data ended.
    """
    left_ns = round(seconds * 1e9)
    if ranks:
        (left_ns,) = ranks.agree([left_ns])
    if left_ns <= 0:
        return 0
    slice_ns = math.ceil(left_ns / math.ceil(left_ns / SLICE_NS))  # whole slices fill the time
    rule_of = partial(AgreedRule, ranks, never) if ranks else SliceRule
    taken: list[TimedSlice] = []
    stop = Stop(min_time_ns=left_ns, slice_ns=slice_ns)
    if timed_loop(step.run, batches, stop, taken.append, sync=device.sync, rule_of=rule_of) == "data":
        raise ModelError("the data ended within the warm-up; lower warm_up_s, or give more data")
    return sum(one.steps for one in taken)


def loss_of(step: Step) -> float | None:
    """The sum of the last step's losses, of an array the mean over its models; None for a model without losses.

    Call it after a device sync.

    Raises:
        ModelError: a loss is not finite.
    """
    losses = losses_of(step)
    return finite(sum(losses) / len(losses)) if losses else None


def losses_of(step: Step) -> list[float]:
    """As `loss_of`, for each model: one value, or those of an array; empty for a model without losses.

    Raises:
        ModelError: a loss is not finite.
    """
    if step.read_losses:
        updates = [[loss] for loss in step.read_losses()]
    else:
        updates = [loss.reshape(-1).tolist() if getattr(loss, "ndim", 0) else [float(loss)] for loss in step.losses]
    for model, losses in enumerate(zip(*updates, strict=True)):
        if any(finite(loss) is None for loss in losses):
            which = f" of model {model}" if len(updates[0]) > 1 else ""
            raise ModelError(f"the loss{which} is not finite: {', '.join(map(str, losses))}")
    return [sum(losses) for losses in zip(*updates, strict=True)]


def probe(
    step: Step, batches: Iterator[Any], device: Device, events: EventWriter, limit_s: float | None = PROBE_S
) -> None:
    """Take more steps to find the peak of memory, since batches may differ in length, and report it.

    Args:
        limit_s: the time after which no more steps are taken. None for a rank: all ranks take the same number.
    """
    began = time.monotonic()
    for batch in itertools.islice(batches, PROBE_STEPS):
        step.run(batch)
        device.sync()
        if limit_s is not None and time.monotonic() - began > limit_s:
            break
    events.write(End(n=events.count, at_s=time.monotonic(), stopped_by="probe", peak_memory=device.peak_memory()))
