"""TBD's arithmetic over what nvprof and nvvp export, for GPUs that these tools still know (before Turing)."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchsuite.errors import ResultError, one_line
from benchsuite.trace.chrome import opened

FP32 = "Single-Precision Function Unit Utilization"
_HIGHEST = 10
_DURATION = ("Duration(ns)", "Duration (ns)", "Avg. Duration(ns)", "Avg. Duration (ns)", "Avg. Duration")


@dataclass(frozen=True)
class Fp32Kernel:
    """The launches of one kernel: their share of the time, and the mean level of use of the fp32 units (0 to 10)."""

    name: str
    share: float
    level: float


@dataclass(frozen=True)
class Fp32Use:
    """The use of the fp32 units over all kernels. Ten levels are the whole: `percent` is 10 times the mean level.

    Attributes:
        unknown: rows whose level is empty; they count as 0, as in TBD's script.
    """

    total_s: float
    percent: float
    kernels: tuple[Fp32Kernel, ...]
    unknown: int


def corrected(utilisation_percent: float, session_s: float, overhead_s: float) -> float:
    """Compute utilisation in percent without the profiler's overhead, which nvvp counts as part of the session.

    compute time = utilisation * session; true run time = session - overhead (TBD's README, "Profiling with CUDA").

    Raises:
        ResultError: the overhead is not shorter than the session, or the compute time is longer than the rest.
    """
    left_s, compute_s = session_s - overhead_s, utilisation_percent / 100 * session_s
    if left_s <= 0 or overhead_s < 0 or not 0 <= utilisation_percent <= 100:
        raise ResultError(
            f"{utilisation_percent:g} % of {session_s:g} s with {overhead_s:g} s of overhead: give a percentage from 0 "
            "to 100, and an overhead shorter than the session"
        )
    if compute_s > left_s * (1 + 1e-9):
        raise ResultError(
            f"{compute_s:g} s of kernels do not fit into {left_s:g} s without overhead: check the three numbers"
        )
    return 100 * compute_s / left_s


def fp32_use(path: Path) -> Fp32Use:
    """The mean use of the fp32 units, weighted by time, from an exported "GPU Details" table (full or summary).

    Raises:
        ResultError: the file cannot be read, lacks a column or has no row, or a value is no level.
    """
    durations: dict[str, float] = defaultdict(float)
    weighted: dict[str, float] = defaultdict(float)
    unknown = 0
    for number, row in enumerate(_rows(path), 1):
        name = row["Name"] or ""
        taken = _nanoseconds(path, number, row)
        level = _level(path, number, row[FP32] or "")
        unknown += level is None
        durations[name] += taken
        weighted[name] += taken * (level or 0)
    total = sum(durations.values())
    if total <= 0:
        raise ResultError(f"{one_line(str(path))}: the table has no kernel with a duration")
    kernels = [
        Fp32Kernel(name, taken / total, weighted[name] / taken if taken else 0.0)
        for name, taken in sorted(durations.items(), key=lambda item: -item[1])
    ]
    percent = 100 / _HIGHEST * sum(weighted.values()) / total
    return Fp32Use(total_s=total / 1e9, percent=percent, kernels=tuple(kernels), unknown=unknown)


def _rows(path: Path) -> list[dict[str, str | None]]:
    try:
        with opened(path) as file:
            lines = [line for line in file if line.strip() and not line.startswith("==")]
    except OSError as error:
        raise ResultError(f"{one_line(str(path))}: cannot be read: {error.strerror}") from None
    start = next((index for index, line in enumerate(lines) if "Name" in line and FP32 in line), None)
    if start is None:
        raise ResultError(f"{one_line(str(path))}: no table of nvprof: no header with Name and '{FP32}'")
    return list(csv.DictReader(lines[start:]))


def _nanoseconds(path: Path, number: int, row: dict[str, str | None]) -> float:
    """The time of a row: in a summary the mean duration times the number of launches."""
    text = next((row[name] for name in _DURATION if row.get(name)), None)
    times = row.get("Invocations") or "1"
    try:
        return float((text or "").replace(",", "")) * float(times.replace(",", ""))
    except ValueError:
        raise ResultError(f"{one_line(str(path))}: row {number} has no duration in nanoseconds") from None


def _level(path: Path, number: int, text: str) -> int | None:
    """The level in "Low (3)"; "Max (10)" and "Max" are 10; None for an empty cell."""
    if not text.strip():
        return None
    found = re.search(r"\((\d+)\)", text) or re.fullmatch(r"\s*(\d+)\s*", text)
    level = int(found[1]) if found else _HIGHEST if "max" in text.lower() else -1
    if not 0 <= level <= _HIGHEST:
        raise ResultError(f"{one_line(str(path))}: row {number}: '{one_line(text)}' is no level from 0 to {_HIGHEST}")
    return level
