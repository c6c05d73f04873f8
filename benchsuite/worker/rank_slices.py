"""Slices of several ranks: all look, close and stop at the same step numbers, by the clock of rank 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from benchsuite.worker.ranks import Ranks
from benchsuite.worker.timing import NO_LIMIT, SliceRule, Stop, StoppedBy

_REASONS: tuple[StoppedBy, ...] = get_args(StoppedBy)


class AgreedRule:
    """A `SliceRule` for a group: a rank looks after an agreed number of steps only, never at its own clock.

    Rank 0 decides by the usual rule, for which its items count once for each rank; the others hear of it.
    """

    look_ns = NO_LIMIT
    due_items = NO_LIMIT

    def __init__(self, ranks: Ranks, asked_to_stop: Callable[[], bool], stop: Stop, now: int) -> None:
        self.met: StoppedBy | None = None
        self.due_steps = 1  # the first look is after one step, as that of one process
        self._ranks = ranks
        self._asked_to_stop = asked_to_stop
        self._own = SliceRule(stop, now) if ranks.rank == 0 else None

    def open(self, now: int) -> None:
        """A slice begins; how many steps it is to hold was agreed when the last one closed."""
        if self._own:
            self._own.open(now)

    def closes(self, now: int, steps: int, items: int) -> bool:
        """Whether the slice ends here, as rank 0 says; all ranks have come this far when it returns."""
        said = [0, 0, 0, 0]
        if self._own:
            closes = self._own.closes(now, steps, items * self._ranks.ranks)
            met = self._own.met
            if closes and met is None:
                self._own.open(now)  # only to learn how many steps come next
            code = _REASONS.index(met) + 1 if met else 0
            said = [int(closes), code, self._own.due_steps, int(self._asked_to_stop())]
        closed, code, self.due_steps, stop = self._ranks.agree(said)
        self.met = _REASONS[code - 1] if code else None
        self._ranks.said_stop = bool(stop)
        return bool(closed)
