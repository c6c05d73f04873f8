"""The CPUs and the memory that this process may use, and how CPUs are dealt out to tenants.

`root` is the folder that holds `proc` and `sys`: a test's own, or "/".
"""

from __future__ import annotations

import collections
import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchsuite.host import kernel_files
from benchsuite.host.cgroups import NO_LIMIT_BYTES, UNIFIED, CgroupPlace, cpus_of
from benchsuite.host.own_groups import own

ROOT = Path("/")
_MEMINFO = Path("proc/meminfo")


@dataclass(frozen=True)
class Core:
    """A physical core.

    Attributes:
        cpus: those of its hardware threads that may be used.
        node: its NUMA node.
    """

    cpus: tuple[int, ...]
    node: int = 0


@dataclass(frozen=True)
class Memory:
    """The memory that this process may use.

    Attributes:
        total_bytes: None if neither a limit nor the size of the host's memory is known.
        available_bytes: the part that is free now, with the file cache that can be dropped; None if it is not known.
        source: what sets the limit: a control group, or the size of the host's memory.
        note: why a limit or the size is not known, in words.
    """

    total_bytes: int | None
    available_bytes: int | None
    source: Literal["cgroup", "host"]
    note: str | None = None


# --- what is usable ---------------------------------------------------------------------------------------------------


def usable_cpus(root: Path = ROOT, affinity: Collection[int] | None = None) -> tuple[int, ...]:
    """The CPUs on which this process may run: its affinity, within its own cpuset."""
    mine = set(os.sched_getaffinity(0) if affinity is None else affinity)
    places = own(root)
    place = places.get("cpuset", places.get(UNIFIED))
    allowed = set(cpus_of(place.folder)) if place else set()
    return tuple(sorted(mine & allowed or mine))


def usable_count(root: Path = ROOT, affinity: Collection[int] | None = None) -> int:
    """How many CPUs may be busy at once: the usable ones, or the quota rounded up if that is less; at least 1."""
    return max(1, math.ceil(min(len(usable_cpus(root, affinity)), _quota(own(root)))))


