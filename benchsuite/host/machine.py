"""Find out what this machine is: its usable GPUs, processor, memory and versions, and which code runs."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from benchsuite import __version__
from benchsuite.describe.tasks import Gpu
from benchsuite.host import cpus, cuda_order, kernel_files, nvml
from benchsuite.measurement import read_boot_id, read_host
from benchsuite.records import Code, Machine

_PACKAGES = ("torch", "torchvision", "triton", "numpy", "msgspec", "nvidia-ml-py", "gymnasium", "psutil", "pyyaml")


def describe(environ: Mapping[str, str]) -> Machine:
    """This machine as it is now, for `run.json`."""
    present, note = nvml.gpus()
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
        driver=nvml.driver(),
        gpus=tuple(present),
        visible=tuple(g.uuid for g in usable),
        gpu_note=note or why_not,
        python=platform.python_version(),
        packages={name: version for name in _PACKAGES if (version := _version(name))},
    )


def visible(present: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[list[Gpu], str | None]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, in its order, numbered from 0; all in PCI order if it is unset.

    As in CUDA, the list ends at the first entry that names no GPU, and the second value names that entry. A UUID may be
    abbreviated if it stays unique. Numbers are places in PCI order, which workers use as well. If the user chose CUDA's
    own order and the GPUs differ in model, CUDA itself is asked for its numbers.
    """
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return [msgspec.structs.replace(g, visible_index=i) for i, g in enumerate(present)], None
    entries = [part.strip() for part in wanted.split(",")]
    numbers = {g.nvml_index: g for g in present}
    if cuda_order.differs(present, environ) and any(entry.isdecimal() for entry in entries):
        asked = cuda_order.numbered(present, environ)
        if isinstance(asked, str):
            remedy = "name the GPUs by UUID, or unset CUDA_DEVICE_ORDER"
            return [], f"CUDA_VISIBLE_DEVICES={wanted!r} numbers the GPUs in CUDA's own order, but {asked}; {remedy}"
        numbers = asked
    chosen: list[Gpu] = []
    for entry in entries:
        matches = _named(entry, present, numbers)
        if len(matches) != 1 or matches[0] in chosen:
            reason = f"CUDA_VISIBLE_DEVICES={wanted!r} "
            reason += f"names no GPU of this machine at {entry!r}" if entry else "hides all GPUs"
            return _numbered(chosen), reason
        chosen.append(matches[0])
    return _numbered(chosen), None


def _numbered(gpus: Sequence[Gpu]) -> list[Gpu]:
    return [msgspec.structs.replace(g, visible_index=i) for i, g in enumerate(gpus)]


def _named(entry: str, present: Sequence[Gpu], numbers: Mapping[int, Gpu]) -> list[Gpu]:
    if entry.isdecimal():
        return [numbers[int(entry)]] if int(entry) in numbers else []
    return [g for g in present if entry.startswith("GPU-") and g.uuid.startswith(entry)]


def facts_sha256(machine: Machine) -> str:
    """The hash that identifies the machine facts of a run in its results."""
    return hashlib.sha256(msgspec.json.encode(machine, order="deterministic")).hexdigest()


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
