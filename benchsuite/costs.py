"""What a run costs beside its measurements: the phases of a worker's time, and the price of measuring itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from benchsuite.schema import Record

# The part of a block's steps that runs before it, untimed: the device has waited for the parent.
LEAD = 0.1


class PhaseSpan(Record, frozen=True, kw_only=True):
    """What a worker did between two instants of CLOCK_MONOTONIC."""

    name: Annotated[str, Meta(description="phase of the task, such as `imports` or `first step`")]
    start_s: Annotated[float, Meta(description="begin of the phase, on CLOCK_MONOTONIC")]
    end_s: Annotated[float, Meta(description="end of the phase, on CLOCK_MONOTONIC")]


class CostAsked(Record, frozen=True, kw_only=True):
    """How the cost of measuring is measured: blocks of steps, bare and measured in turns."""

    rounds: Annotated[int, Meta(gt=0, description="pairs of a bare and a measured block")]
    block_s: Annotated[float, Meta(gt=0, description="about the time of a block")]


class CostRound(Record, frozen=True, array_like=True):
    """The time of the same number of steps, bare and measured, and the processor time of the worker in it."""

    bare_s: Annotated[float, Meta(description="time of the bare block")]
    measured_s: Annotated[float, Meta(description="time of the measured block")]
    bare_cpu_s: Annotated[float, Meta(description="processor time of the worker in the bare block")]
    measured_cpu_s: Annotated[float, Meta(description="processor time of the worker in the measured block")]


class MeasuringCost(Record, frozen=True, kw_only=True):
    """Blocks of steps after the measurement, in turns: bare, and with slices, events, telemetry and the parent's words.

    A bare block is the same loop with one slice, no clock around batches, and no telemetry.
    """

    steps: Annotated[int, Meta(description="of a block")]
    rounds: tuple[CostRound, ...]
