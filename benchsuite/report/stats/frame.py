"""A summary as a tidy pandas frame: one row a job.

Import this module inside the function that needs it: importing pandas takes most of a second, and neither a run nor a
plain report needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pandas import DataFrame, concat

from benchsuite.report.read.summary import Summary
from benchsuite.telemetry import CAPPED, SLOWING

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
