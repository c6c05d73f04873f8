"""Under which conditions a job ran, as a summary keeps them: what a reader must know before believing a ratio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from benchsuite.records import DataUsed
from benchsuite.report.load import Row
from benchsuite.tasks import Job, recorded_environ

# `name` is the job's own; the others change nothing that is measured, or may hold what a summary must not spread.
_LEFT_OUT = ("name", "tags", "loss_band", "prepare", "env")


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
