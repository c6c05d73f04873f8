"""The control groups of this process, found in /proc/self/cgroup and /proc/self/mountinfo; see cgroups(7)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchsuite.errors import one_line
from benchsuite.host import kernel_files
from benchsuite.host.cgroups import UNIFIED, CgroupPlace
from benchsuite.host.mounts import FILE, mounted

# The controllers that may limit this process.
LIMITING = ("cpuset", "cpu", "memory")


@dataclass(frozen=True)
class OwnGroups:
    """The groups of this process.

    Attributes:
        places: controller -> its place, with `UNIFIED` for the version 2 hierarchy; empty if there are none.
        unknown: what the kernel's files leave unknown, each in a line.
    """

    places: dict[str, CgroupPlace]
    unknown: tuple[str, ...] = ()


def own(root: Path = Path("/")) -> dict[str, CgroupPlace]:
    """The groups of this process by controller, see `OwnGroups.places`."""
    return look(root).places


def look(root: Path = Path("/")) -> OwnGroups:
    """The groups of this process, and why a limit on it may be unknown. Malformed lines are left out and reported.

    Args:
        root: the folder that holds `proc`.
    """
    mounts, malformed = _mounts(root)
    unknown = [_malformed(root / FILE, line) for line in malformed]
    found: dict[str, CgroupPlace] = {}
    named: dict[str, str] = {}
    for line in kernel_files.lines(root / "proc/self/cgroup"):
        hierarchy, names, path = (*line.split(":", 2), "", "")[:3]
        if not path.startswith("/"):
            unknown.append(_malformed(root / "proc/self/cgroup", line))
            continue
        if hierarchy == "0" and not names:
            named[UNIFIED] = path
            place = _place(2, path, mounts.get(UNIFIED, []), root)
            if place:
                found[UNIFIED] = place
                for name in (kernel_files.read(place.folder / "cgroup.controllers") or "").split():
                    found.setdefault(name, place)
        for name in filter(None, names.split(",")):
            place = _place(1, path, mounts.get(name, []), root)
            if "=" not in name:
                named[name] = path
                if place:
                    found[name] = place
    return OwnGroups(found, (*unknown, *_hidden(named, found)))


def _malformed(file: Path, line: str) -> str:
    return f"{file}: the line {one_line(line)[:80]!r} is malformed and left out: a limit that it names is not known"


def _hidden(named: Mapping[str, str], found: Mapping[str, CgroupPlace]) -> Iterator[str]:
    """A line for each group that is not visible and may limit this process.

    Args:
        named: controller -> its group, by /proc/self/cgroup.
        found: controller -> its place.
    """
    paths: dict[str, list[str]] = {}
    for name in LIMITING:
        place = found.get(name, found.get(UNIFIED))
        path = named.get(name, named.get(UNIFIED))
        if path is not None and not (place and place.exact):
            paths.setdefault(path, []).append(name)
    for path, names in paths.items():
        limits = f"limits that it sets ({', '.join(names)}) are not known"
        yield f"/proc/self/cgroup names the group {one_line(path)}, which is not visible here: {limits}"


def _mounts(root: Path) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Controller -> (the part of its hierarchy that is mounted, where), and the malformed lines."""
    mounts, malformed = mounted(root)
    found: dict[str, list[tuple[str, str]]] = {}
    for mount in mounts:
        for name in {"cgroup2": (UNIFIED,), "cgroup": mount.options}.get(mount.kind, ()):
            found.setdefault(name, []).append((mount.part, mount.point))
    return found, malformed


def _place(version: Literal[1, 2], path: str, mounts: Sequence[tuple[str, str]], root: Path) -> CgroupPlace | None:
    for part, where in mounts:
        mount = root / where.lstrip("/")
        if Path(path).is_relative_to(part) and ".." not in Path(path).parts:
            folder = mount / Path(path).relative_to(part)
            if os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a folder that it may not reach
                return CgroupPlace(version, folder, mount)
    # A container may see its own group as the mount, with a path that is valid only outside the container.
    outer = [mount for _, where in mounts if os.path.isdir(mount := root / where.lstrip("/"))]  # noqa: PTH112
    return CgroupPlace(version, outer[0], outer[0], exact=False) if outer else None
