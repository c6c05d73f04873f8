"""Checks of the host: processors, memory, limits, disks, and installed packages."""

from __future__ import annotations

import importlib.util
import os
import resource
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from benchsuite.data import descriptor, store
from benchsuite.describe import entries
from benchsuite.describe import profile as profiles
from benchsuite.errors import one_line
from benchsuite.findings import Finding, bad, note, ok
from benchsuite.host import cpus, kernel_files, steal
from benchsuite.isolation.fencing import Fencing
from benchsuite.telemetry import STOLEN_LIMIT, stolen_share

GIB = 1 << 30
SHM = Path("/dev") / "shm"
# A CUDA loader with worker processes shares its batches through /dev/shm.
SHM_PER_TASK_BYTES = 1 * GIB
MEMORY_PER_TASK_BYTES = 8 * GIB
RESULTS_BYTES = 1 * GIB
OPEN_FILES = 4096
BUSY_SHARE = 0.1


def fence_findings(tasks: int, root: Path = Path("/")) -> Iterator[Finding]:
    """The isolation that is possible for `tasks` tasks at a time, found by setting it up."""
    fencing = Fencing.choose("auto", require=False, largest=tasks, sweep=False, root=root)
    try:
        found = fencing.describe()
    finally:
        fencing.close()
    if fencing.unknown:
        remedy = "mount /proc and /sys/fs/cgroup as the kernel gives them"
        yield note("limits", "; ".join(fencing.unknown), remedy)
    count = cpus.usable_count(root)
    if count < tasks:
        text = f"{tasks} tasks side by side are more than {count} usable processors: they share processors"
        yield note("isolation", text, "give the container more processors, or make fewer GPUs visible")
    text = f"CPU {found.cpu}, memory {found.memory} ({found.reason})"
    if found.cpu in ("none", "affinity") or found.memory == "none":
        remedy = "sudo scripts/cgroup_setup.sh prepares groups once; or run as root, or below a delegated cgroup"
        yield note("isolation", text, remedy)
    else:
        yield ok("isolation", text)


def cpu_findings(root: Path = Path("/")) -> Iterator[Finding]:
    """The processors of this process, their governor, and the load of other programs."""
    usable, count = cpus.usable_cpus(root=root), cpus.usable_count(root=root)
    present = os.cpu_count() or 1
    if count < len(usable):
        text = f"a quota leaves {count} of {len(usable)} processors: tasks are throttled when they use more"
        yield note("processors", text, "give the container whole processors (a cpuset) instead of a quota")
    else:
        yield ok("processors", f"{count} of {present} may be used")
    governors = set()
    for file in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"):
        if governor := kernel_files.read(file):
            governors.add(one_line(governor))
    if not governors:
        yield ok("governor", "not reported, as on virtual machines")
    elif governors == {"performance"}:
        yield ok("governor", "performance")
    else:
        remedy = "sudo cpupower frequency-set -g performance"
        yield note("governor", f"{', '.join(sorted(governors))}: clocks follow the load", remedy)
    stolen = _stolen_share(root)
    if stolen is None:
        yield note("stolen CPU", "not known: the kernel does not report CPU times", "make /proc/stat readable")
    elif stolen >= STOLEN_LIMIT:
        text = f"a hypervisor withheld {100 * stolen:.1f} % of the processor time that programs wanted since boot"
        yield note("stolen CPU", text, "measure on a host of its own, or take more repeats")
    try:
        load = os.getloadavg()[0]
    except OSError:
        yield note(
            "load", "not known: the kernel does not report it", "check by other means that no other program is busy"
        )
        return
    if load > max(1.0, BUSY_SHARE * count):
        yield note("load", f"{load:.1f} processors were busy over the last minute", "let other work end first")


def _stolen_share(root: Path) -> float | None:
    """Share of the time since boot that a hypervisor withheld; None if the kernel does not report it."""
    times = steal.processor_times(root)
    total = steal.together(times, times)
    return stolen_share(*total) if total else None


