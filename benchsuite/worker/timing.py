"""When a slice of the timed loop ends, and when the loop does. Times are nanoseconds of one monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

StoppedBy: TypeAlias = Literal["count", "min_time", "max_time", "data", "stop"]

SLICE_NS = 500_000_000
NO_LIMIT = 1 << 62
MARGIN = 1.02  # with exactly the predicted steps, half of the slices would end a little short and need a second sync


@dataclass(frozen=True)
class TimedSlice:
    """Whole steps from one device sync to the next. `last`: with this slice the stop rule is met, or the data ended."""

    start_ns: int
    end_ns: int
    steps: int
    items: int
    last: bool


@dataclass(frozen=True)
class Stop:
    """The run ends when a given count *and* `min_time_ns` are reached, or at `max_time_ns`, from the first slice on.

    Of `max_items` and `max_steps` the first to be reached is the count; with neither, `min_time_ns` alone decides.
    A count ends its slice at once; `min_time_ns` lets the slice that it falls in reach its full length.
    """

    max_items: int | None = None
    max_steps: int | None = None
    min_time_ns: int = 0
    max_time_ns: int = NO_LIMIT
    slice_ns: int = SLICE_NS


class Rule(Protocol):
    """What the loop asks; see `SliceRule`."""

    look_ns: int
    due_steps: int
    due_items: int
    met: StoppedBy | None

    def open(self, now: int) -> None: ...

    def closes(self, now: int, steps: int, items: int) -> bool: ...


class SliceRule:
    """Decides where slices end; asked only where the device is idle, so that `now` is when the work was done.

    Between two questions the loop goes on while the clock is before `look_ns` and its slice holds less than
    `due_steps` steps and `due_items` items. `met` says why the loop is over, once it is.
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
        """A slice begins. The first has no prediction: it is looked at after one step."""
        self._began_ns = now
        self.look_ns = min(now + self._slice_ns, self._must_end_ns)
        self._plan(steps=0, left_ns=self.look_ns - now)

    def closes(self, now: int, steps: int, items: int) -> bool:
        """Whether the slice ends here, after `steps` steps and `items` items of it; if not, sets the next look."""
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
        """Where to look next, `steps` into the slice and `left_ns` before its end, at the pace last measured."""
        more = int(MARGIN * left_ns / self._step_ns) + 1 if self._step_ns else 1
        self.due_steps = steps + more if self._counted else min(steps + more, self._steps_left)
        self.due_items = NO_LIMIT if self._counted else self._items_left
