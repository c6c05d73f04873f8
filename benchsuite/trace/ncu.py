"""Tables of Nsight Compute: how much the kinds of cores of a GPU work while kernels run.

The means are weighted by each kernel's cycles, as TBD's Core-Utilization-Analyzer does it; time between kernels does
not count.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchsuite.errors import ResultError, one_line
from benchsuite.trace.chrome import opened

# Cores -> metrics without their suffix, the preferred one first. Names differ between generations of chips.
CORES = {
    "FMA (fp32)": ("sm__inst_executed_pipe_fma", "smsp__inst_executed_pipe_fma", "smsp__pipe_fma_cycles_active"),
    "FP16": ("sm__inst_executed_pipe_fp16", "smsp__inst_executed_pipe_fp16", "sm__inst_executed_pipe_fma_type_fp16"),
    "tensor, instructions": ("sm__inst_executed_pipe_tensor", "smsp__inst_executed_pipe_tensor"),
    "tensor, cycles": (
        "sm__pipe_tensor_cycles_active",
        "smsp__pipe_tensor_cycles_active",
        "sm__pipe_tensor_op_hmma_cycles_active",
    ),
    "special functions": ("sm__inst_executed_pipe_xu", "smsp__inst_executed_pipe_xu"),
}
# Suffixes of a percentage of the peak, the one of TBD first.
_PERCENT = ("avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active")
_CYCLES = ("gpc__cycles_elapsed.max", "sm__cycles_elapsed.max", "smsp__cycles_elapsed.max")
_TIME = ("gpu__time_duration.sum", "gpu__time_duration.avg")
_FLOPS = {"ffma": 2, "fadd": 1, "fmul": 1}
_FLOP_METRIC = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_SECONDS = {
    "ns": 1e-9,
    "nsecond": 1e-9,
    "us": 1e-6,
    "usecond": 1e-6,
    "ms": 1e-3,
    "msecond": 1e-3,
    "s": 1.0,
    "second": 1.0,
}
_HEADER = ("ID", "Kernel Name")


@dataclass(frozen=True)
class CoreUse:
    """How much one kind of cores works while kernels run.

    Attributes:
        percent: the mean over the kernels, weighted by their cycles, of the percentage of the peak; None if no kernel
            has the metric.
        metric: the metric in use; for a missing one those that were looked for.
        kernels: how many kernels have the metric.
    """

    cores: str
    percent: float | None
    metric: str
    kernels: int


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its metrics by name, in the units of the file."""

    kernel: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class NcuUse:
    """The analysis of one table.

    Attributes:
        cycles: the cycles of all kernels.
        time_s: their durations added up; None if the table has none.
        flops: fp32 operations outside tensor cores, 2 for each fused multiply-add; None if not counted.
    """

    launches: int
    cycles: float
    time_s: float | None
    cores: tuple[CoreUse, ...]
    flops: float | None
    by_kernel: tuple[tuple[str, int, float], ...]


def read(path: Path) -> tuple[Launch, ...]:
    """The launches in a CSV table of `ncu --csv`, long (a line a metric) or wide (`--page raw`).

    Lines before the header (the program's output, `==PROF==`) are skipped. Durations become seconds.

    Raises:
        ResultError: the file cannot be read, has no header, no kernel, or a line that does not fit the header.
    """
    try:
        with opened(path) as file:
            header, rows = _table(path, iter(file))
            launches = _long(path, header, rows) if "Metric Name" in header else _wide(header, rows)
    except OSError as error:
        raise ResultError(f"{one_line(str(path))}: cannot be read: {error.strerror}") from None
    if not launches:
        raise ResultError(f"{one_line(str(path))}: no kernel was profiled{_tools_words(path)}")
    return launches