def _quota(places: dict[str, CgroupPlace]) -> float:
    """The smallest CPU quota on this process, in CPUs; infinite if there is none."""
    place = places.get("cpu", places.get(UNIFIED))
    least = math.inf
    for folder in place.chain() if place else ():
        words = (kernel_files.read(folder / "cpu.max") or "").split()
        if not words:
            words = [kernel_files.read(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        # "max", or -1 in version 1, means no quota.
        quota, period = (kernel_files.whole(word) for word in words) if len(words) == 2 else (None, None)
        if quota and period:
            least = min(least, quota / period)
    return least


def memory(root: Path = ROOT) -> Memory:
    """The memory that may be used: the smallest limit of this process's group and those around it, else the host's."""
    total_bytes, available_bytes = host_memory_bytes(root), _meminfo_bytes(root, "MemAvailable:")
    notes = [] if total_bytes is not None else ["the kernel does not report the size of the memory"]
    places = own(root)
    place = places.get("memory", places.get(UNIFIED))
    source: Literal["cgroup", "host"] = "host"
    for folder in place.chain() if place else ():
        file = folder / ("memory.max" if place and place.version == 2 else "memory.limit_in_bytes")
        try:
            text = file.read_text(encoding="utf-8").strip()
            limit = NO_LIMIT_BYTES if text == "max" else int(text)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            notes.append(f"{file}: the memory limit cannot be read; a limit that is there is not known")
            continue
        if limit < NO_LIMIT_BYTES and (total_bytes is None or limit < total_bytes):
            total_bytes, source = limit, "cgroup"
        if limit < NO_LIMIT_BYTES and available_bytes is not None:
            available_bytes = min(available_bytes, max(0, limit - _unreclaimable_bytes(folder)))
    if total_bytes is not None and available_bytes is not None:
        available_bytes = min(available_bytes, total_bytes)
    return Memory(total_bytes, available_bytes, source, "; ".join(notes) or None)


def host_memory_bytes(root: Path = ROOT) -> int | None:
    """The size of the host's memory; None if the kernel does not report it.

    A container may hide /proc/meminfo. Then it is the size that sysconf(3) reports.
    """
    total_bytes = _meminfo_bytes(root, "MemTotal:")
    if total_bytes is not None:
        return total_bytes
    try:
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
    return pages * page_bytes if pages > 0 and page_bytes > 0 else None


def _meminfo_bytes(root: Path, key: str) -> int | None:
    for line in kernel_files.lines(root / _MEMINFO):
        words = line.split()
        if len(words) > 1 and words[0] == key and (kib := kernel_files.whole(words[1])):
            return kib * 1024
    return None


def _unreclaimable_bytes(folder: Path) -> int:
    """The memory of a group without the file cache that the kernel drops first."""
    if (used := kernel_files.number(folder / "memory.current")) is not None:
        return used - (kernel_files.number(folder / "memory.stat", "inactive_file") or 0)
    used = kernel_files.number(folder / "memory.usage_in_bytes") or 0
    return used - (kernel_files.number(folder / "memory.stat", "total_inactive_file") or 0)


# --- how it is built --------------------------------------------------------------------------------------------------


def topology(root: Path, cpus: Collection[int]) -> tuple[Core, ...]:
    """The physical cores of these CPUs. A CPU whose core is not known is a core of its own, in node 0."""
    node_of: dict[int, int] = {}
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        for cpu in kernel_files.parse_cpus(kernel_files.read(folder / "cpulist") or ""):
            node_of[cpu] = int(folder.name.removeprefix("node"))
    cores: dict[tuple[int, ...], Core] = {}
    for cpu in sorted(cpus):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        text = (
            kernel_files.read(folder / "thread_siblings_list")
            or kernel_files.read(folder / "core_cpus_list")
            or str(cpu)
        )
        siblings = tuple(c for c in kernel_files.parse_cpus(text) if c in cpus) or (cpu,)
        cores[siblings] = Core(siblings, node_of.get(cpu, 0))
    return tuple(cores.values())


def near_gpu(pci: str, root: Path = ROOT) -> tuple[int, ...]:
    """The CPUs that are near a GPU; empty if that is not known (as in most virtual machines).

    Args:
        pci: the address as NVML writes it, "00000000:3B:00.0".
    """
    domain, _, rest = pci.lower().partition(":")
    try:
        folder = root / f"sys/bus/pci/devices/{int(domain, 16):04x}:{rest}"
    except ValueError:
        return ()
    node = kernel_files.read(folder / "numa_node") or "-1"
    if not node.isdecimal():
        return ()
    text = kernel_files.read(folder / "local_cpulist") or kernel_files.read(
        root / f"sys/devices/system/node/node{node}/cpulist"
    )
    return kernel_files.parse_cpus(text or "")


# --- dealing out ------------------------------------------------------------------------------------------------------


def shares(cores: Sequence[Core], nears: Sequence[Collection[int]], count: int) -> list[tuple[int, ...]]:
    """CPUs for each of several tenants: exclusive, equally many, whole cores, on one node, near the wanted CPUs.

    Threads of one core go to different tenants only if there are more tenants than cores. A tenant may therefore get
    a thread less than its arithmetic share.

    Args:
        cores: the cores to deal out.
        nears: the CPUs that each tenant wants to be near to; empty for no wish.
        count: how many CPUs may be busy at once.

    Returns:
        The CPUs of each tenant, in order; an empty list if there are fewer CPUs than tenants.
    """
    size = min(count, sum(len(core.cpus) for core in cores)) // len(nears)
    if size and len(cores) < len(nears):
        loose = [Core((cpu,), core.node) for core in cores for cpu in core.cpus]
        return _deal(loose, nears, size) or []
    for wanted in range(size, 0, -1):
        if dealt := _deal(cores, nears, wanted):
            return dealt
    return []


def _deal(cores: Sequence[Core], nears: Sequence[Collection[int]], wanted: int) -> list[tuple[int, ...]] | None:
    """Deal out `wanted` CPUs to each; tenants with a wish choose first. None if the cores do not suffice."""
    free = list(cores)
    dealt: dict[int, tuple[int, ...]] = {}
    for index in sorted(range(len(nears)), key=lambda i: not nears[i]):
        taken = _take(free, frozenset(nears[index]), wanted)
        if not taken:
            return None
        dealt[index] = taken
    return [dealt[index] for index in range(len(nears))]


def _take(free: list[Core], near: frozenset[int], wanted: int) -> tuple[int, ...] | None:
    """Take cores with `wanted` CPUs out of `free`. A core with too many threads is taken whole and used in part."""
    room: collections.Counter[int] = collections.Counter()
    for core in free:
        room[core.node] += len(core.cpus)

    def rank(core: Core) -> tuple[bool, int, int, int, tuple[int, ...]]:
        return not near & set(core.cpus), -room[core.node], core.node, -len(core.cpus), core.cpus

    taken: list[int] = []
    while len(taken) < wanted:
        left = wanted - len(taken)
        fitting = [core for core in free if len(core.cpus) <= left] or free
        if not fitting:
            return None
        core = min(fitting, key=rank)
        free.remove(core)
        taken += core.cpus[:left]
    return tuple(sorted(taken))
