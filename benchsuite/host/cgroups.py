"""Control groups of both versions by their files: make them, limit them, end their processes and remove them.

A machine may have some controllers in version 1 hierarchies and others in version 2, so each controller is looked at by
itself. Only a process that is in the group at that moment is ever signalled.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchsuite.errors import reason
from benchsuite.host import kernel_files

# Stands for the version 2 hierarchy, whatever controllers it has.
UNIFIED = "unified"
KILL_LIMIT_S = 5.0
# Version 1 writes "no limit" as a number just under 2^63.
NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True)
class CgroupPlace:
    """A group in one hierarchy.

    Attributes:
        folder: the group's folder.
        mount: the folder at which the hierarchy is mounted.
        exact: False if the group itself is not visible; `folder` is then that of a group around it.
    """

    version: Literal[1, 2]
    folder: Path
    mount: Path
    exact: bool = True

    def chain(self) -> Iterator[Path]:
        """The folder and the folders around it, up to the mount."""
        yield self.folder
        if self.folder != self.mount:
            yield from itertools.takewhile(lambda f: f != self.mount.parent, self.folder.parents)

    def below(self, name: str) -> CgroupPlace:
        """The group of that name in this one; it may not exist."""
        return replace(self, folder=self.folder / name)


def cpus_of(folder: Path) -> tuple[int, ...]:
    """The CPUs on which a group's processes may run; empty if it has no cpuset controller."""
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        if text := kernel_files.read(folder / name):
            return kernel_files.parse_cpus(text)
    return ()


def limit_of(place: CgroupPlace) -> int | None:
    """A group's own memory limit in bytes; None if it sets none."""
    limit = kernel_files.number(place.folder / ("memory.max" if place.version == 2 else "memory.limit_in_bytes"))
    return limit if limit is not None and limit < NO_LIMIT_BYTES else None