def memory_findings(tasks: int, root: Path = Path("/")) -> Iterator[Finding]:
    """Memory, shared memory and open files for `tasks` tasks at a time."""
    memory = cpus.memory(root=root)
    available, total = (_gib(size) for size in (memory.available_bytes, memory.total_bytes))
    text = f"{available} of {total} GiB available ({memory.source})"
    if memory.available_bytes is None:
        yield note("memory", f"{text}: the kernel does not report it", "make /proc/meminfo readable")
    elif memory.available_bytes < MEMORY_PER_TASK_BYTES * tasks:
        yield note("memory", text, f"{MEMORY_PER_TASK_BYTES // GIB} GiB a task are safe; give the container more")
    else:
        yield ok("memory", text)
    if SHM.is_dir():
        shm_bytes = shutil.disk_usage(SHM).total
        text = f"{SHM} holds {shm_bytes / GIB:.1f} GiB"
        if shm_bytes < SHM_PER_TASK_BYTES * tasks:
            text = f"{text}: loaders with workers would fail"
            yield bad("shared memory", text, "docker run --ipc host, or --shm-size 16g")
        else:
            yield ok("shared memory", text)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
        yield note("open files", f"limited to {soft}", f"ulimit -n {OPEN_FILES}")
    else:
        yield ok("open files", "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft}")


def _gib(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / GIB:.1f}"


def disk_findings(results: Path) -> Iterator[Finding]:
    """Free space for results."""
    place = next(p for p in (results.resolve(), *results.resolve().parents) if p.exists())
    free_bytes = shutil.disk_usage(place).free
    text = f"{free_bytes / GIB:.1f} GiB free for results in {place}"
    if free_bytes < RESULTS_BYTES:
        yield bad("disk", text, "make room, or set BENCHSUITE_OUT to another disk")
    elif not os.access(place, os.W_OK):
        yield bad("disk", f"{place} cannot be written to", "set BENCHSUITE_OUT to a folder of yours")
    else:
        yield ok("disk", text)


def data_findings(folder: Path) -> Iterator[Finding]:
    """The data sets of the standard profile, checked by their markers and the names and sizes of their files."""
    wanted = list(dict.fromkeys(job.data for job in profiles.load("standard").jobs if job.data))
    if not folder.is_dir():
        remedy = f"mkdir -p {shlex.quote(str(folder))}, then benchsuite prepare --profile standard"
        yield note("data", f"no folder {folder}: jobs that read data sets would fail", remedy)
        return
    found = [store.look(folder, descriptor.load(name)) for name in wanted]
    ready = [f"{f.name} ({f.reason.partition(' files')[0]} files)" for f in found if f.prepared]
    free = f"{shutil.disk_usage(folder).free / GIB:.1f} GiB free"
    text = f"{len(ready)} of {len(wanted)} data sets of the standard profile are ready below {folder.resolve()}, {free}"
    yield ok("data", f"{text}{': ' if ready else ''}{', '.join(ready)}")
    missing = [f.name for f in found if f.state == "missing"]
    if missing:
        remedy = f"benchsuite prepare {' '.join(missing)} -d {shlex.quote(str(folder))}"
        yield note(
            "data",
            f"missing: {', '.join(missing)}; jobs that read them would fail",
            f"{remedy}, with --synthetic to generate them",
        )
    for one in found:
        if one.state in ("incomplete", "damaged"):
            yield bad("data", f"{one.name} is {one.state}: {one.reason}", one.command)


def extras_findings() -> Iterator[Finding]:
    """Packages that some models need and that are not installed."""
    missing: dict[str, list[str]] = {}
    for name in entries.names():
        for package in entries.declared(name, None).missing():
            missing.setdefault(package, []).append(name)
    for package, models in missing.items():
        text = f"{', '.join(models)} cannot run: jobs with them are skipped"
        yield bad("extras", text, f"pip install {shlex.quote(package)}")
    if not missing:
        yield ok("extras", "every shipped model can be imported")


def start_findings(package: str = "torch") -> Iterator[Finding]:
    """Does each process compile torch's Python files anew? Container images often hold no compiled files."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return
    compiled = Path(importlib.util.cache_from_source(found.origin))
    place = next((p for p in compiled.parents if p.exists()), Path("/"))
    if compiled.exists() or (not sys.dont_write_bytecode and os.access(place, os.W_OK)):
        return
    why = "PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else f"{place} cannot be written to"
    text = f"each task compiles {package}'s Python files anew ({why}): seconds more, untimed"
    remedy = "export PYTHONPYCACHEPREFIX=$HOME/.cache/pycache"
    yield note("start", text, f"unset PYTHONDONTWRITEBYTECODE; {remedy}" if sys.dont_write_bytecode else remedy)
