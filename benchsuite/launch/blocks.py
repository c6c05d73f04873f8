"""Turn telemetry off and on for the blocks of steps that show what measuring costs."""

from __future__ import annotations

from collections.abc import Sequence

from benchsuite.costs import LEAD
from benchsuite.host.monitor import Monitor
from benchsuite.launch.working import Working


def answer(running: Sequence[Working], monitor: Monitor) -> float:
    """Let a worker begin the block that it waits for.

    Returns:
        Seconds for which this process has nothing to do: a bare block with its lead, else 0.
    """
    asleep_s = 0.0
    for child in running:
        blocks = child.seen.ranks[0].blocks
        if len(blocks) > child.blocks_begun:
            child.blocks_begun = len(blocks)
            (monitor.resume if blocks[-1].measured else monitor.pause)()
            child.say_go_on()
            if child.task.cost and not blocks[-1].measured:
                asleep_s = (1 + LEAD) * child.task.cost.block_s
    return asleep_s
