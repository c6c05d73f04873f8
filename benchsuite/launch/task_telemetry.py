"""What the monitor saw of a task: a summary of its measured part for the result, and all samples in a file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchsuite.errors import reason
from benchsuite.host.cpus import usable_cpus
from benchsuite.host.digest import Window, summarise, summarise_tenant
from benchsuite.host.kernel_files import descendants
from benchsuite.host.monitor import Monitor
from benchsuite.host.series import write_series
from benchsuite.launch.child import Child
from benchsuite.launch.context import RunContext, WaveContext
from benchsuite.rundir import RunDir, distinct_slug
from benchsuite.telemetry import Telemetry


@contextmanager
def telemetry(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
    """Drop the samples of a wave at its end; `follow` and `summary` are for each of its tasks."""
    yield wave
    run.monitor.trim(time.monotonic())


def follow(monitor: Monitor, child: Child) -> None:
    """Watch a started task's processes: those of its container, the members of its group, or its descendants."""
    tenant = child.tenant
    cpus = tenant.cpus or usable_cpus()
    if child.contained and child.contained.outside:
        monitor.follow(_key(child), child.contained.pids, cpus=cpus)
    elif tenant.grouped:
        memory_bytes, cpu_s = tenant.memory_in_use_bytes, tenant.cpu_s
        monitor.follow(_key(child), tenant.pids, memory_bytes=memory_bytes, cpu_s=cpu_s, cpus=cpus)
    else:
        monitor.follow(_key(child), partial(_family, child.tree.pid), cpus=cpus)


def _key(child: Child) -> str:
    """The name of a task's attempt in the monitor."""
    return f"{child.task.id}.a{child.attempt}"


def _family(pid: int) -> Sequence[int]:
    return [pid, *descendants(pid)]


def summary(monitor: Monitor, child: Child, rundir: RunDir) -> Telemetry:
    """The telemetry of a task's measured part, or of all its time if it measured nothing; the task is then forgotten.

    The samples of all its time go to `telemetry/`. If they cannot be written, a note says so.
    """
    began_s, now_s = child.started_s, time.monotonic()
    of_first = next((rank.slices for rank in child.seen.ranks if rank.slices), [])  # over nodes, not every rank is here
    measured = [s for s in of_first if s.slice.phase == "measure"]
    start_s, end_s = began_s, now_s
    if measured:
        start_s, end_s = measured[0].origin_s, measured[-1].origin_s + measured[-1].slice.end_s
    own = monitor.own_pids() | {os.getpid(), child.tree.pid}
    window = Window(start_s, end_s, monitor.every_s)
    devices = tuple(
        summarise(gpu, monitor.device_series(gpu.uuid, start_s, end_s), monitor.device_reasons(gpu.uuid), own, window)
        for gpu in child.task.gpus
    )
    name, reasons = _key(child), monitor.tenant_reasons(_key(child))
    seen = summarise_tenant(monitor.tenant_series(name, start_s, end_s), reasons)
    series, notes = f"telemetry/{distinct_slug(child.task.id)}.a{child.attempt}.jsonl", list(monitor.notes)
    raw = [(g, monitor.device_series(g.uuid, began_s, now_s), monitor.device_reasons(g.uuid)) for g in child.task.gpus]
    try:
        write_series(rundir.path / series, raw, monitor.tenant_series(name, began_s, now_s), reasons)
    except OSError as error:
        notes.append(f"the samples could not be kept: {reason(error)}")
        series = ""
    monitor.forget(name)
    return Telemetry(
        start_s=round(start_s, 6),
        end_s=round(end_s, 6),
        every_s=monitor.every_s,
        devices=devices,
        tenant=seen,
        series=series or None,
        notes=tuple(notes) if child.task.gpus else (),
    )
