"""Control groups of both versions by their files: where this process is, and groups of our own, made and removed.

A machine may have some controllers in version 1 hierarchies and others in version 2: all is decided per controller.
Nothing here signals a process that is not in the group at that moment.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchsuite.host import cgroupfs

# The place in the version 2 hierarchy, whatever controllers it has.
UNIFIED = "unified"
KILL_LIMIT_S = 5.0
# Version 1 writes "no limit" as a number just under 2^63.
NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True)
class Place:
    """A group's folder in one hierarchy, mounted at `mount`; not `exact` where only something around it is visible."""

    version: Literal[1, 2]
    folder: Path
    mount: Path
    exact: bool = True

    def chain(self) -> Iterator[Path]:
        """The folder and those around it, up to the mount."""
        yield self.folder
        if self.folder != self.mount:
            yield from itertools.takewhile(lambda f: f != self.mount.parent, self.folder.parents)

    def below(self, name: str) -> Place:
        return replace(self, folder=self.folder / name)


def own(root: Path = Path("/")) -> dict[str, Place]:
    """Controller -> the group in which this process is; UNIFIED for the version 2 hierarchy. Empty without any."""
    mounts = _mounts(root)
    found: dict[str, Place] = {}
    for line in (cgroupfs.read(root / "proc/self/cgroup") or "").splitlines():
        hierarchy, names, path = line.split(":", 2)
        if hierarchy == "0" and not names:
            place = _place(2, path, mounts.get(UNIFIED, []), root)
            if place:
                found[UNIFIED] = place
                for name in (cgroupfs.read(place.folder / "cgroup.controllers") or "").split():
                    found.setdefault(name, place)
        for name in filter(None, names.split(",")):
            place = _place(1, path, mounts.get(name, []), root)
            if place and "=" not in name:
                found[name] = place
    return found


