"""A summary as tidy pandas frames: one row a task, or one row a job.

Import this module inside the function that needs it: importing pandas takes most of a second, and neither a run nor a
plain report needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pandas import DataFrame, Series, concat

from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import Summary
from benchsuite.telemetry import CAPPED, SLOWING

_TASK_COLUMNS = {
    "job": "object",  # the name under which rates pool
    "devices": "object",  # how the job is placed: "each", "progression", ...
    "task": "object",  # the task's id
    "host": "object",  # None where neither the result nor the run names one
    "repeat": "int64",  # counted on from one session to the next
    "copy": "int64",  # the place among the copies that share a GPU
    "gpu_index": "Int64",  # among the GPUs that the run could use; only of a task with exactly one GPU
    "gpu_uuid": "object",  # only of a task with exactly one GPU
    "status": "object",  # as `TaskSummary.status`
    "open": "bool",  # without an outcome yet
    "perf": "float64",  # items/s, per GPU in a progression; NaN unless ok
    "slices": "int64",  # in the window
    "seconds": "float64",  # of the window
    "steady": "boolean",  # whether the window is steady; NA without a window
    "use": "object",  # `Use`, or None
}

# The figures of a job, in the order of the CSV. "interval.low" is a figure of a record within it.
JOB_COLUMNS = (
    "name", "job", "per", "unit", "devices", "n", "fail", "not_run", "to_run", "perf", "std", "std_parts.gpus",
    "std_parts.repeats", "std_parts.rest", "std_parts.complete", "perf_adj", "min", "max", "interval.low",
    "interval.high", "interval.half", "interval.repeats", "interval.of", "slices", "seconds", "unsteady",
    "perf_unthrottled", "use.tasks", "use.gpu_percent", "use.sm_percent", "use.tensor_percent", "use.dram_percent",
    "use.fp64_percent", "use.fp32_percent", "use.fp16_percent", "use.sm_clock_mhz", "use.max_sm_clock_mhz",
    "use.memory_clock_mhz", "use.temperature_c", "use.pcie_tx_mib_s", "use.pcie_rx_mib_s", "use.nvlink_tx_mib_s",
    "use.nvlink_rx_mib_s", "use.power_w", "use.power_limit_w", "use.items_per_joule", "use.device_reserved_bytes",
    "use.host_rss_bytes", "use.watched_s", "use.input_waiting", "use.cpus_busy", "use.cpus", "use.cpu_waiting",
    "use.cpu_throttled", "use.cpu_stolen", "workload", "batch_size", "ranks", "batch_each", "backend",
    "peak_memory_bytes", "model_flops.per_item", "model_flops.causal_per_item", "product_format",
    "unit_factor", "excluded", "ended",
)  # fmt: skip
CLOCK_EVENTS = (CAPPED, *SLOWING)


def task_frame(summary: Summary) -> DataFrame:
    """One row a planned task, in the plan's order; columns as `_TASK_COLUMNS` describes them."""
    here = summary.machine.host if summary.machine else None
    of = [(job, task) for job in summary.jobs for task in job.tasks]
    gpus = [task.gpus[0] if len(task.gpus) == 1 else None for _, task in of]
    kept = ("copy", "status", "perf", "slices", "seconds", "steady", "use")
    repeats = max((task.repeat for _, task in of), default=0) + 1
    columns: dict[str, list[Any]] = {
        **{name: [getattr(task, name) for _, task in of] for name in kept},
        "job": [job.name for job, _ in of],
        "devices": [job.devices for job, _ in of],
        "task": [task.id for _, task in of],
        "host": [task.host or here for _, task in of],
        "repeat": [task.session * repeats + task.repeat for _, task in of],
        "gpu_index": [gpu.index if gpu else None for gpu in gpus],
        "gpu_uuid": [gpu.uuid if gpu else None for gpu in gpus],
        "open": [task.status in OPEN for _, task in of],
    }
    return DataFrame({name: Series(columns[name], dtype=kind) for name, kind in _TASK_COLUMNS.items()})


def job_frame(summary: Summary) -> DataFrame:
    """One row a job, with the single figures of `JobSummary` in their units.

    Columns: `JOB_COLUMNS`, with "_" for "."; then "use_..." for each of `CLOCK_EVENTS`, the share of the watched time
    under it; then "axis_..." for each axis of an unrolled job. A cell holds the record's own value, or None;
    `convert_dtypes` makes numbers of them.
    """
    found = [job.use.clock_events if job.use else None for job in summary.jobs]
    shares = [[None if events is None else events.get(cause, 0.0) for cause in CLOCK_EVENTS] for events in found]
    under = DataFrame(shares, columns=[f"use_{cause}" for cause in CLOCK_EVENTS], dtype=object)
    axes = {f"axis_{axis}": [job.axes.get(axis) for job in summary.jobs] for job in summary.jobs for axis in job.axes}
    parts = [flat(summary.jobs, JOB_COLUMNS), under, DataFrame(axes, dtype=object)]
    return concat(parts if axes else parts[:2], axis="columns")


def flat(records: Iterable[object], paths: Sequence[str]) -> DataFrame:
    """One row a record, with a column for each path: "interval.low" is attribute `low` of attribute `interval`.

    A value is None where the record, or a record on the path, is None.
    """
    rows = [[_value(record, path) for path in paths] for record in records]
    return DataFrame(rows, columns=[path.replace(".", "_") for path in paths], dtype=object)


def _value(record: object, path: str) -> Any:
    for name in path.split("."):
        record = None if record is None else getattr(record, name)
    return record
