"""Turn telemetry off and on for the blocks of steps that show what measuring costs."""

from __future__ import annotations

from collections.abc import Sequence

from benchsuite.host.monitor import Monitor
from benchsuite.launch.working import Working

# The part of a bare block for which the parent sleeps: it wakes before the end, so that the next block begins soon.
ASLEEP = 0.9


def answer(running: Sequence[Working], monitor: Monitor) -> float:
    """Let a worker begin the block that it waits for.

    Returns:
        Seconds for which this process has nothing to do: most of a bare block, else 0.
    """
    asleep_s = 0.0
    for child in running:
        blocks = child.seen.ranks[0].blocks
        if len(blocks) > child.blocks_begun:
            child.blocks_begun = len(blocks)
            (monitor.resume if blocks[-1].measured else monitor.pause)()
            child.say_go_on()
            if child.task.cost and not blocks[-1].measured:
                asleep_s = ASLEEP * child.task.cost.block_s
    return asleep_s
