"""What each process of a task measured, as the streams of its result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchsuite.events import Ready, SliceClosed
from benchsuite.launch.worker_events import ProcessEvents, TaskEvents
from benchsuite.measurement import Clock, Slice, Stream


def streams_of(seen: TaskEvents, clock: Clock) -> tuple[Stream, ...]:
    """A stream for each process that became ready."""
    return tuple(_stream(events, events.ready, rank, clock) for rank, events in enumerate(seen.ranks) if events.ready)


def _stream(events: ProcessEvents, ready: Ready, rank: int, clock: Clock) -> Stream:
    notes = ready.notes
    if events.damaged:
        notes = (*notes, f"the event file: {events.damaged}; nothing after it was read")
    held = [s.slice for s in events.slices if s.slice.phase == "hold"]
    measured, end = [s for s in events.slices if s.slice.phase == "measure"], events.end
    return Stream(
        clock=ready.clock or clock,
        device=ready.device,
        rank=rank,
        counts_items=ready.counts_items,
        models=ready.models,
        unit=ready.unit,
        origin_s=events.slices[0].origin_s if events.slices else ready.at_s,
        slices=(*(s.slice for s in measured), *_joined(held)),
        losses=tuple(s.loss for s in measured),
        model_losses=tuple(s.model_losses for s in measured) if ready.models > 1 else (),
        input_s=_input_s(measured),
        warm_up=ready.warm_up,
        stopped_by=end.stopped_by if end else None,
        peak_memory=end.peak_memory if end else None,
        model_flops=end.model_flops if end else None,
        pipeline=end.pipeline if end else None,
        compiled=end.compiled if end else None,
        epochs=tuple(events.epochs),
        traced=end.traced if end else None,
        precision=ready.precision,
        intra_op_threads=ready.intra_op_threads,
        notes=notes,
        readings=end.readings if end else {},
        cost=end.cost if end else None,
    )


def _input_s(measured: Sequence[SliceClosed]) -> float | None:
    """The waits of all measured slices together; None unless each records its own."""
    waits = [one.input_s for one in measured if one.input_s is not None]
    return round(math.fsum(waits), 6) if waits and len(waits) == len(measured) else None


def _joined(held: Sequence[Slice]) -> tuple[Slice, ...]:
    """All slices of hold as one: they count for nothing, and must not make the result large."""
    if not held:
        return ()
    whole = Slice(
        start_s=held[0].start_s,
        end_s=held[-1].end_s,
        steps=sum(s.steps for s in held),
        items=min(sum(s.items for s in held), (1 << 63) - 1),
        phase="hold",
    )
    return (whole,)