def analysed(path: Path, launches: tuple[Launch, ...]) -> NcuUse:
    """The use of each kind of cores over all launches, the last one included.

    Raises:
        ResultError: no launch has the number of its cycles.
    """
    weights = [next((one.metrics[m] for m in _CYCLES if m in one.metrics), 0.0) for one in launches]
    cycles = sum(weights)
    if cycles <= 0:
        raise ResultError(f"{one_line(str(path))}: no kernel has {_CYCLES[0]}; profile with --metrics {_CYCLES[0]},...")
    times = [next((one.metrics[m] for m in _TIME if m in one.metrics), None) for one in launches]
    known = [time for time in times if time is not None]
    longest: dict[str, list[float]] = {}
    for one, weight in zip(launches, weights, strict=True):
        longest.setdefault(one.kernel, []).append(weight)
    ranked = sorted(longest.items(), key=lambda item: -sum(item[1]))
    return NcuUse(
        launches=len(launches),
        cycles=cycles,
        time_s=sum(known) if len(known) == len(launches) else None,
        cores=tuple(_core(cores, names, launches, weights) for cores, names in CORES.items()),
        flops=_flops(launches),
        by_kernel=tuple((name, len(of), sum(of) / cycles) for name, of in ranked),
    )


def _core(cores: str, names: tuple[str, ...], launches: tuple[Launch, ...], weights: list[float]) -> CoreUse:
    for metric in (f"{name}.{suffix}" for suffix in _PERCENT for name in names):
        have = [(one.metrics[metric], w) for one, w in zip(launches, weights, strict=True) if metric in one.metrics]
        total = sum(weight for _, weight in have)
        if have and total > 0:
            return CoreUse(cores, sum(value * weight for value, weight in have) / total, metric, len(have))
    return CoreUse(cores, None, " or ".join(names), 0)


def _flops(launches: tuple[Launch, ...]) -> float | None:
    names = {_FLOP_METRIC.format(kind): factor for kind, factor in _FLOPS.items()}
    counted = [one for one in launches if all(name in one.metrics for name in names)]
    if len(counted) < len(launches):
        return None
    return sum(factor * one.metrics[name] for one in counted for name, factor in names.items())


def _table(path: Path, lines: Iterator[str]) -> tuple[list[str], Iterator[list[str]]]:
    """The header's cells, and the rows after it."""
    for line in lines:
        if all(f'"{name}"' in line for name in _HEADER):
            header = next(csv.reader([line]))
            return header, csv.reader(kept for kept in lines if not kept.startswith("==") and kept.strip())
    raise ResultError(f"{one_line(str(path))}: no table of ncu: no header with ID and Kernel Name{_tools_words(path)}")


def _tools_words(path: Path) -> str:
    """What ncu itself reports in the file, such as a missing permission; empty if nothing."""
    try:
        with opened(path) as file:
            found = re.search(r"==ERROR== *(.{1,300})", file.read(1 << 20))
    except OSError:
        return ""
    return f"; ncu reports: {one_line(found[1])}" if found else ""


def _long(path: Path, header: list[str], rows: Iterator[list[str]]) -> tuple[Launch, ...]:
    at = {name: index for index, name in enumerate(header)}
    missing = [name for name in ("Metric Unit", "Metric Value") if name not in at]
    if missing:
        raise ResultError(f"{one_line(str(path))}: no table of ncu: no column '{missing[0]}'")
    found: dict[tuple[str, str], Launch] = {}
    for number, row in enumerate(rows, 1):
        if len(row) < len(header):
            raise ResultError(f"{one_line(str(path))}: row {number} of the table has {len(row)} of {len(header)} cells")
        key = (row[at["Process ID"]] if "Process ID" in at else "", row[at["ID"]])
        launch = found.setdefault(key, Launch(row[at["Kernel Name"]], {}))
        value = _value(row[at["Metric Value"]], row[at["Metric Unit"]])
        if value is not None:
            launch.metrics[row[at["Metric Name"]]] = value
    return tuple(found.values())


def _wide(header: list[str], rows: Iterator[list[str]]) -> tuple[Launch, ...]:
    """`--page raw`: a column a metric, with the units in the first row."""
    units = next(rows, [])
    launches = []
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        values = {
            name: _value(cell, unit) for name, cell, unit in zip(header, row, units, strict=False) if "__" in name
        }
        launches.append(Launch(cells.get("Kernel Name", ""), {k: v for k, v in values.items() if v is not None}))
    return tuple(launches)


def _value(text: str, unit: str) -> float | None:
    """A number with thousands separators of English or German style; None for "n/a" and text."""
    text = text.strip()
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    elif re.fullmatch(r"[+-]?\d{1,3}(\.\d{3}){2,}(,\d+)?", text) or re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})+,\d+", text):
        text = text.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"[+-]?\d+,\d+", text):
        text = text.replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    return value * _SECONDS.get(unit, 1.0)
