"""The copies of a model that share a GPU: the work of all of them in the time that they have in common.

The rate of the copies together is the sum of their items over the time in which the windows of all overlap. Of a slice
that reaches beyond that time, its part within counts. A copy that failed leaves its GPU without a rate.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from benchsuite.records import Result
from benchsuite.report.measure.window import MIN_WINDOW_S, measured_slices
from benchsuite.report.read.load import Row
from benchsuite.report.read.together import Together, TogetherRate

# The windows of the copies must have at least this much in common.
LEAST_S = MIN_WINDOW_S / 2


def together(rows: Sequence[Row]) -> Together | None:
    """The copies of a row of the report on each GPU and in each repeat; None for a job without copies."""
    if rows[0].task.job.processes == 1:
        return None
    shared: dict[tuple[int, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        gpu = (row.task.gpus[0].parent or row.task.gpus[0].uuid) if row.task.gpus else None
        shared[row.task.repeat, gpu].append(row)
    rates = tuple(_rate(repeat, gpu, of) for (repeat, gpu), of in shared.items())
    memory = max((bytes_ for of in shared.values() if (bytes_ := _memory_bytes(of))), default=None)
    return Together(rates=rates, memory_bytes=memory)


def _rate(repeat: int, gpu: str | None, copies: Sequence[Row]) -> TogetherRate:
    none = TogetherRate(repeat=repeat, gpu=gpu)
    if lost := [row for row in copies if row.status != "ok"]:
        statuses = ", ".join(sorted({row.status for row in lost}))
        return TogetherRate(repeat=repeat, gpu=gpu, reason=f"{len(lost)} of {len(copies)} copies: {statuses}")
    spans = [(w.start_s, w.end_s) for row in copies if (w := row.window) and w.start_s is not None and w.end_s]
    boots = {row.result.timeline.clock.boot_id for row in copies if row.result}
    if len(spans) < len(copies) or len(boots) != 1:
        return none
    start_s, end_s = max(start for start, _ in spans), min(end for _, end in spans)
    seconds = max(0.0, end_s - start_s)
    overlap = seconds / max(end - start for start, end in spans)
    if seconds < LEAST_S:
        reason = f"the windows of the copies have {seconds:.1f} s in common, and {LEAST_S:g} s are needed"
        return TogetherRate(repeat=repeat, gpu=gpu, seconds=seconds, overlap=overlap, reason=reason)
    items = math.fsum(_items(row.result, start_s, end_s) for row in copies if row.result)
    return TogetherRate(repeat=repeat, gpu=gpu, perf=items / seconds, seconds=seconds, overlap=overlap)


def _items(result: Result, start_s: float, end_s: float) -> float:
    """The items that a task processed between two instants of CLOCK_MONOTONIC."""
    items = 0.0
    for stream in result.measurement.streams:
        if stream.counts_items:
            for one in measured_slices(stream):
                inside = min(end_s, stream.origin_s + one.end_s) - max(start_s, stream.origin_s + one.start_s)
                items += one.items * max(0.0, inside) / one.elapsed_s
    return items


def _memory_bytes(copies: Sequence[Row]) -> int | None:
    """The memory that all copies of a GPU need together: NVML's peak, else the sum of what each copy reserved."""
    results = [row.result for row in copies if row.status == "ok" and row.result]
    if len(results) < len(copies):
        return None
    devices = [device for result in results if result.telemetry for device in result.telemetry.devices]
    used = [spread.max for device in devices if (spread := device.spreads.get("memory_used_bytes"))]
    if used and not copies[0].task.gpus[0].parent:
        return int(max(used))
    name = "device_reserved_bytes" if copies[0].task.gpus else "host_rss_bytes"
    peaks = [getattr(s.peak_memory, name) for r in results for s in r.measurement.streams if s.peak_memory]
    return sum(peaks) if peaks and None not in peaks else None


def all_together(sessions: Sequence[Together | None]) -> Together | None:
    """The copies of several runs; their repeats are counted on from one run to the next."""
    rates: list[TogetherRate] = []
    start = 0
    for one in sessions:
        own = one.rates if one else ()
        rates += [msgspec.structs.replace(rate, repeat=rate.repeat + start) for rate in own]
        start += max((rate.repeat for rate in own), default=-1) + 1
    memory = max((one.memory_bytes for one in sessions if one and one.memory_bytes), default=None)
    return Together(rates=tuple(rates), memory_bytes=memory) if rates else None
