"""Find out what this machine is: its usable GPUs, processor, memory and versions, and which code runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import msgspec

from benchsuite import __version__
from benchsuite.host import cards, cpus, kernel_files, repository
from benchsuite.host.visible import visible
from benchsuite.measurement import read_boot_id, read_host
from benchsuite.records import Code, Machine
from benchsuite.schema import Record

_PACKAGES = ("torch", "torchvision", "triton", "numpy", "msgspec", "nvidia-ml-py", "gymnasium", "psutil", "pyyaml")

# hatch_build.py writes it into a wheel.
BUILT_FROM = Path("share/code.json")


class _BuiltFrom(Record, frozen=True):
    """The commit of the checkout from which the package was built."""

    commit: str
    dirty: bool | None = None


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
    """The version; the commit if the package runs from a checkout, or was built from one."""
    package = Path(__file__).resolve().parents[1]
    commit, dirty = repository.commit_and_dirty(package.parent)
    if commit:
        return Code(version=__version__, commit=commit, dirty=dirty)
    try:
        built = msgspec.json.decode((package / BUILT_FROM).read_bytes(), type=_BuiltFrom)
    except (OSError, msgspec.DecodeError):
        return Code(version=__version__)
    return Code(version=__version__, commit=built.commit, dirty=built.dirty)


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
