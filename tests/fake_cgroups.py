"""A machine's `/proc` and `/sys` in a folder, and a kernel that keeps cgroup v2's rules in it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchsuite.host import kernel_files
from benchsuite.host.cgroups import UNIFIED, Cgroup, enable
from benchsuite.host.own_groups import own
from benchsuite.isolation import made_groups

GIB = 1 << 30
NAMES = (*made_groups.WANTED, *made_groups.EXTRA)
_numbers = itertools.count()
V2_LINE = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"


def v1_line(controllers: str, part: str = "/") -> str:
    return f"31 23 0:29 {part} /sys/fs/cgroup/{controllers} rw,relatime - cgroup cgroup rw,{controllers}"


def tree(root: Path, mountinfo: str, cgroup: str, files: Mapping[str, object], memory_gib: int = 256) -> Path:
    """A machine: what the two files of /proc say, and the text of any others, by path from the root."""
    kib = memory_gib << 20
    said = {
        "proc/self/mountinfo": mountinfo + "\n",
        "proc/self/cgroup": cgroup + "\n",
        "proc/meminfo": f"MemTotal: {kib} kB\nMemFree: 1 kB\nMemAvailable: {kib * 3 // 4} kB\n",
        **files,
    }
    for name, text in said.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(str(text))
    return root


def v2_tree(root: Path, own: str = "/", **files: object) -> Path:
    """A machine with version 2 only; files are those of our own group, with `__` for the dots of their names."""
    folder = f"sys/fs/cgroup/{own.strip('/')}"
    return tree(
        root, V2_LINE, f"0::{own}", {f"{folder}/{name.replace('__', '.')}": text for name, text in files.items()}
    )


class KernelV2:
    """Keeps the rules of a version 2 hierarchy in a folder: who may enable what, and which files a group then has."""

    FILES = {
        "cpuset": ("cpuset.cpus", "cpuset.cpus.effective"),
        "memory": ("memory.max", "memory.swap.max", "memory.oom.group", "memory.events", "memory.peak"),
        "pids": ("pids.max", "pids.peak"),
    }

    def __init__(self, mount: Path, controllers: str = "cpuset memory pids", cpus: str = "0-7") -> None:
        self.mount = mount
        self.refused: dict[str, int] = {}
        mount.mkdir(parents=True)
        self._fill(mount, controllers)
        (mount / "cgroup.type").unlink()
        (mount / "cpuset.cpus.effective").write_text(cpus)

    def add(self, path: str, pids: str = "") -> Path:
        """A group with these members, made by somebody else."""
        folder = self.mount / path
        self.make(folder)
        (folder / "cgroup.procs").write_text(pids)
        return folder

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernel_files, "make", self.make)
        monkeypatch.setattr(kernel_files, "write", self.write)
        monkeypatch.setattr(Cgroup, "remove", self.remove)
        monkeypatch.setattr("benchsuite.isolation.made_groups.entering_fails", lambda files: None)
        monkeypatch.setattr("benchsuite.isolation.prepared_groups.entering_fails", lambda files: None)

    def make(self, folder: Path) -> None:
        if not folder.is_dir():
            self._may(folder)
            folder.mkdir()
            self._fill(folder, (folder.parent / "cgroup.subtree_control").read_text())

    def _fill(self, folder: Path, controllers: str) -> None:
        (folder / "cgroup.controllers").write_text(controllers)
        for name in ("cgroup.subtree_control", "cgroup.procs", "cgroup.type", "cgroup.kill"):
            (folder / name).write_text("")
        for name in (file for controller in controllers.split() for file in self.FILES[controller]):
            (folder / name).write_text("max" if name == "memory.max" else "")

    def write(self, file: Path, text: str) -> None:
        self._may(file)
        if not file.exists():
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        if file.name == "cgroup.subtree_control":
            self._enable(file, text.removeprefix("+"))
        elif file.name == "cpuset.cpus":
            inside = set(kernel_files.parse_cpus(text)) & set(self._effective(file.parent.parent))
            file.write_text(text)
            (file.parent / "cpuset.cpus.effective").write_text(kernel_files.render_cpus(inside))
        else:
            file.write_text(text)

    def _effective(self, folder: Path) -> tuple[int, ...]:
        text = kernel_files.read(folder / "cpuset.cpus.effective")
        return kernel_files.parse_cpus(text) if text else self._effective(folder.parent)

    def _enable(self, file: Path, name: str) -> None:
        folder = file.parent
        if name not in (folder / "cgroup.controllers").read_text().split():
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        if (folder / "cgroup.procs").read_text().split() and (folder / "cgroup.type").exists():
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(file))
        file.write_text(f"{file.read_text()} {name}".strip())

    def _may(self, path: Path) -> None:
        for place, number in self.refused.items():
            if path.is_relative_to(self.mount / place):
                raise OSError(number, os.strerror(number), str(path))

    @staticmethod
    def remove(group: Cgroup, limit_s: float = 0.0) -> bool:
        for folder in group.folders():
            shutil.rmtree(folder, ignore_errors=True)
        return True


@contextlib.contextmanager
def own_ground() -> Iterator[Cgroup]:
    """A real group for one test, empty, wherever this user may make one; skips the test where that is nowhere."""
    if os.getuid():
        pytest.skip("control groups are made for real by root only")
    bases, _ = made_groups._bases(own())
    mine = f"test-{os.getpid()}-{next(_numbers)}"  # of version 2 controllers it is one folder
    places = {name: bases[name].below(mine) for name in NAMES if name in bases}
    ground = Cgroup(places)
    try:
        ground.create()
        for place in places.values():
            if place.version == 2:
                enable(place.folder, [name for name in places if places[name] == place and name != UNIFIED])
    except OSError as error:
        made_groups.end(ground)
        pytest.skip(f"no control groups can be made here: {error.filename}: {error.strerror}")
    if not places:
        pytest.skip("this machine has no control groups")
    try:
        yield ground
        left = [str(path) for folder in ground.folders() for path in folder.iterdir() if path.is_dir()]
        assert left == [], "nothing may be left"
    finally:
        made_groups.end(ground)
