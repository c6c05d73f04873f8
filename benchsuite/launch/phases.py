"""What the time of a task went to, from its process's start to its end."""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite.launch.worker_events import TaskEvents
from benchsuite.measurement import PhaseSpan


def phases_of(seen: TaskEvents, started_s: float, ended_s: float, *, forked: bool = False) -> tuple[PhaseSpan, ...]:
    """The phases of rank 0, in order. Time that belongs to none is left out, as all after an error is.

    Args:
        started_s, ended_s: when the worker's process was started, and when nothing was left of it.
        forked: whether it was forked from a preloaded process.
    """
    return tuple(span for span in _spans(seen, started_s, ended_s, forked) if span.end_s > span.start_s)


def _spans(seen: TaskEvents, started_s: float, ended_s: float, forked: bool) -> Iterator[PhaseSpan]:
    ready, end = seen.ranks[0].ready, seen.ranks[0].end
    if not ready or not ready.phases:
        return
    yield PhaseSpan(name="fork" if forked else "interpreter", start_s=started_s, end_s=ready.phases[0].start_s)
    yield from ready.phases
    slices = seen.slices
    if slices:
        origin_s, measured = slices[0].origin_s, [s for s in slices if s.slice.phase == "measure"]
        measured_s = origin_s + (measured[-1].slice.end_s if measured else 0.0)
        yield PhaseSpan(name="wait", start_s=ready.at_s, end_s=origin_s)
        yield PhaseSpan(name="measure", start_s=origin_s, end_s=measured_s)
        yield PhaseSpan(name="hold", start_s=measured_s, end_s=origin_s + slices[-1].slice.end_s)
    if end:
        yield from end.phases
        yield PhaseSpan(name="exit", start_s=end.at_s, end_s=ended_s)