def _mounts(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Controller -> (which part of its hierarchy is mounted, where); UNIFIED for version 2."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in (cgroupfs.read(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        part, where = (re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), word) for word in before.split()[3:5])
        kind, _, options = after.split(" ", 2)
        names = {"cgroup2": [UNIFIED], "cgroup": options.split(",")}.get(kind, [])
        for name in names:
            found.setdefault(name, []).append((part, where))
    return found


def _place(version: Literal[1, 2], path: str, mounts: Sequence[tuple[str, str]], root: Path) -> Place | None:
    for part, where in mounts:
        mount = root / where.lstrip("/")
        if Path(path).is_relative_to(part) and ".." not in Path(path).parts:
            folder = mount / Path(path).relative_to(part)
            if folder.is_dir():
                return Place(version, folder, mount)
    # A container may see its own group as the mount and a name of it that means something only outside.
    outer = [root / where.lstrip("/") for _, where in mounts]
    return Place(version, outer[0], outer[0], exact=False) if outer and outer[0].is_dir() else None


def cpus_of(folder: Path) -> tuple[int, ...]:
    """The CPUs on which a group's processes may run; none where it has no such controller."""
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        if text := cgroupfs.read(folder / name):
            return cgroupfs.parse_cpus(text)
    return ()


def limit_of(place: Place) -> int | None:
    """A group's own memory limit in bytes; None where it sets none."""
    limit = cgroupfs.number(place.folder / ("memory.max" if place.version == 2 else "memory.limit_in_bytes"))
    return limit if limit is not None and limit < NO_LIMIT_BYTES else None


def enable(folder: Path, controllers: Collection[str]) -> dict[str, str]:
    """Give controllers to the groups below a version 2 group; controller -> why it could not be done.

    What is enabled stays enabled: others may have come to rely on it.
    """
    file, why_not = folder / "cgroup.subtree_control", {}
    # Of a group with processes the kernel would take some controllers, and then make the groups below it unusable.
    held = (folder / "cgroup.type").exists() and cgroupfs.read(folder / "cgroup.procs")
    for name in sorted(controllers):
        if name in (cgroupfs.read(file) or "").split():
            continue
        if held:
            why_not[name] = f"{folder} holds processes, and then cgroup v2 allows no limits below it"
            continue
        try:
            cgroupfs.write(file, f"+{name}")
        except OSError as error:
            said = {
                errno.EBUSY: f"{folder} holds processes, and then cgroup v2 allows no limits below it",
                errno.ENOENT: f"{folder} has no {name} controller to give",
            }
            why_not[name] = said.get(error.errno or 0, f"{file}: {error.strerror}")
    return why_not


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """One group, by its place in each hierarchy that it is in: controller -> place."""

    places: Mapping[str, Place]

    def folders(self) -> list[Path]:
        """Its folders, each once."""
        return list(dict.fromkeys(place.folder for place in self.places.values()))

    def joins(self) -> list[Path]:
        """The files by which a process enters, all of which it must write to."""
        return [folder / "cgroup.procs" for folder in self.folders()]

    def below(self, name: str) -> Group:
        """The group of that name in this one; it may not exist."""
        return Group({controller: place.below(name) for controller, place in self.places.items()})

    def create(self) -> None:
        """Make what is missing of it. In version 1 it has its parent's CPUs until it is given others.

        Raises:
            OSError: a folder cannot be made.
        """
        for folder in self.folders():
            cgroupfs.make(folder)
        place = self.places.get("cpuset")
        if place and place.version == 1:
            # Nothing can enter before both are set, and memory nodes come first.
            for name in ("cpuset.mems", "cpuset.cpus"):
                if not cgroupfs.read(place.folder / name):
                    cgroupfs.write(place.folder / name, cgroupfs.read(place.folder.parent / name) or "")

    def set_cpus(self, cpus: Collection[int]) -> None:
        """Confine it to exactly these CPUs.

        Raises:
            OSError: the kernel refuses them or gives others.
        """
        folder = self.places["cpuset"].folder
        cgroupfs.write(folder / "cpuset.cpus", cgroupfs.render_cpus(cpus))
        given = cpus_of(folder)
        if set(given) != set(cpus):
            message = (
                f"the kernel gives CPUs {cgroupfs.render_cpus(given) or 'none'} instead of {cgroupfs.render_cpus(cpus)}"
            )
            raise OSError(errno.EINVAL, message, str(folder / "cpuset.cpus"))

    def set_memory(self, memory_bytes: int) -> None:
        """Confine it to so much memory, swap included; who is over it is killed.

        Raises:
            OSError: the kernel refuses the limit.
        """
        place = self.places["memory"]
        texts = {"memory.max": str(memory_bytes), "memory.swap.max": "0", "memory.oom.group": "1"}
        if place.version == 1:
            texts = {"memory.limit_in_bytes": str(memory_bytes), "memory.memsw.limit_in_bytes": str(memory_bytes)}
        for index, (name, text) in enumerate(texts.items()):
            if index == 0 or (place.folder / name).exists():
                cgroupfs.write(place.folder / name, text)

    def pids(self) -> list[int]:
        """The living processes in it and in groups below it; 0 stands for one that cannot be seen from here."""
        found: set[int] = set()
        for folder in self.folders():
            # Another run may be removing the same group of a dead one: unlike glob, walk passes over what is gone.
            for place, _, _ in os.walk(folder):
                found |= {int(pid) for pid in (cgroupfs.read(Path(place) / "cgroup.procs") or "").split()}
        return sorted(pid for pid in found if pid == 0 or cgroupfs.started_ticks(pid) is not None)

    def kill(self, limit_s: float = KILL_LIMIT_S) -> bool:
        """SIGKILL to all that is in it until it is empty; False if something outlives the limit."""
        deadline = time.monotonic() + limit_s
        while pids := self.pids():
            for folder in self.folders():
                with contextlib.suppress(OSError):
                    cgroupfs.write(folder / "cgroup.kill", "1")
            self._freeze(True)
            for start in range(0, len(pids), 100):
                self._end(pids[start : start + 100])
            self._freeze(False)
            if time.monotonic() > deadline:
                return not self.pids()
            time.sleep(0.01)
        return True

    def _freeze(self, frozen: bool) -> None:
        """While frozen, none can fork away from its signal."""
        place = self.places.get("freezer", self.places.get(UNIFIED))
        if place:
            files = {1: ("freezer.state", "FROZEN" if frozen else "THAWED"), 2: ("cgroup.freeze", str(int(frozen)))}
            name, text = files[place.version]
            with contextlib.suppress(OSError):
                cgroupfs.write(place.folder / name, text)

    def _end(self, pids: Sequence[int]) -> None:
        """SIGKILL to those that are members after a handle on them is held, so that a reused pid is never hit."""
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
        """Remove it with the groups below it, waiting for the kernel to let go; False if something stays."""
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
