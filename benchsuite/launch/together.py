"""The start and the end that the workers of a wave have in common, and the proof of how they share their GPUs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchsuite.launch.child import Child
from benchsuite.launch.working import Working

# A neighbour that is not ready by then, or by half of the shortest timeout, no longer keeps the others waiting.
READY_LIMIT_S = 300.0


def say(running: Sequence[Working]) -> None:
    """Say go once all workers are ready, or the limit of the wait is over. Say stop once all have measured."""
    _look(running)
    waiting = [c for c in running if c.seen.ready and c.go_s is None]
    if waiting:
        others_ready = all(c.seen.ready for c in running)
        limit_s = min(READY_LIMIT_S, *(c.task.job.timeout_s / 2 for c in running))
        late = time.monotonic() - min(c.started_s for c in running) > limit_s
        if others_ready or late or any(c.go_s is not None for c in running):
            for child in waiting:
                child.say_go()
    if all(c.seen.measured for c in running):
        for child in running:
            if not child.stop_said:
                child.say_stop()


def _look(running: Sequence[Working]) -> None:
    proof = next((child.wave.sharing for child in running), None)
    if proof:
        ready = (child for child in running if child.seen.ready and isinstance(child, Child))
        proof.look([(child.task, child.tree.pid) for child in ready])
