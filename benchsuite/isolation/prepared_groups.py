"""Control groups that an administrator prepared: student0, student1, ..., one a tenant, with CPUs and memory set.

`scripts/cgroup_setup.sh` makes them. Groups made otherwise are accepted if all of them are equal.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchsuite.errors import reason
from benchsuite.host.cgroups import UNIFIED, Cgroup, CgroupPlace, cpus_of, limit_of
from benchsuite.host.kernel_files import render_cpus
from benchsuite.isolation.made_groups import WANTED, entering_fails

NAME = "student"
# In version 2 a user can enter them only if the user owns a group around them: the script makes this one.
FOLDER = "benchsuite"


@dataclass
class PreparedGroups:
    """Prepared groups, locked against other runs until `close`.

    Attributes:
        groups: the groups; empty if they cannot be used, for the reason in `why_not`.
        cpus: the CPUs of each group; empty if the groups do not confine CPUs.
        memory_bytes: the memory limit of each group; None if the groups do not confine memory.
    """

    groups: list[Cgroup] = field(default_factory=list)
    cpus: list[tuple[int, ...]] = field(default_factory=list)
    memory_bytes: int | None = None
    why_not: str | None = None
    _locks: list[int] = field(default_factory=list)

    @classmethod
    def prove(
        cls, own: Mapping[str, CgroupPlace], usable: Collection[int], total_bytes: int | None, count: int
    ) -> PreparedGroups:
        """Find the first `count` groups, compare them, and let a process enter each.

        Args:
            own: the groups of this process. Prepared groups are siblings of one of them, or of a group around it.
            usable: the CPUs that may be used here.
            total_bytes: the memory that may be used here; None if it is not known.
            count: how many tenants run side by side at most.
        """
        found = find(own)
        if not found:
            return cls(why_not="no groups are prepared (sudo scripts/cgroup_setup.sh)")
        if len(found) < count:
            return cls(why_not=f"only {len(found)} groups are prepared, for {count} tasks side by side")
        made = cls(groups=found[:count])
        made.why_not = made._judge(usable, total_bytes) or made._lock() or made._busy() or made._closed()
        if made.why_not:
            made.close()
            made.groups = []
        return made

    @property
    def versions(self) -> dict[str, int]:
        """The controllers that they confine, with the version of each."""
        return {name: self.groups[0].places[name].version for name in WANTED if self._has(name)}

    def _has(self, controller: str) -> bool:
        return bool(self.groups) and all(controller in group.places for group in self.groups)

    def _judge(self, usable: Collection[int], total_bytes: int | None) -> str | None:
        if self._has("cpuset"):
            self.cpus = [cpus_of(group.places["cpuset"].folder) for group in self.groups]
            if why := unequal_cpus(self.cpus, usable):
                return why
        if self._has("memory"):
            limits = [limit_of(group.places["memory"]) for group in self.groups]
            if why := unequal_memory(limits, total_bytes):
                return why
            self.memory_bytes = limits[0]
        return None

    def _lock(self) -> str | None:
        """Lock the groups for as long as this process lives; why that fails, else None."""
        for index, group in enumerate(self.groups):
            folder = group.folders()[0]
            try:
                handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
                self._locks.append(handle)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return f"{NAME}{index} is in use by another run"
            except OSError as error:
                return f"{folder}: {reason(error)}"
        return None

    def _busy(self) -> str | None:
        """Why the groups are not empty: their processes would be measured with the tasks."""
        for index, group in enumerate(self.groups):
            if pids := group.pids():
                return f"{NAME}{index} already holds processes ({', '.join(map(str, pids[:5]))}); end them first"
        return None

    def _closed(self) -> str | None:
        why = entering_fails([file for group in self.groups for file in group.joins()])
        return f"the prepared groups cannot be entered: {why}; run sudo scripts/cgroup_setup.sh here" if why else None

    def close(self) -> None:
        """Release the locks."""
        for handle in self._locks:
            with contextlib.suppress(OSError):
                os.close(handle)
        self._locks.clear()


def find(own: Mapping[str, CgroupPlace]) -> list[Cgroup]:
    """The groups student0, student1, ... in the hierarchies that have them, up to the first that is missing in one.

    Args:
        own: the groups of this process, by controller.
    """
    rows: dict[str, list[CgroupPlace]] = {}
    for controller in (*WANTED, "pids", "freezer", UNIFIED):
        place = own.get(controller, own.get(UNIFIED))
        spots = [spot for folder in place.chain() for spot in (folder, folder / FOLDER)] if place else []
        spot = next((spot for spot in spots if (spot / f"{NAME}0").is_dir()), None)
        if place and spot and _confines(controller, place, spot / f"{NAME}0"):
            folders = itertools.takewhile(Path.is_dir, (spot / f"{NAME}{i}" for i in itertools.count()))
            rows[controller] = [CgroupPlace(place.version, folder, place.mount) for folder in folders]
    if not any(name in rows for name in WANTED):
        return []
    fewest = min(len(rows[name]) for name in WANTED if name in rows)
    return [Cgroup({name: row[i] for name, row in rows.items() if i < len(row)}) for i in range(fewest)]


def _confines(controller: str, place: CgroupPlace, folder: Path) -> bool:
    """Does the group have the controller? In version 2 a folder may have only some controllers."""
    files = {"cpuset": "cpuset.cpus", "memory": "memory.max" if place.version == 2 else "memory.limit_in_bytes"}
    return controller not in files or (folder / files[controller]).exists()


def unequal_cpus(sets: Sequence[Collection[int]], usable: Collection[int]) -> str | None:
    """Why the groups' CPUs are not a fair share each, or cannot be used here; None if they are."""
    for index, cpus in enumerate(sets):
        if not cpus:
            return f"{NAME}{index} has no CPUs"
        if outside := set(cpus) - set(usable):
            return f"{NAME}{index} has CPUs {render_cpus(outside)}, which may not be used here"
        if len(cpus) != len(sets[0]):
            return f"{NAME}{index} has {len(cpus)} CPUs but {NAME}0 has {len(sets[0])}; they must be equal in number"
        for other in range(index):
            if common := set(cpus) & set(sets[other]):
                return f"{NAME}{other} and {NAME}{index} share CPUs {render_cpus(common)}; they must be disjoint"
    return None


def unequal_memory(limits: Sequence[int | None], total_bytes: int | None) -> str | None:
    """Why the groups' memory limits are not a fair share each, or exceed the memory; None if they are."""
    for index, limit in enumerate(limits):
        if limit is None:
            return f"{NAME}{index} has no memory limit"
        if limit != limits[0]:
            return f"{NAME}{index} may use {limit} bytes but {NAME}0 {limits[0]}; they must be equal"
    promised = sum(limit or 0 for limit in limits)
    if total_bytes is not None and promised > total_bytes:
        return f"the prepared groups promise {promised} bytes together, more than the {total_bytes} that there are"
    return None
