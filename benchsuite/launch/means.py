"""The means of a wave, in order. Each provides something before the wave's tasks start and takes it back at its end.

A mean is a context manager `mean(run, wave)`. It yields `wave` with what it provides, and raises `WaveError` if the
wave cannot start without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchsuite.launch.batch_tries import batch_size
from benchsuite.launch.context import Mean, RunContext, WaveContext
from benchsuite.launch.datasets import data_set
from benchsuite.launch.setup_commands import set_up
from benchsuite.launch.sharing import shared
from benchsuite.launch.task_telemetry import telemetry


@contextmanager
def fences(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
    """Provide each task's own share of the machine."""
    with run.fenced(wave.tasks) as tenants:
        yield replace(wave, tenants=tenants)


MEANS: tuple[Mean, ...] = (set_up, data_set, batch_size, shared, fences, telemetry)
