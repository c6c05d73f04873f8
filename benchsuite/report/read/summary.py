"""The kept summary: what every report, comparison and baseline reads. Schema 1.

A results folder becomes one (`summarise`); a published baseline is one too, and may then lack tasks and repeats.
Rates are in items/s; `perf` of a progression is per GPU of its group.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, Literal

from benchsuite.errors import OutputError, ResultError, one_line
from benchsuite.records import Code, DataUsed, Machine
from benchsuite.report.measure.intervals import Interval
from benchsuite.rundir import read_record
from benchsuite.schema import SCHEMA, Record, to_json
from benchsuite.writing import write_new


class ProfileRef(Record, frozen=True, kw_only=True):
    """Which profile a run used, without its text; null where no run.json tells."""

    name: str
    sha256: str | None = None
    official: bool | None = None
    based_on: str | None = None
    differences: tuple[str, ...] = ()


class Use(Record, frozen=True, kw_only=True):
    """How GPUs, memory and CPUs were used in the measured part; null is what nothing tells.

    Of a task the mean over its GPUs, of a job the mean over its ok `tasks` that tell. The percentages are of time
    (`gpu_percent`: any kernel ran) or of what the chip can do (`sm_percent`, `tensor_percent`), by NVML and its GPM.
    `power_w` is of one GPU, by its energy counter where it has one. `items_per_joule` is throughput over the power of
    all GPUs together by that counter: the window's rate, the measured part's power. `device_reserved_bytes` is the peak
    of one GPU (the largest), `host_rss_bytes` that of a task, its ranks added up. `clock_events`: share of the watched
    `watched_s` seconds (over GPUs) under each reason why clocks were not at their highest; null where nobody watched.
    `cpu_waiting`, `cpu_throttled`: share of the task's time in which some of its processes waited for a CPU (PSI), and
    in which the run's CPU quota held them back. `cpu_stolen`: of the time in which the task's processors had work, the
    share in which a hypervisor did not let them run (steal).
    """

    tasks: int = 1
    gpu_percent: float | None = None
    sm_percent: float | None = None
    tensor_percent: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    items_per_joule: float | None = None
    device_reserved_bytes: int | None = None
    host_rss_bytes: int | None = None
    clock_events: dict[str, float] | None = None
    watched_s: float | None = None
    cpu_waiting: float | None = None
    cpu_throttled: float | None = None
    cpu_stolen: float | None = None


class StdParts(Record, frozen=True, kw_only=True):
    """What std% is made of, each relative to the mean of the tasks concerned; null where there is one GPU or repeat.

    `gpus` is the population standard deviation of the GPUs' means, `repeats` that of the repeats' means, `rest` that of
    what both leave; their squares add up to that of the whole. They rest on the `complete` repeats in which every GPU
    (or copy) that was ever ok is.
    """

    gpus: float | None = None
    repeats: float | None = None
    rest: float | None = None
    complete: int = 0


class TaskGpu(Record, frozen=True, kw_only=True):
    """A GPU of a task."""

    index: int
    uuid: str


class TaskSummary(Record, frozen=True, kw_only=True):
    """One planned task. `status`: a result's, "insufficient", "not run" or "running"; `reason` why it is not ok.

    `slices`, `items` and `seconds` are of its window; `file` is the result's name. `workload` is the SHA-256 of what
    is trained: model, parameters, precision, compilation, data; null where another program does not tell. `spread`,
    `drift` (of the rate, per 10 s; both with the half width of their 95 % intervals), `settled_s` (since go; 0: from
    the first slice) and `change` are those of `steadiness.Steadiness`, and `unsteady` says what makes the window not
    steady. `perf_unthrottled`: over the slices of the window without thermal or hardware slow-down, null where nothing
    was slowed or `unthrottled_reason` says why.
    """

    id: str
    host: str | None = None
    repeat: int
    cell: str | None = None
    copy: int = 0
    attempt: int | None = None
    device: str
    status: str
    reason: str | None = None
    workload: str | None = None
    perf: float | None = None
    slices: int = 0
    dropped: int = 0
    items: int = 0
    seconds: float = 0.0
    spread: float | None = None
    spread_half: float | None = None
    drift: float | None = None
    drift_half: float | None = None
    settled_s: float | None = None
    change: float | None = None
    steady: bool | None = None
    unsteady: tuple[str, ...] = ()
    perf_unthrottled: float | None = None
    unthrottled_reason: str | None = None
    gpus: tuple[TaskGpu, ...] = ()
    use: Use | None = None
    file: str | None = None


class Repeat(Record, frozen=True, kw_only=True):
    """A job in one repeat: planned tasks, those ok, and the mean of their perfs."""

    repeat: int
    tasks: int
    ok: int
    perf: float | None = None


class GpuSummary(Record, frozen=True, kw_only=True):
    """A job on one GPU, where another program published that and no tasks. `n` samples; `std` is relative to `perf`."""

    gpu: str
    n: int
    perf: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None


class JobSummary(Record, frozen=True, kw_only=True):
    """One job (one cell, one number of GPUs).

    `n` counts planned tasks and `fail` those that ended otherwise than ok, or, `not_run` of them, never ended. While
    the run is in progress the latter are `to_run` instead, and no failures.
    `std` is relative to `perf`, null for one task or a perf of 0. `min`, `max` are of tasks. `slices` and `seconds`
    are what perf rests on, over all tasks; `unsteady` counts ok tasks whose window is not steady. `group_gpus`: perf
    is per GPU of a group of so many. `unit_factor` converts the rates of an older baseline to today's unit;
    `excluded` says why the job cannot be compared at all. `batch_size` is the one found for a job that asks for `auto`.
    Of a group of `ranks`: `batch_each` is the batch of one, `backend` the library by which they talk.
    `peak_memory_bytes` is a device's, the largest of all tasks; `gpus` only where no tasks are kept.
    `perf_unthrottled`: as perf, of each task that was slowed by heat or hardware only the slices without; null where
    none was slowed, or where one has no such figure.
    `settings` is what was asked, by field, `data_used` what its tasks read: they say how two runs differ. `unlike`: how
    tasks differ from the first in what they train, old -> new, so that the figures are of unlike work.
    """

    name: str
    unit: str | None = None
    devices: str = "each"
    group_gpus: int = 1
    n: int
    fail: int
    not_run: int = 0
    to_run: int = 0
    perf: float | None = None
    std: float | None = None
    std_parts: StdParts | None = None
    perf_adj: float
    min: float | None = None
    max: float | None = None
    interval: Interval | None = None
    slices: int = 0
    seconds: float = 0.0
    unsteady: int = 0
    perf_unthrottled: float | None = None
    use: Use | None = None
    workload: str | None = None
    unlike: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    data_used: tuple[DataUsed, ...] = ()
    batch_size: int | None = None
    ranks: int = 1
    batch_each: int | None = None
    backend: str | None = None
    peak_memory_bytes: int | None = None
    gpus: tuple[GpuSummary, ...] = ()
    unit_factor: float | None = None
    excluded: str | None = None
    repeats: tuple[Repeat, ...] = ()
    tasks: tuple[TaskSummary, ...] = ()

    @property
    def ended(self) -> int:
        """The tasks that `fail` is out of: all planned ones, but for those that a run in progress has yet to end."""
        return self.n - self.to_run


class RerunSummary(Record, frozen=True, kw_only=True):
    """A rerun beside its original, `of` being the original's file name; never part of n, perf or score."""

    task: TaskSummary
    of: str
    original_perf: float | None = None
    changes: tuple[str, ...] = ()


