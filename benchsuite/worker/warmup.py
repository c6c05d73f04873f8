"""Warm-up: untimed steps until kernels are chosen, memory is allocated and the loss scale of fp16 fits."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from benchsuite.errors import ModelError
from benchsuite.events import End, EventWriter
from benchsuite.measurement import WarmUp
from benchsuite.schema import finite
from benchsuite.worker.device import Device
from benchsuite.worker.step import Step

WARM_UP_STEPS = 5  # enough for lazy initialisation, autotuning and graph capture
SETTLING_STEPS = 30  # the scale begins at 2 ** 16 and is halved at each overflow
PROBE_STEPS, PROBE_S = 50, 2.0


def warm_up(step: Step, batches: Iterator[Any], device: Device) -> WarmUp:
    """Take the first steps.

    Raises:
        ModelError: the data ended, a step did not return its number of items, a loss is not finite, or gradients
            overflow at every loss scale.
    """
    began, steps = time.monotonic(), 0
    for batch in itertools.islice(batches, WARM_UP_STEPS):
        items = step.run(batch)
        if type(items) is not int or items < 0:
            raise ModelError(f"a step returned {items!r} for the items that it took; it must be a whole number from 0")
        steps += 1
    device.sync()
    if steps < WARM_UP_STEPS:
        raise ModelError(f"the data ended within the {WARM_UP_STEPS} steps of warm-up")
    steps += _settle(step, batches)
    loss_of(step)
    return WarmUp(steps=steps, elapsed_s=time.monotonic() - began)


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


def loss_of(step: Step) -> float | None:
    """The sum of the last step's losses; None for a model without losses. Call it after a device sync.

    Raises:
        ModelError: a loss is not finite.
    """
    losses = [float(loss) for loss in step.losses]
    if any(finite(loss) is None for loss in losses):
        raise ModelError(f"the loss is not finite: {', '.join(map(str, losses))}")
    return finite(sum(losses)) if losses else None


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
