"""Slices of a group: all ranks close slices and stop at the same steps, by the clock of rank 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from benchsuite.worker.ranks import Ranks
from benchsuite.worker.timing import NO_LIMIT, SliceRule, Stop, StoppedBy

_REASONS: tuple[StoppedBy, ...] = get_args(StoppedBy)


class AgreedRule:
    """A `SliceRule` for a group. No rank looks at its own clock: all look after an agreed number of steps.

    Rank 0 decides by the usual rule, with its items times the number of ranks that count items, and sends its
    decision to the others.
    """

    look_ns = NO_LIMIT
    due_items = NO_LIMIT

    def __init__(self, ranks: Ranks, asked_to_stop: Callable[[], bool], stop: Stop, now: int) -> None:
        self.met: StoppedBy | None = None
        self.due_steps = 1  # the first look is after one step, as in `SliceRule`
        self._ranks = ranks
        self._asked_to_stop = asked_to_stop
        self._own = SliceRule(stop, now) if ranks.rank == 0 else None

    def open(self, now: int) -> None:
        """Begin a slice. Its number of steps was agreed when the last slice closed."""
        if self._own:
            self._own.open(now)

    def closes(self, now: int, steps: int, items: int) -> bool:
        """Does the slice end here, as rank 0 decides? Returns once all ranks have taken as many steps."""
        said = [0, 0, 0, 0]
        if self._own:
            closes = self._own.closes(now, steps, items * self._ranks.counting)
            met = self._own.met
            if closes and met is None:
                self._own.open(now)  # to plan the number of steps of the next slice
            code = _REASONS.index(met) + 1 if met else 0
            said = [int(closes), code, self._due(0 if closes else steps, steps, items), int(self._asked_to_stop())]
        closed, code, self.due_steps, stop = self._ranks.agree(said)
        self.met = _REASONS[code - 1] if code else None
        self._ranks.said_stop = bool(stop)
        return bool(closed)

    def _due(self, taken: int, steps: int, items: int) -> int:
        """The steps after which all look again: at most those that the items to go should need.

        Args:
            taken: the steps of the slice so far.
            steps, items: of this rank, by which a step's items are known.
        """
        assert self._own
        if not items or self._own.due_items == NO_LIMIT:
            return self._own.due_steps
        needed = -(-self._own.due_items * steps // (items * self._ranks.counting))
        return max(taken + 1, min(self._own.due_steps, needed))
