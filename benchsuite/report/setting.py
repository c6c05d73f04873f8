"""In what setting results came about: what was asked, isolation, data, and how well the tasks of a wave overlapped."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from benchsuite.records import DataUsed, Result
from benchsuite.report.load import Row
from benchsuite.tasks import Job, recorded_environ

# Of a data set's bytes in the page cache: up to this share it is called cold, from the other on warm.
COLD, WARM = 0.05, 0.95
# `name` is the job's own; the others change nothing that is measured, or may hold what a summary must not spread.
_LEFT_OUT = ("name", "tags", "loss_band", "prepare", "env")


def tally(settings: Iterable[str]) -> dict[str, int]:
    return dict(Counter(settings).most_common())


def fence(result: Result) -> str:
    tenant = result.tenant
    return f"CPU {tenant.cpu}, memory {tenant.memory} ({tenant.reason})"


def data(result: Result) -> str:
    data = result.data
    if data is None:
        return "not recorded"
    if data.version is None:
        return f"real ({data.name})" if data.real else "generated in memory"
    kind = "real" if data.real else f"synthetic {data.size}" if data.size else "synthetic"
    return f"{data.name} {data.version} ({kind}, page cache {cache_state(data.cached)})"


def cache_state(cached: float | None) -> str:
    """In words how much of the files lay in the page cache when a task was started."""
    if cached is None:
        return "not known"
    if cached <= COLD:
        return "cold"
    return "warm" if cached >= WARM else "partly warm"


def unit(result: Result) -> str | None:
    return next((stream.unit for stream in result.measurement.streams if stream.counts_items), None)


def overlap(rows: Iterable[Row]) -> float | None:
    """Of every wave on one boot: (earliest end - latest start) / mean length of the windows, at least 0; the least."""
    waves: dict[tuple[str, int, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        window = row.window
        if row.result and window and window.start_s is not None and window.end_s is not None:
            wave = (row.job, row.task.repeat, row.result.anchor.boot_id)
            waves[wave].append((window.start_s, window.end_s))
    shares = []
    for spans in waves.values():
        if len(spans) > 1:
            common_s = min(end for _, end in spans) - max(start for start, _ in spans)
            shares.append(max(0.0, common_s / statistics.fmean(end - start for start, end in spans)))
    return min(shares, default=None)


def settings(job: Job, row: Row) -> dict[str, Any]:
    """What was asked of a job, every parameter with its value; of the environment only what may change a measurement.

    Args:
        job: the job as its profile has it.
        row: a task of it.
    """
    asked: dict[str, Any] = msgspec.to_builtins(job)
    kept = {name: value for name, value in asked.items() if name not in _LEFT_OUT}
    return {**kept, "environ": recorded_environ(row.task.environ)}


def data_used(rows: Iterable[Row]) -> tuple[DataUsed, ...]:
    """The distinct data of a job's tasks; `cached` is the least share of any task that used them."""
    found: dict[DataUsed, list[float | None]] = {}
    for row in rows:
        if row.result and row.result.data:
            data = row.result.data
            found.setdefault(msgspec.structs.replace(data, cached=None), []).append(data.cached)
    least = ((data, [share for share in shares if share is not None]) for data, shares in found.items())
    return tuple(msgspec.structs.replace(data, cached=min(shares, default=None)) for data, shares in least)
