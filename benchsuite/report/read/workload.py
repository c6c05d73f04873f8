"""The conditions under which results were measured: isolation, data, and the overlap of a wave's tasks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from benchsuite.provisions import DataUsed
from benchsuite.records import Result
from benchsuite.report.measure.clocks import streams_on_one_clock
from benchsuite.report.read.load import Row

# Share of a data set's bytes in the page cache: cold up to the first, warm from the second on.
COLD, WARM = 0.05, 0.95
Span: TypeAlias = "tuple[float, float]"


def tally(settings: Iterable[str]) -> dict[str, int]:
    """Each distinct value with its number, the most frequent first."""
    return dict(Counter(settings).most_common())


def fence(result: Result) -> str:
    """The isolation of a task, in words."""
    tenant = result.tenant
    return f"CPU {tenant.cpu}, memory {tenant.memory} ({tenant.reason})"


def data(result: Result) -> str:
    """The data that a task read, in words."""
    data = result.data
    if data is None:
        return "not recorded"
    if data.version is None:
        return f"real ({data.name})" if data.real else "generated in memory"
    kind = "real" if data.real else f"synthetic {data.size}" if data.size else "synthetic"
    return f"{data.name} {data.version} ({kind}, page cache {cache_state(data.cached)})"


def cache_state(cached: float | None) -> str:
    """The share of the files that was in the page cache when a task started, in words."""
    if cached is None:
        return "not known"
    if cached <= COLD:
        return "cold"
    return "warm" if cached >= WARM else "partly warm"


def unit(result: Result) -> str | None:
    """The unit of a task's items; None if no stream counts items."""
    return next((stream.unit for stream in result.measurement.streams if stream.counts_items), None)


def overlap(rows: Iterable[Row]) -> float | None:
    """The least share of any task's window in which all other tasks of its wave trained, measured or holding.

    Only tasks of one boot are compared, since their clocks are one. A task without a step is left out: it counts as a
    failure.
    """
    waves: dict[tuple[str, str], list[tuple[Row, Span]]] = defaultdict(list)
    for row in rows:
        trained = row.result and _trained(row.result)
        if row.result and trained:
            waves[row.task.wave, row.result.timeline.clock.boot_id].append((row, trained))
    shares = []
    for wave in waves.values():
        for row, _ in wave:
            window, others = row.window, [trained for other, trained in wave if other is not row]
            if others and window and window.start_s is not None and window.end_s is not None:
                start_s = max(window.start_s, *(start for start, _ in others))
                end_s = min(window.end_s, *(end for _, end in others))
                shares.append(max(0.0, end_s - start_s) / (window.end_s - window.start_s))
    return min(shares, default=None)


def overlap_words(share: float) -> str:
    """The overlap in a sentence."""
    part = f"at least {math.floor(100 * share)} %" if share < 1 else "100 %"
    return f"all tasks that ran together trained during {part} of each one's window"


def _trained(result: Result) -> Span | None:
    """The span of CLOCK_MONOTONIC in which all ranks of a task took steps; None if a rank took no step."""
    streams = streams_on_one_clock(result)
    if not streams or not all(stream.slices for stream in streams):
        return None
    starts = [stream.origin_s + stream.slices[0].start_s for stream in streams]
    return max(starts), min(stream.origin_s + stream.slices[-1].end_s for stream in streams)


def data_used(data: Iterable[DataUsed]) -> tuple[DataUsed, ...]:
    """The distinct data of a job's tasks; `cached` is the least share among the tasks that used them."""
    found: dict[DataUsed, list[float | None]] = {}
    for used in data:
        found.setdefault(msgspec.structs.replace(used, cached=None), []).append(used.cached)
    least = ((used, [share for share in shares if share is not None]) for used, shares in found.items())
    return tuple(msgspec.structs.replace(used, cached=min(shares, default=None)) for used, shares in least)
