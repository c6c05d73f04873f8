"""Find out what this machine is: its usable GPUs, processor, memory and versions, and which code runs."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from benchsuite import __version__
from benchsuite.host import cards, cpus, kernel_files
from benchsuite.host.visible import visible
from benchsuite.measurement import read_boot_id, read_host
from benchsuite.records import Code, Machine

_PACKAGES = ("torch", "torchvision", "triton", "numpy", "msgspec", "nvidia-ml-py", "gymnasium", "psutil", "pyyaml")


def describe(environ: Mapping[str, str]) -> Machine:
    """This machine as it is now, for `run.json`."""
    present, note = cards.gpus()
    usable, why_not = visible(present, environ)
    return Machine(
        host=read_host(),
        boot_id=read_boot_id(),
        system=_system(),
        kernel=platform.release(),
        cpu=_cpu_model(),
        cpus=os.cpu_count() or 1,
        cpus_usable=len(os.sched_getaffinity(0)),
        memory_bytes=cpus.host_memory_bytes(),
        driver=cards.driver(),
        gpus=tuple(present),
        visible=tuple(g.uuid for g in usable),
        gpu_note="; ".join(why for why in (note, why_not) if why) or None,
        python=platform.python_version(),
        packages={name: version for name in _PACKAGES if (version := _version(name))},
    )


def code() -> Code:
    """The version, and the commit if the package runs from a git checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return Code(version=__version__)
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", "benchsuite", "profiles", "weights")
    return Code(version=__version__, commit=commit or None, dirty=None if changed is None else bool(changed))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except (OSError, ValueError):  # ValueError: the file is not UTF-8
        return platform.system()


def _cpu_model() -> str:
    for line in kernel_files.lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
