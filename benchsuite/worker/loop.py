"""The timed loop, the same for all ways of training: they differ in the step that it calls."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from benchsuite.errors import ModelError, one_line
from benchsuite.worker.timing import Rule, SliceRule, Stop, StoppedBy, TimedSlice

Batch = TypeVar("Batch")

# Up to this number every integer is exact as a float, which rates are.
MOST_ITEMS = 1 << 53


def never() -> bool:
    """No: the loop ends by its stop rule only."""
    return False


def whole_items(answer: object) -> int:
    """The answer of a step as a number of items: any integer, also one of NumPy or torch.

    Raises:
        ModelError: the answer is not an integer, or a truth value, negative, or over `MOST_ITEMS`.
    """
    count = -1
    if not isinstance(answer, bool):
        with suppress(TypeError):
            count = operator.index(answer)  # type: ignore[arg-type]
    if 0 <= count <= MOST_ITEMS:
        return count
    wanted = f"it must be a whole number from 0 to {MOST_ITEMS:,}"
    raise ModelError(f"a step returned {_shown(answer)} for the items that it took; {wanted}")


def _shown(answer: object) -> str:
    """An answer in a few words: Python refuses to print integers of thousands of digits."""
    if isinstance(answer, int) and answer.bit_length() > 128:
        return f"{'-' if answer < 0 else ''}2**{answer.bit_length() - 1} or more"
    text = one_line(repr(answer))
    return text if len(text) <= 80 else f"{text[:80]}..."


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

    Raises:
        ModelError: a step did not return its number of items.
    """
    sync()
    began = clock()
    rule = rule_of(stop, began)
    look, due_steps, due_items = rule.look_ns, rule.due_steps, rule.due_items
    steps = items = 0
    for batch in batches:
        count = step(batch)
        if type(count) is not int or not 0 <= count <= MOST_ITEMS:
            count = whole_items(count)
        items += count
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
