"""Change the learning rate of an optimiser after each of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Fields of a parameter group. A checkpoint of the optimiser holds them, so that a resumed training continues them.
FIRST, STEPS = "initial_lr", "scheduled_steps"


def scheduled(optimiser: Any, factor: Callable[[int], float]) -> Callable[[], None]:
    """The function to call after each step of an optimiser. The rate of the first step is set at once.

    torch's LambdaLR does the same, but it warns if fp16 skips the first step.

    Args:
        factor: number of the step, from 0 -> factor of the learning rate with which the optimiser was made.
    """
    for group in optimiser.param_groups:
        group.setdefault(FIRST, group["lr"])
        group.setdefault(STEPS, 0)
        group["lr"] = group[FIRST] * factor(group[STEPS])

    def advance() -> None:
        for group in optimiser.param_groups:
            group[STEPS] += 1
            group["lr"] = group[FIRST] * factor(group[STEPS])

    return advance
