"""When a slice of the timed loop ends, and when the loop ends. Times are nanoseconds of one monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

StoppedBy: TypeAlias = Literal["count", "min_time", "max_time", "data", "stop"]

SLICE_NS = 500_000_000
NO_LIMIT = 1 << 62
MARGIN = 1.02  # with exactly the predicted steps, half of the slices would be too short and need a second sync


@dataclass(frozen=True)
class TimedSlice:
    """Whole steps from one device sync to the next.

    Attributes:
        last: this slice meets the stop rule, or the data ended in it.
    """

    start_ns: int
    end_ns: int
    steps: int
    items: int
    last: bool


@dataclass(frozen=True)
class Stop:
    """The loop ends when the count *and* `min_time_ns` are reached, or at `max_time_ns`.

    A count ends its slice at once. The slice in which `min_time_ns` is reached gets its full length.

    Attributes:
        max_items, max_steps: the count is the first of these to be reached; if both are None, only the time counts.
        min_time_ns: the least time, from the begin of the first slice.
        max_time_ns: the most time, from the begin of the first slice.
        slice_ns: the length of a slice.
    """

    max_items: int | None = None
    max_steps: int | None = None
    min_time_ns: int = 0
    max_time_ns: int = NO_LIMIT
    slice_ns: int = SLICE_NS


class Rule(Protocol):
    """The interface of a rule by which slices end, see `SliceRule`."""

    look_ns: int
    due_steps: int
    due_items: int
    met: StoppedBy | None

    def open(self, now: int) -> None:
        """Begin a slice."""

    def closes(self, now: int, steps: int, items: int) -> bool:
        """Does the slice end here?"""


class SliceRule:
    """Decides where slices end. The loop asks it right after a device sync.

    Attributes:
        look_ns, due_steps, due_items: the loop asks again at this time, or once the slice holds this many steps or
            items, whichever comes first.
        met: why the loop ends; None until then.
    """

    look_ns: int
    due_steps: int
    due_items: int
    met: StoppedBy | None

    def __init__(self, stop: Stop, now: int) -> None:
        self.met = None
        self._slice_ns = stop.slice_ns
        self._may_end_ns = now + stop.min_time_ns
        self._must_end_ns = now + stop.max_time_ns
        self._items_left = NO_LIMIT if stop.max_items is None else stop.max_items
        self._steps_left = NO_LIMIT if stop.max_steps is None else stop.max_steps
        self._counted = stop.max_items is None and stop.max_steps is None
        self._waits_for: StoppedBy = "min_time" if self._counted else "count"
        self._step_ns: float | None = None
        self.open(now)

    def open(self, now: int) -> None:
        """Begin a slice. No pace is known for the first slice, so its first look is after one step."""
        self._began_ns = now
        self.look_ns = min(now + self._slice_ns, self._must_end_ns)
        self._plan(steps=0, left_ns=self.look_ns - now)

    def closes(self, now: int, steps: int, items: int) -> bool:
        """Does the slice end here? If not, the next look is planned.

        Args:
            now: the time at which the device finished its work.
            steps, items: what the slice holds so far.
        """
        if not self._counted and (items >= self._items_left or steps >= self._steps_left):
            self._counted = True
            self._waits_for = "count" if now >= self._may_end_ns else "min_time"
        full = now >= self.look_ns
        self._step_ns = (now - self._began_ns) / steps
        if self._counted and now >= self._may_end_ns and (full or self._waits_for == "count"):
            self.met = self._waits_for
        elif now >= self._must_end_ns:
            self.met = "max_time"
        elif not full:
            self._plan(steps, self.look_ns - now)
            return False
        self._items_left -= items
        self._steps_left -= steps
        return True

    def _plan(self, steps: int, left_ns: int) -> None:
        """Plan the next look, by the pace that was measured last.

        Args:
            steps: the steps of the slice so far.
            left_ns: the time until the slice is full.
        """
        more = int(MARGIN * left_ns / self._step_ns) + 1 if self._step_ns else 1
        self.due_steps = steps + more if self._counted else min(steps + more, self._steps_left)
        self.due_items = NO_LIMIT if self._counted else self._items_left
