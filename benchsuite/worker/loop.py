"""The one timed loop. Whatever differs between ways of training is in the step that it is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from benchsuite.worker.timing import Rule, SliceRule, Stop, StoppedBy, TimedSlice

Batch = TypeVar("Batch")


def never() -> bool:
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
    """Steps through `batches` until `stop` is met; hands every slice to `close`; says why it stopped.

    A step returns how many items it processed and may leave work queued on the device: only `sync` waits for it, and
    it is called before the first slice and where a slice is thought to be full, never once a step. `batches` is an
    iterator from which no batch is taken that is not trained on, so that a second call goes on with it. `ended` is
    asked after each slice that did not meet the stop rule. What `step` raises passes through; work since the last
    slice is then not counted. `rule_of` makes the rule by which slices end: that of one process, or of a group.
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
            began = clock()  # what close() and ended() cost belongs to no slice
            rule.open(began)
        look, due_steps, due_items = rule.look_ns, rule.due_steps, rule.due_items
    if steps:
        sync()
        close(TimedSlice(began, clock(), steps, items, last=True))
    return "data"
