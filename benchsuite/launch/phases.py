"""What the time of a task went to, from its process's start to its end."""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite.costs import PhaseSpan
from benchsuite.launch.child import Child


def phases_of(child: Child, ended_s: float) -> tuple[PhaseSpan, ...]:
    """The phases of rank 0, in order. Time that belongs to none is left out, as all after an error is.

    Args:
        ended_s: when nothing was left of the worker, on CLOCK_MONOTONIC.
    """
    return tuple(span for span in _spans(child, ended_s) if span.end_s > span.start_s)


def _spans(child: Child, ended_s: float) -> Iterator[PhaseSpan]:
    ready, end, slices = child.seen.ranks[0].ready, child.seen.ranks[0].end, child.seen.slices
    if child.wave.loading_s is not None:
        yield PhaseSpan(name="preload", start_s=child.wave.loading_s, end_s=child.started_s)
    if not ready or not ready.phases:
        return
    name = "fork" if child.forked else "interpreter"
    yield PhaseSpan(name=name, start_s=child.started_s, end_s=ready.phases[0].start_s)
    yield from ready.phases
    if slices:
        origin_s, measured = slices[0].origin_s, [s for s in slices if s.slice.phase == "measure"]
        measured_s = origin_s + (measured[-1].slice.end_s if measured else 0.0)
        yield PhaseSpan(name="wait", start_s=ready.at_s, end_s=origin_s)
        yield PhaseSpan(name="measure", start_s=origin_s, end_s=measured_s)
        held = "cost of measuring" if child.task.cost else "hold"
        yield PhaseSpan(name=held, start_s=measured_s, end_s=origin_s + slices[-1].slice.end_s)
    if end:
        yield from end.phases
        yield PhaseSpan(name="exit", start_s=end.at_s, end_s=ended_s)
