"""Time in which a CPU had work but a hypervisor did not run it: "steal" in /proc/stat, see proc_stat(5)."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from benchsuite.host import kernel_files

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_BUSY = ("user", "nice", "system", "irq", "softirq")


class ProcessorTime(NamedTuple):
    """Seconds since boot in which CPUs ran, and in which they had work but a hypervisor did not run them."""

    busy_s: float
    stolen_s: float


def processor_times(root: Path = Path("/")) -> dict[int, ProcessorTime]:
    """The times of each CPU that is online, by its number.

    Args:
        root: the folder that holds `proc`.

    Returns:
        Empty if the kernel does not report them. A malformed line is left out.
    """
    found = {}
    for line in kernel_files.lines(root / "proc/stat"):
        name, *words = line.split() or [""]
        number = kernel_files.whole(name.removeprefix("cpu")) if name.startswith("cpu") else None
        counts = [ticks for word in words if (ticks := kernel_files.whole(word)) is not None]
        if number is None or not counts or len(counts) < len(words):
            continue
        seconds = {field: count / _TICKS_PER_S for field, count in zip(_FIELDS, counts, strict=False)}
        busy_s = math.fsum(seconds.get(field, 0.0) for field in _BUSY)
        found[number] = ProcessorTime(busy_s, seconds.get("steal", 0.0))
    return found


def together(times: Mapping[int, ProcessorTime], cpus: Collection[int]) -> ProcessorTime | None:
    """The sum over those of `cpus` that are online; None if none is."""
    found = [times[cpu] for cpu in cpus if cpu in times]
    if not found:
        return None
    return ProcessorTime(*(round(math.fsum(seconds), 3) for seconds in zip(*found, strict=True)))