class BadFile(Record, frozen=True, kw_only=True):
    file: str
    reason: str


class Summary(Record, frozen=True, kw_only=True):
    """All jobs of a run, and what stands beside their score.

    `planned`: n counts planned tasks; else only the results that were found. `isolation` and `data`: each setting that
    was in force, with its number of tasks. `overlap`: the least share of any task's window in which all others of its
    wave (a job in one repeat) trained too; null where no wave has two. `in_progress`: made while the run went on.
    `origin`: the other program whose files were read, where items are still counted as that program did.
    """

    schema: int = SCHEMA
    kind: Literal["summary"] = "summary"
    source: str
    origin: str | None = None
    created: str | None = None
    provenance: str | None = None
    planned: bool = True
    in_progress: bool = False
    profile: ProfileRef | None = None
    machine: Machine | None = None
    code: tuple[Code, ...] = ()
    gpus_used: int = 0
    isolation: dict[str, int] = {}
    data: dict[str, int] = {}
    overlap: float | None = None
    jobs: tuple[JobSummary, ...]
    reruns: tuple[RerunSummary, ...] = ()
    bad_files: tuple[BadFile, ...] = ()

    @property
    def gpus_present(self) -> int | None:
        """How many GPUs the machine has; None where no run.json tells."""
        return len(self.machine.gpus) if self.machine else None

    @property
    def any_ok(self) -> bool:
        """Whether any task, or a rerun, has a throughput."""
        return any(job.perf is not None for job in self.jobs) or any(r.task.status == "ok" for r in self.reruns)


def read_summary(path: Path) -> Summary:
    """Raises ResultError: unreadable, not a summary, or with figures that cannot be."""
    summary = read_record(path, Summary)
    for job in summary.jobs:
        if reason := _impossible(job):
            raise ResultError(f"{path}: job '{one_line(job.name)}': {reason}; name a summary as it was written")
    return summary


def _impossible(job: JobSummary) -> str | None:
    """What no run can have measured."""
    if not 0 <= job.fail <= job.n or not 0 <= job.to_run <= job.n:
        return f"fail {job.fail} and to_run {job.to_run} of n {job.n}"
    if job.perf is not None and job.perf < 0:
        return f"perf {job.perf:g} is below 0"
    if not 0 <= job.perf_adj <= (job.perf or 0.0) * (1 + 1e-9):
        return f"perf_adj {job.perf_adj:g} does not lie between 0 and perf"
    if job.unit_factor is not None and job.unit_factor <= 0:
        return f"unit_factor {job.unit_factor:g} is not above 0"
    return None


def write_summary(path: Path, summary: Summary) -> None:
    """Write a summary to a new file.

    Raises:
        OutputError: the file exists already, or cannot be written.
    """
    try:
        write_new(path, to_json(summary, indent=2))
    except FileExistsError:
        raise OutputError(f"{path}: exists already; name another file with -o") from None
    except OSError as error:
        why = "no such folder" if error.errno == errno.ENOENT else (error.strerror or str(error)).lower()
        raise OutputError(f"{path}: cannot be written: {why}; name another file with -o") from None
