"""The window: the slices on which a throughput rests, and their steadiness. Pure Python; light to import."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchsuite.measurement import Slice, Stream
from benchsuite.records import Result
from benchsuite.report.measure.clocks import streams_on_one_clock
from benchsuite.report.measure.steadiness import UNKNOWN, Steadiness, least_steady, steadiness
from benchsuite.report.measure.window_error import lengths_s

WINDOW_S = 10.0
END_CUT_S = 1.0
MIN_WINDOW_S = 4.0
WARM_UP_S = 2.0
TOLERANCE_S = 0.001


@dataclass(frozen=True)
class Window:
    """The slices on which a task's throughput rests.

    Attributes:
        reason: why `state` is not "ok".
        perf: items/s; None unless `state` is "ok". The sum over ranks.
        items: the sum over ranks.
        seconds: the sum of the true slice lengths; of the rank that has least.
        slices: of the rank that has least.
        dropped: measured slices outside the window.
        start_s, end_s: on CLOCK_MONOTONIC; of a task over nodes, on that of the host that recorded it.
        steadiness: of the least steady rank.
    """

    state: Literal["ok", "insufficient", "empty"]
    reason: str | None = None
    perf: float | None = None
    items: int = 0
    seconds: float = 0.0
    slices: int = 0
    dropped: int = 0
    start_s: float | None = None
    end_s: float | None = None
    steadiness: Steadiness = UNKNOWN

    @property
    def steady(self) -> bool:
        """Whether the rates hold still; False also for a single slice, which cannot show it."""
        return self.steadiness.steady


def task_window(result: Result) -> Window:
    """The window of a task: of its one stream that counts items, or of all its ranks together (their rates added)."""
    windows = [stream_window(s) for s in streams_on_one_clock(result) if s.counts_items]
    if len(windows) == 1:
        return windows[0]
    if not windows:
        return Window("empty", "no throughput was recorded")
    for rank, window in enumerate(windows):
        if window.state != "ok":
            return Window(window.state, f"rank {rank} of {len(windows)}: {window.reason}", dropped=window.dropped)
    return Window(
        "ok",
        perf=math.fsum(w.perf or 0.0 for w in windows),
        items=sum(w.items for w in windows),
        seconds=min(w.seconds for w in windows),
        slices=min(w.slices for w in windows),
        dropped=max(w.dropped for w in windows),
        start_s=min(w.start_s or 0.0 for w in windows),
        end_s=max(w.end_s or 0.0 for w in windows),
        steadiness=least_steady([w.steadiness for w in windows]),
    )


def stream_window(stream: Stream) -> Window:
    """The window of one stream, by the rule of `window_slices`."""
    measured = measured_slices(stream)
    if not measured:
        return Window("empty", "no slice was recorded")
    inside = window_slices(measured)
    seconds = math.fsum(lengths_s(inside))
    dropped = len(measured) - len(inside)
    if seconds < MIN_WINDOW_S - TOLERANCE_S:
        return Window("insufficient", _too_short(measured, inside), dropped=dropped)
    items = sum(s.items for s in inside)
    return Window(
        "ok",
        perf=items / seconds,
        items=items,
        seconds=seconds,
        slices=len(inside),
        dropped=dropped,
        start_s=stream.origin_s + inside[0].start_s,
        end_s=stream.origin_s + inside[-1].end_s,
        steadiness=steadiness(measured, inside),
    )


def measured_slices(stream: Stream) -> list[Slice]:
    """The timed slices of a stream, without `hold`."""
    return [s for s in stream.slices if s.phase != "hold" and s.end_s > s.start_s]


def window_slices(measured: Sequence[Slice]) -> list[Slice]:
    """The slices on which perf rests.

    E is the end of the last slice. Slices that end after E - 1 s never count (1 ms tolerance). Of the others, those
    count that start at or after both E - 10 s and 2 s. If these last under 4 s, whole earlier slices are added, latest
    first, up to 4 s. A slice that starts in the first 2 s is added only if it starts at or after E - 10 s. So a run of
    12 s or more never counts such a slice, and a shorter run counts one only if it has no 4 s without it.

    Args:
        measured: without `hold`.
    """
    end_s = measured[-1].end_s
    latest_end_s = end_s - END_CUT_S + TOLERANCE_S
    begin_s = end_s - WINDOW_S
    before = [s for s in measured if s.end_s <= latest_end_s]
    inside = [s for s in before if s.start_s >= max(begin_s, WARM_UP_S) - TOLERANCE_S]
    seconds = math.fsum(lengths_s(inside))
    for earlier in reversed(before[: len(before) - len(inside)]):
        if seconds >= MIN_WINDOW_S - TOLERANCE_S or earlier.start_s < min(begin_s, WARM_UP_S) - TOLERANCE_S:
            break
        inside.insert(0, earlier)
        seconds += earlier.elapsed_s
    return inside


def _too_short(measured: Sequence[Slice], inside: Sequence[Slice]) -> str:
    total_s = math.fsum(s.elapsed_s for s in measured)
    inside_s = math.floor(10 * math.fsum(s.elapsed_s for s in inside)) / 10  # never rounded up to what is needed
    some = "1 slice" if len(measured) == 1 else f"{len(measured)} slices"
    return (
        f"insufficient samples: {some}, {total_s:.1f} s in all, leave {inside_s:.1f} s to measure on, "
        f"and {MIN_WINDOW_S:.0f} s are needed; raise min_time_s"
    )