def enable(folder: Path, controllers: Collection[str]) -> dict[str, str]:
    """Enable controllers for the groups below a version 2 group; why that failed, by controller.

    They stay enabled: other programs may rely on them by now.
    """
    file, why_not = folder / "cgroup.subtree_control", {}
    # The kernel accepts some controllers for a group that holds processes, and then the groups below are unusable.
    held = (folder / "cgroup.type").exists() and kernel_files.read(folder / "cgroup.procs")
    for name in sorted(controllers):
        if name in (kernel_files.read(file) or "").split():
            continue
        if held:
            why_not[name] = f"{folder} holds processes, and then cgroup v2 allows no limits below it"
            continue
        try:
            kernel_files.write(file, f"+{name}")
        except OSError as error:
            said = {
                errno.EBUSY: f"{folder} holds processes, and then cgroup v2 allows no limits below it",
                errno.ENOENT: f"{folder} has no {name} controller to give",
            }
            why_not[name] = said.get(error.errno or 0, f"{file}: {reason(error)}")
    return why_not


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cgroup:
    """One control group.

    Attributes:
        places: controller -> its place in the hierarchy of that controller.
    """

    places: Mapping[str, CgroupPlace]

    def folders(self) -> list[Path]:
        """Its folders, each once."""
        return list(dict.fromkeys(place.folder for place in self.places.values()))

    def joins(self) -> list[Path]:
        """The files that a process must write to, all of them, to enter."""
        return [folder / "cgroup.procs" for folder in self.folders()]

    def below(self, name: str) -> Cgroup:
        """The group of that name in this one; it may not exist."""
        return Cgroup({controller: place.below(name) for controller, place in self.places.items()})

    def create(self) -> None:
        """Make its missing folders. In version 1 it has its parent's CPUs until `set_cpus`.

        Raises:
            OSError: a folder cannot be made.
        """
        for folder in self.folders():
            kernel_files.make(folder)
        place = self.places.get("cpuset")
        if place and place.version == 1:
            # No process can enter before both are set; memory nodes must come first.
            for name in ("cpuset.mems", "cpuset.cpus"):
                if not kernel_files.read(place.folder / name):
                    kernel_files.write(place.folder / name, kernel_files.read(place.folder.parent / name) or "")

    def set_cpus(self, cpus: Collection[int]) -> None:
        """Confine it to exactly these CPUs.

        Raises:
            OSError: the kernel refuses them or sets others.
        """
        folder = self.places["cpuset"].folder
        kernel_files.write(folder / "cpuset.cpus", kernel_files.render_cpus(cpus))
        given = cpus_of(folder)
        if set(given) != set(cpus):
            wanted, got = kernel_files.render_cpus(cpus), kernel_files.render_cpus(given) or "none"
            message = f"the kernel gives CPUs {got} instead of {wanted}"
            raise OSError(errno.EINVAL, message, str(folder / "cpuset.cpus"))

    def set_memory(self, memory_bytes: int) -> None:
        """Confine it to this memory, swap included; the kernel kills a process that needs more.

        Raises:
            OSError: the kernel refuses the limit.
        """
        place = self.places["memory"]
        texts = {"memory.max": str(memory_bytes), "memory.swap.max": "0", "memory.oom.group": "1"}
        if place.version == 1:
            texts = {"memory.limit_in_bytes": str(memory_bytes), "memory.memsw.limit_in_bytes": str(memory_bytes)}
        for index, (name, text) in enumerate(texts.items()):
            if index == 0 or (place.folder / name).exists():
                kernel_files.write(place.folder / name, text)

    def pids(self) -> list[int]:
        """The living processes in it and in groups below it; 0 stands for one of another pid namespace."""
        found: set[int] = set()
        for folder in self.folders():
            # Another run may remove the same leftover at this moment: os.walk skips what is gone, glob does not.
            for place, _, _ in os.walk(folder):
                words = (kernel_files.read(Path(place) / "cgroup.procs") or "").split()
                found |= {pid for word in words if (pid := kernel_files.whole(word)) is not None}
        return sorted(pid for pid in found if pid == 0 or kernel_files.started_ticks(pid) is not None)

    def kill(self, limit_s: float = KILL_LIMIT_S) -> bool:
        """SIGKILL to all processes in it until it is empty; False if one outlives the limit."""
        deadline = time.monotonic() + limit_s
        while pids := self.pids():
            for folder in self.folders():
                with contextlib.suppress(OSError):
                    kernel_files.write(folder / "cgroup.kill", "1")
            self._freeze(True)
            for start in range(0, len(pids), 100):
                self._end(pids[start : start + 100])
            self._freeze(False)
            if time.monotonic() > deadline:
                return not self.pids()
            time.sleep(0.01)
        return True

    def _freeze(self, frozen: bool) -> None:
        """Freeze or thaw it: a frozen process cannot fork before its signal arrives."""
        place = self.places.get("freezer", self.places.get(UNIFIED))
        if place:
            files = {1: ("freezer.state", "FROZEN" if frozen else "THAWED"), 2: ("cgroup.freeze", str(int(frozen)))}
            name, text = files[place.version]
            with contextlib.suppress(OSError):
                kernel_files.write(place.folder / name, text)

    def _end(self, pids: Sequence[int]) -> None:
        """SIGKILL to those that are still members once a pidfd holds them, so that a reused pid is never signalled."""
        with contextlib.ExitStack() as stack:
            handles = {}
            for pid in pids:
                with contextlib.suppress(OSError, ValueError):
                    handles[pid] = os.pidfd_open(pid)
                    stack.callback(os.close, handles[pid])
            for pid in handles.keys() & set(self.pids()) - {os.getpid()}:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(handles[pid], signal.SIGKILL)

    def remove(self, limit_s: float = 2.0) -> bool:
        """Remove it and the groups below it, within the limit; False if something stays."""
        deadline = time.monotonic() + limit_s
        while not all([_removed(folder) for folder in self.folders()]):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def _removed(folder: Path) -> bool:
    for place, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(place).rmdir()
    return not folder.exists()
