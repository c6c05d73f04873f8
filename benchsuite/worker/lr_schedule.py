"""Change the learning rate of an optimiser after each of its steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

# Fields of a parameter group: its learning rate before the first step, and the number of its steps.
FIRST, STEPS = "initial_lr", "scheduled_steps"


class Scheduled:
    """An optimiser that follows a schedule. The rate of the first step is set at once.

    torch's LambdaLR does the same, but it warns if fp16 skips the first step.

    Args:
        factor: number of the schedule's step, from 0 -> factor of the learning rate with which the optimiser was made.
        pace: steps of the schedule for one step of the optimiser. A stage with fewer replicas than the first one takes
            more steps in an epoch.
    """

    def __init__(self, optimiser: Any, factor: Callable[[int], float], pace: Fraction = Fraction(1)) -> None:
        self._optimiser, self._factor, self._pace = optimiser, factor, pace
        for group in optimiser.param_groups:
            group.setdefault(FIRST, group["lr"])
            self._place(group, group.get(STEPS, 0))

    def advance(self) -> None:
        """Call this after each step of the optimiser."""
        for group in self._optimiser.param_groups:
            self._place(group, group[STEPS] + 1)

    @property
    def steps(self) -> int:
        """The schedule's steps until now."""
        return int(self._optimiser.param_groups[0][STEPS] * self._pace)

    def set(self, steps: int) -> None:
        """Continue after this number of the schedule's steps."""
        for group in self._optimiser.param_groups:
            self._place(group, math.ceil(steps / self._pace))

    def _place(self, group: dict[str, Any], steps: int) -> None:
        group[STEPS] = steps
        group["lr"] = group[FIRST] * self._factor(int(steps * self._pace))
