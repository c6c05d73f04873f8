"""Figures of a kept summary on the copies of a model that share a GPU."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from benchsuite.schema import Record


class TogetherRate(Record, frozen=True, kw_only=True):
    """All copies on one GPU in one repeat."""

    repeat: int
    gpu: Annotated[str | None, Meta(description="UUID; null: the copies are on the CPU")] = None
    perf: Annotated[
        float | None, Meta(description="items/s of all copies in the time that their windows have in common")
    ] = None
    seconds: Annotated[float, Meta(description="length of that time")] = 0.0
    overlap: Annotated[
        float | None, Meta(description="that time over the longest window of a copy; null: a copy has no window")
    ] = None
    reason: Annotated[str | None, Meta(description="why there is no perf")] = None


class Together(Record, frozen=True, kw_only=True):
    """The copies of a model that share a GPU, each in a process of its own, as a whole."""

    rates: tuple[TogetherRate, ...]
    memory_bytes: Annotated[
        int | None,
        Meta(description="peak memory of a GPU with all its copies, by NVML; on the CPU the sum of the resident sets"),
    ] = None
