"""The rate of one result, derived from its slices by the same functions as every row of the report."""

from __future__ import annotations

import msgspec

from benchsuite.records import Machine, Rate, Result
from benchsuite.report.read.load import row_of
from benchsuite.report.stats.mfu import result_mfu
from benchsuite.report.stats.summarise import task_summary
from benchsuite.schema import finite


def rate(result: Result) -> Rate:
    """The rate of a result. Without a number, `reason` says why."""
    row = row_of(None, result)
    task, window = task_summary(row), row.window
    unit = next((stream.unit for stream in result.measurement.streams if stream.counts_items), "item")
    found = result_mfu(result, task.perf) if task.perf is not None else None
    std = None if task.perf is None or task.spread is None else task.perf * task.spread
    return Rate(
        value=finite(task.perf, 15),
        unit=unit,
        reason=task.reason,
        error=task.error,
        std=finite(std),
        slices=task.slices,
        items=task.items,
        seconds=task.seconds,
        start_s=window.start_s if window else None,
        end_s=window.end_s if window else None,
        steady=task.steady,
        unsteady=task.unsteady,
        model_tflops=finite(found.tflops) if found else None,
        mfu=finite(found.value) if found else None,
    )


def alone(result: Result, machine: Machine) -> Result:
    """The same result with its rate and the facts of its machine, as it is written where there is no run.json.

    Args:
        machine: the machine that measured it.
    """
    held = msgspec.structs.replace(result.machine, facts=machine)
    return msgspec.structs.replace(result, rate=rate(result), machine=held)
