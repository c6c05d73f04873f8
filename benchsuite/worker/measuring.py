"""The measured part of a task, slice by slice, and the hold that follows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchsuite.describe.tasks import Task
from benchsuite.errors import ModelError
from benchsuite.events import EventWriter, SliceClosed
from benchsuite.measurement import Phase, Slice
from benchsuite.schema import finite
from benchsuite.worker.control import Control
from benchsuite.worker.device import Device
from benchsuite.worker.input_waits import Waits
from benchsuite.worker.loop import timed_loop
from benchsuite.worker.rank_slices import AgreedRule
from benchsuite.worker.ranks import Ranks
from benchsuite.worker.step import Step
from benchsuite.worker.timing import Stop, StoppedBy, TimedSlice
from benchsuite.worker.warmup import losses_of

# An event may hold no longer integer.
MOST_IN_A_SLICE = (1 << 63) - 1


class Measuring:
    """The measured part, then hold.

    During hold a task trains on, unmeasured, so that its neighbours are measured under full load.
    """

    def __init__(
        self,
        task: Task,
        device: Device,
        step: Step,
        events: EventWriter,
        control: Control,
        waits: Waits,
        ranks: Ranks | None = None,
    ) -> None:
        self.job = task.job
        self.device = device
        self.step = step
        self.events = events
        self.control = control
        self.waits = waits
        self.ranks = ranks
        self.origin_ns = 0
        self.phase: Phase = "measure"
        self.last_loss: float | None = None
        self.steps = self.items = 0
        self.trained_s = self.end_s = 0.0

    def run(self, batches: Iterator[Any], hold_limit_s: float) -> StoppedBy:
        """Train and report each slice to the parent as it closes.

        Args:
            hold_limit_s: the longest time to hold; 0 for a task without neighbours.

        Returns:
            The rule that ended the measured part.

        Raises:
            ModelError: the data of this rank ended before those of the others.
        """
        job = self.job
        self.begin()
        stopped_by = self._loop(batches, job.max_count, job.max_steps, job.min_time_s, job.max_time_s)
        if self.ranks and stopped_by == "data":
            raise ModelError(f"the data of rank {self.ranks.rank} ended before those of the others")
        if hold_limit_s > 0 and stopped_by not in ("data", "stop"):
            self.phase = "hold"
            self._loop(batches, None, None, hold_limit_s, hold_limit_s)
        return stopped_by

    def begin(self) -> None:
        """Begin to measure: times count from now, and those of the warm-up are dropped."""
        self.device.reset_peaks()
        self.waits.taken_s()
        self.origin_ns = time.monotonic_ns()

    def epoch(self, batches: Iterator[Any], items: int) -> StoppedBy:
        """Train an epoch of this many items, of all ranks together, or to the end of the batches.

        `max_time_s` counts from `begin`, the time between epochs included.

        Raises:
            ModelError: the data of this rank ended before those of the others.
        """
        left_s = self.job.max_time_s - (time.monotonic_ns() - self.origin_ns) / 1e9
        self.waits.taken_s()  # those between epochs
        stopped_by = self._loop(batches, items, None, 0.0, max(left_s, 0.0))
        if self.ranks and stopped_by == "data":
            raise ModelError(f"the data of rank {self.ranks.rank} ended before those of the others")
        return stopped_by

    def block(self, batches: Iterator[Any], steps: int) -> None:
        """Train for this many steps with all that measuring takes, after the measurement.

        Raises:
            ModelError: the data ended.
        """
        if self._loop(batches, None, steps, 0.0, self.job.timeout_s) == "data":
            raise ModelError("the data ended while the cost of measuring was measured")

    def _loop(
        self, batches: Iterator[Any], items: int | None, steps: int | None, min_time_s: float, max_time_s: float
    ) -> StoppedBy:
        stop = Stop(items, steps, int(min_time_s * 1e9), int(max_time_s * 1e9))
        run, sync, ranks, heard = self.step.run, self.device.sync, self.ranks, self.control.stop_said
        if ranks is None:
            return timed_loop(run, batches, stop, self._close, sync=sync, ended=heard)
        rule_of = partial(AgreedRule, ranks, heard)
        return timed_loop(run, batches, stop, self._close, sync=sync, rule_of=rule_of, ended=lambda: ranks.said_stop)

    def _close(self, timed: TimedSlice) -> None:
        start_s, end_s = ((ns - self.origin_ns) / 1e9 for ns in (timed.start_ns, timed.end_ns))
        one = Slice(
            start_s=round(start_s, 6), end_s=round(end_s, 6), steps=timed.steps, items=timed.items, phase=self.phase
        )
        if timed.items > MOST_IN_A_SLICE:
            raise ModelError(f"{timed.steps} steps took {timed.items:,} items, too many to record; use a larger unit")
        losses = losses_of(self.step)
        loss = finite(sum(losses) / len(losses)) if losses else None
        if self.phase == "measure":
            self.last_loss = loss
            self.steps, self.items, self.end_s = self.steps + timed.steps, self.items + timed.items, one.end_s
            self.trained_s += one.elapsed_s
        self.events.write(
            SliceClosed(
                n=self.events.count,
                origin_s=self.origin_ns / 1e9,
                slice=one,
                loss=loss,
                model_losses=tuple(float(f"{one:.6g}") for one in losses) if len(losses) > 1 else (),
                input_s=self.waits.taken_s(),
                last=timed.last and self.phase == "measure" and not self.job.by_epochs,
            )
        )
