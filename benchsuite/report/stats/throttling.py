"""Throughput without the slices in which heat or the hardware slowed the clocks, from the samples beside a result."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchsuite.measurement import Slice, Stream
from benchsuite.records import Result
from benchsuite.report.measure.clocks import streams_on_one_clock
from benchsuite.report.measure.window import MIN_WINDOW_S, TOLERANCE_S, measured_slices, window_slices
from benchsuite.report.read.load import Row
from benchsuite.report.read.samples import Sampled, samples_of
from benchsuite.report.read.summary import TaskSummary
from benchsuite.telemetry import SLOWING, DeviceSample, held

Span = tuple[float, float]


@dataclass(frozen=True)
class _Watched:
    """The spans of CLOCK_MONOTONIC in which a GPU was watched, and those in which it was slowed."""

    spans: Sequence[Span]
    slowed: Sequence[Span]

    def clean(self, start_s: float, end_s: float) -> bool:
        """Whether the GPU was watched over the whole span, and not slowed in it."""
        if any(a < end_s and start_s < b for a, b in self.slowed):
            return False
        seen_s = math.fsum(max(0.0, min(b, end_s) - max(a, start_s)) for a, b in self.spans)
        return seen_s >= end_s - start_s - TOLERANCE_S


def was_slowed(result: Result) -> bool:
    """Whether heat or the hardware slowed a GPU of the task while it was measured, from the result alone."""
    devices = result.telemetry.devices if result.telemetry else ()
    return any((device.clock_events_s or {}).get(event, 0.0) > 0 for device in devices for event in SLOWING)


def unthrottled(row: Row) -> tuple[float | None, str | None]:
    """Perf (as `Row.perf`) over the window's slices without a slow-down, or the reason why it is unknown.

    Both are None if nothing was slowed; the samples are then not read.
    """
    if row.perf is None or row.result is None or row.file is None or not was_slowed(row.result):
        return None, None
    telemetry = row.result.telemetry
    if telemetry is None or telemetry.series is None:
        return None, "its samples were not kept"
    try:
        watched = _watched(samples_of(row.file.parent, row.result, whole=True))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        return None, f"its samples cannot be read: {why or error}".lower()
    gpus = [device.uuid for device in telemetry.devices]
    if unseen := [uuid for uuid in gpus if uuid not in watched]:
        return None, f"its samples have none of {unseen[0]}"
    rates, least_s = [], math.inf
    for stream in streams_on_one_clock(row.result):
        if stream.counts_items:
            clean = list(_clean(stream, [watched[uuid] for uuid in gpus]))
            seconds = math.fsum(s.elapsed_s for s in clean)
            least_s = min(least_s, seconds)
            rates.append(sum(s.items for s in clean) / seconds if seconds else 0.0)
    if least_s < MIN_WINDOW_S - TOLERANCE_S:
        return None, f"only {least_s:.1f} s of its window are without, and {MIN_WINDOW_S:.0f} s are needed"
    return math.fsum(rates) / row.task.per, None


def job_unthrottled(tasks: Iterable[TaskSummary]) -> float | None:
    """The mean over the ok tasks, see `JobSummary.perf_unthrottled`; None if a slowed task lacks the figure."""
    found = [(task.perf, task.perf_unthrottled, task.unthrottled_reason) for task in tasks if task.perf is not None]
    if any(why for _, _, why in found) or all(perf is None for _, perf, _ in found):
        return None
    return statistics.fmean(as_delivered if perf is None else perf for as_delivered, perf, _ in found)


def _clean(stream: Stream, watched: Sequence[_Watched]) -> Iterator[Slice]:
    for s in window_slices(measured_slices(stream)):
        if all(gpu.clean(stream.origin_s + s.start_s, stream.origin_s + s.end_s) for gpu in watched):
            yield s


def _watched(series: Iterable[Sampled]) -> dict[str, _Watched]:
    """UUID -> spans of that GPU; only GPUs whose samples have clock events."""
    found = {}
    for of in series:
        seen = [(s.monotonic_s, s.clock_events) for s in of.samples if isinstance(s, DeviceSample)]
        slow = [(at, any(event in SLOWING for event in events)) for at, events in seen if events is not None]
        if slow:
            spans = held(slow)
            found[of.about.of] = _Watched([span[:2] for span in spans], [span[:2] for span in spans if span[2]])
    return found
