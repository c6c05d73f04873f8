"""What measuring costs: blocks of the same number of steps, bare and measured in turns, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from benchsuite.costs import LEAD, CostAsked, CostRound, MeasuringCost
from benchsuite.errors import ModelError
from benchsuite.events import BlockDue
from benchsuite.worker.loop import timed_loop
from benchsuite.worker.measuring import Measuring
from benchsuite.worker.timing import NO_LIMIT, Stop, StoppedBy, TimedSlice


class OneSlice:
    """The rule of a bare block: one slice of all its steps, without a look before its end."""

    look_ns = NO_LIMIT
    due_items = NO_LIMIT
    met: StoppedBy | None = None

    def __init__(self, stop: Stop, now: int) -> None:
        self.due_steps = stop.max_steps or 1

    def open(self, now: int) -> None:
        """There is no second slice."""

    def closes(self, now: int, steps: int, items: int) -> bool:
        """The slice ends here: the loop asks at the last step only."""
        self.met = "count"
        return True


def cost_of_measuring(asked: CostAsked, measuring: Measuring, batches: Iterator[Any]) -> MeasuringCost:
    """Run the blocks, until the parent says "stop" at the latest.

    Their order changes from round to round, so that a drift of the rate cancels out.

    Args:
        measuring: the measured part, which is over.

    Raises:
        ModelError: the data ended.
    """
    steps = max(1, round(asked.block_s * measuring.steps / measuring.trained_s))
    measuring.phase = "hold"
    blocks: dict[bool, Callable[[Iterator[Any], int], None]] = {
        False: lambda batches, steps: _bare(measuring, batches, steps),
        True: measuring.block,
    }
    rounds = []
    for number in range(asked.rounds):
        took_s, cpu_s = {}, {}
        for measured in (False, True) if number % 2 else (True, False):
            events = measuring.events
            events.write(BlockDue(n=events.count, at_s=time.monotonic(), measured=measured))
            measuring.control.wait_for_go()
            measuring.waits.paused = not measured
            blocks[measured](batches, max(1, round(LEAD * steps)))
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            blocks[measured](batches, steps)
            took_s[measured], cpu_s[measured] = time.monotonic() - began_s, time.process_time() - began_cpu_s
        if measuring.control.stop_said():
            break
        rounds.append(CostRound(took_s[False], took_s[True], cpu_s[False], cpu_s[True]))
    measuring.waits.paused = False
    return MeasuringCost(steps=steps, rounds=tuple(rounds))


def _bare(measuring: Measuring, batches: Iterator[Any], steps: int) -> None:
    """Train for this many steps in the same loop, with a sync at its start and its end.

    Raises:
        ModelError: the data ended.
    """
    closed: list[TimedSlice] = []
    stop = Stop(max_steps=steps)
    run, sync = measuring.step.run, measuring.device.sync
    if timed_loop(run, batches, stop, closed.append, sync=sync, rule_of=OneSlice) == "data":
        raise ModelError("the data ended while the cost of measuring was measured")
