"""The kernel's counters of a group: OOM kills, peaks, pressure. None: the kernel does not count it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchsuite.host import kernel_files
from benchsuite.host.cgroups import UNIFIED, Cgroup, CgroupPlace


@dataclass(frozen=True)
class Counters:
    """The counters of a group at one moment. Those of pressure are seconds since the group was made."""

    oom_kills: int | None = None
    peak_memory_bytes: int | None = None
    peak_pids: int | None = None
    cpu_some_s: float | None = None
    cpu_full_s: float | None = None
    memory_some_s: float | None = None
    memory_full_s: float | None = None

    def since(self, before: Counters) -> Counters:
        """The counters minus `before`. A peak that did not rise is None: its value within the interval is unknown."""
        return Counters(
            oom_kills=_added(self.oom_kills, before.oom_kills),
            peak_memory_bytes=_grown(self.peak_memory_bytes, before.peak_memory_bytes),
            peak_pids=_grown(self.peak_pids, before.peak_pids),
            cpu_some_s=_passed(self.cpu_some_s, before.cpu_some_s),
            cpu_full_s=_passed(self.cpu_full_s, before.cpu_full_s),
            memory_some_s=_passed(self.memory_some_s, before.memory_some_s),
            memory_full_s=_passed(self.memory_full_s, before.memory_full_s),
        )


def _added(after: int | None, before: int | None) -> int | None:
    return None if after is None else after - (before or 0)


def _grown(after: int | None, before: int | None) -> int | None:
    return None if after is None or after <= (before or 0) else after


def _passed(after: float | None, before: float | None) -> float | None:
    return None if after is None else round(after - (before or 0.0), 6)


def count(group: Cgroup) -> Counters:
    """The counters as they are now."""
    memory, pids, unified = (group.places.get(name) for name in ("memory", "pids", UNIFIED))
    kills = peak = None
    if memory and memory.version == 2:
        # Both include the groups below. If a group is killed whole (memory.oom.group), `oom_kill` counts its first
        # victim twice.
        kills = kernel_files.number(memory.folder / "memory.events", "oom_group_kill")
        kills = kills or kernel_files.number(memory.folder / "memory.events", "oom_kill")
        peak = kernel_files.number(memory.folder / "memory.peak")
    elif memory:
        # `memory.failcnt` may stay 0 although a process was killed.
        kills = kernel_files.number(memory.folder / "memory.oom_control", "oom_kill")
        peak = kernel_files.number(memory.folder / "memory.max_usage_in_bytes")
    cpu_some_s, cpu_full_s = _pressure_s(unified, "cpu.pressure")
    memory_some_s, memory_full_s = _pressure_s(unified, "memory.pressure")
    return Counters(
        oom_kills=kills,
        peak_memory_bytes=peak,
        peak_pids=kernel_files.number(pids.folder / "pids.peak") if pids else None,
        cpu_some_s=cpu_some_s,
        cpu_full_s=cpu_full_s,
        memory_some_s=memory_some_s,
        memory_full_s=memory_full_s,
    )


def memory_in_use_bytes(group: Cgroup) -> int | None:
    """The memory that the group is charged with now, page cache included."""
    memory = group.places.get("memory")
    if memory is None:
        return None
    name = "memory.current" if memory.version == 2 else "memory.usage_in_bytes"
    return kernel_files.number(memory.folder / name)


def cpu_s(group: Cgroup) -> float | None:
    """The CPU time of all processes that were ever in the group."""
    unified = group.places.get(UNIFIED)
    used_us = kernel_files.number(unified.folder / "cpu.stat", "usage_usec") if unified else None
    return None if used_us is None else used_us / 1e6


def _pressure_s(place: CgroupPlace | None, name: str) -> tuple[float | None, float | None]:
    """The totals, in us, of lines such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500"; returned in seconds."""
    found: dict[str, float] = {}
    for line in (kernel_files.read(place.folder / name) or "").splitlines() if place else ():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if (total_us := kernel_files.whole(total)) is not None:
            found[kind] = total_us / 1e6
    return found.get("some"), found.get("full")


def throttled_s(own: Mapping[str, CgroupPlace]) -> dict[Path, float]:
    """Seconds that CPU quotas have throttled this process's own group and each group around it, by the group's folder.

    It is empty if the group is not visible or the kernel does not count.

    Args:
        own: the groups of this process, by controller.
    """
    place = own.get("cpu", own.get(UNIFIED))
    # The folder of a group that is not visible is that of a group around it, whose counter is not of this process.
    found = {folder: _throttled_s(folder) for folder in place.chain()} if place and place.exact else {}
    return {folder: value for folder, value in found.items() if value is not None}


def throttled_since_s(before: Mapping[Path, float], now: Mapping[Path, float]) -> float | None:
    """The largest increase of a group's throttled time, in seconds; None if no group has the counter.

    Args:
        before, now: two results of `throttled_s`.
    """
    return max((round(now[folder] - before[folder], 6) for folder in now if folder in before), default=None)


def _throttled_s(folder: Path) -> float | None:
    file = folder / "cpu.stat"
    for key, per_second in (("throttled_usec", 1e6), ("throttled_time", 1e9)):
        value = kernel_files.number(file, key)
        if value is not None:
            return value / per_second
    return None
