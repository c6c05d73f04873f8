"""The timed loop, the same for all ways of training: they differ in the step that it calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from benchsuite.worker.timing import Rule, SliceRule, Stop, StoppedBy, TimedSlice

Batch = TypeVar("Batch")


def never() -> bool:
    """No: the loop ends by its stop rule only."""
    return False


def timed_loop(
    step: Callable[[Batch], int],
    batches: Iterator[Batch],
    stop: Stop,
    close: Callable[[TimedSlice], None],
    *,
    sync: Callable[[], None],
    rule_of: Callable[[Stop, int], Rule] = SliceRule,
    clock: Callable[[], int] = time.monotonic_ns,
    ended: Callable[[], bool] = never,
) -> StoppedBy:
    """Train on `batches` until `stop` is met.

    An error of `step` passes through; steps since the last slice are then not counted.

    Args:
        step: trains on one batch and returns the number of its items. It may leave work queued on the device.
        batches: every batch that is taken is trained on, so that a second call continues with the next one.
        stop: when the loop ends.
        close: gets each slice as it ends.
        sync: waits for the device. It is called before the first slice and when a slice should be full, not at each
            step.
        rule_of: makes the rule by which slices end: that of one process, or of a group.
        clock: nanoseconds of a monotonic clock.
        ended: asked after each slice that did not meet the stop rule; True ends the loop.

    Returns:
        Why the loop ended.
    """
    sync()
    began = clock()
    rule = rule_of(stop, began)
    look, due_steps, due_items = rule.look_ns, rule.due_steps, rule.due_items
    steps = items = 0
    for batch in batches:
        items += step(batch)
        steps += 1
        if clock() < look and steps < due_steps and items < due_items:
            continue
        sync()
        now = clock()
        if rule.closes(now, steps, items):
            close(TimedSlice(began, now, steps, items, last=rule.met is not None))
            if rule.met:
                return rule.met
            if ended():
                return "stop"
            steps = items = 0
            began = clock()  # the time of close() and ended() belongs to no slice
            rule.open(began)
        look, due_steps, due_items = rule.look_ns, rule.due_steps, rule.due_items
    if steps:
        sync()
        close(TimedSlice(began, clock(), steps, items, last=True))
    return "data"
