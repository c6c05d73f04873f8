"""What a fleet keeps of a node's run: rates and telemetry by job and GPU, the score, and what machine it is.

A record is a few kilobytes, while the run has hundreds of tasks. Rates are medians over repeats, so that a single odd
repeat does not move them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchsuite.report.measure.intervals import Interval
from benchsuite.report.measure.intervals import mean as mean_known
from benchsuite.report.read.mixed import DRIVER, GPU, PROCESSOR, TORCH
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.use import Use
from benchsuite.report.stats.failures import Never
from benchsuite.report.stats.gpu_cells import Cell, GpuKey, gpu_cells
from benchsuite.report.stats.samples import repeat_rates
from benchsuite.report.stats.score import Score, score, without_penalty
from benchsuite.report.stats.weights import weigh, weights_for
from benchsuite.telemetry import CAPPED, SLOWING

Floats = NDArray[np.float64]
# The figures of telemetry that may explain a slow GPU: fields of `Use`, and shares of clock events.
GAUGES = (
    "temperature_c",
    "power_limit_w",
    "power_w",
    "sm_clock_mhz",
    "cpu_waiting",
    "cpu_throttled",
    "cpu_stolen",
    "pcie_rx_mib_s",
    "pcie_tx_mib_s",
    "sm_percent",
    "gpu_percent",
)
EVENTS = (*SLOWING, CAPPED)
_GIB = 1 << 30


@dataclass(frozen=True)
class NodeJob:
    """A job on a node. Its places are the node's GPUs, or the node as a whole if `each` is false.

    Attributes:
        logs: ln(items/s) of each place, median over repeats; NaN without a rate.
        ok: ok repeats of each place.
        fail, ended: tasks of each place.
        figures: means of `GAUGES` and `EVENTS` over ok tasks, of shape [places, figures]; NaN where not recorded.
        by_repeat: repeat -> ln(items/s), median over places.
        n: planned tasks.
        to_run: tasks that have not ended.
    """

    name: str
    workload: str | None
    unit: str | None
    each: bool
    logs: Floats
    ok: NDArray[np.int32]
    fail: NDArray[np.int32]
    ended: NDArray[np.int32]
    figures: NDArray[np.float32]
    by_repeat: Mapping[int, float]
    n: int
    to_run: int
    unsteady: int

    @property
    def log(self) -> float:
        """ln(items/s), median over places; NaN without a rate."""
        known = self.logs[np.isfinite(self.logs)]
        return float(np.median(known)) if len(known) else math.nan


@dataclass(frozen=True)
class NodeScore:
    """The score of a node: per GPU and of the machine, with the interval of its speed, and why there is none."""

    value: float | None
    machine: float | None
    speed: float | None
    interval: Interval | None
    reason: str | None
    fail: int
    n: int
    never: tuple[Never, ...]

    @classmethod
    def of(cls, found: Score) -> NodeScore:
        machine = None if found.never or found.partial else found.machine
        return cls(
            found.value, machine, found.speed, found.interval, found.reason, found.fail, found.n, found.never[:100]
        )


@dataclass(frozen=True)
class NodeRecord:
    """What a fleet keeps of a node.

    Attributes:
        problem: why the node has no results; all else is then empty.
        hardware, software: fact -> its value in words.
        gpus: the GPUs of its tasks, by index.
        repeats: planned repeats.
        bad_files: the number of files that cannot be used.
    """

    name: str
    folder: str
    problem: str | None = None
    host: str | None = None
    created: str | None = None
    in_progress: bool = False
    hardware: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[GpuKey, ...] = ()
    jobs: Mapping[str, NodeJob] = field(default_factory=dict)
    score: NodeScore | None = None
    repeats: int = 0
    bad_files: int = 0

    @property
    def n(self) -> int:
        return sum(job.n for job in self.jobs.values())

    @property
    def to_run(self) -> int:
        return sum(job.to_run for job in self.jobs.values())

    @property
    def fail(self) -> int:
        return sum(int(job.fail.sum()) for job in self.jobs.values())

    @property
    def unsteady(self) -> int:
        return sum(job.unsteady for job in self.jobs.values())

    @property
    def any_ok(self) -> bool:
        return any(int(job.ok.sum()) for job in self.jobs.values())


@dataclass(frozen=True)
class Scoring:
    """How nodes are scored: the options of a report."""

    weights: str | None = None
    penalized: bool = True
    partial: bool = False


def node_record(name: str, folder: str, summary: Summary, scoring: Scoring) -> NodeRecord:
    """Reduce a node's summary to its record.

    Raises:
        ProfileError: the weights do not fit.
    """
    if not summary.jobs:
        return NodeRecord(name, folder, problem=_why_empty(summary), bad_files=len(summary.bad_files))
    weighing = weigh(weights_for(summary.profile, scoring.weights), summary)
    scored = summary if scoring.penalized else without_penalty(summary)
    cells = gpu_cells(summary)
    gpus = tuple(sorted({gpu for of_job in cells.values() for gpu in of_job}))
    machine = summary.machine
    return NodeRecord(
        name=name,
        folder=folder,
        host=machine.host if machine else next(iter(summary.measured_with.get("host", ())), None),
        created=summary.created,
        in_progress=summary.in_progress,
        hardware=_hardware(summary),
        software=_software(summary),
        gpus=gpus,
        jobs={job.name: _job(job, cells.get(job.name), gpus) for job in summary.jobs},
        score=NodeScore.of(score(scored, weighing, penalized=scoring.penalized, partial=scoring.partial)),
        repeats=max((len(job.repeats) for job in summary.jobs), default=0),
        bad_files=len(summary.bad_files),
    )


def _why_empty(summary: Summary) -> str:
    """Why a run has no results, by its first file that cannot be used."""
    if not summary.bad_files:
        return "no results in its folder"
    first = summary.bad_files[0]
    more = f", and {len(summary.bad_files) - 1} more files" if len(summary.bad_files) > 1 else ""
    return f"no results that can be used: {first.file}: {first.reason}{more}"


def _hardware(summary: Summary) -> dict[str, str]:
    machine, facts = summary.machine, summary.measured_with
    found: dict[str, str | None] = {what: _words(facts.get(what, ())) for what in (GPU, PROCESSOR)}
    if machine:
        found[PROCESSOR] = found[PROCESSOR] or machine.cpu
        found["processors"] = f"{machine.cpus_usable}" if machine.cpus_usable else None
        # Two digits: firmware leaves equal nodes a little more or less.
        found["memory"] = f"{float(f'{machine.memory_bytes / _GIB:.2g}'):g} GiB" if machine.memory_bytes else None
    return {what: value for what, value in found.items() if value}


def _software(summary: Summary) -> dict[str, str]:
    machine, facts, code = summary.machine, summary.measured_with, summary.code
    found: dict[str, str | None] = {what: _words(facts.get(what, ())) for what in (DRIVER, TORCH)}
    if machine:
        found["kernel"] = machine.kernel
    if code:
        dirty = " (changed)" if code[0].dirty else ""
        found["benchsuite"] = f"{code[0].version} {(code[0].commit or '')[:8]}{dirty}".strip()
    if summary.profile:
        hashed = f" {summary.profile.sha256[:8]}" if summary.profile.sha256 else ""
        found["profile"] = f"{summary.profile.name}{hashed}"
    if summary.isolation:
        found["isolation"] = max(summary.isolation, key=lambda name: summary.isolation[name])
    return {what: value for what, value in found.items() if value}


def _words(values: Iterable[str]) -> str | None:
    return ", ".join(sorted(values)) or None


def _job(job: JobSummary, cells: Mapping[GpuKey, Cell] | None, gpus: Sequence[GpuKey]) -> NodeJob:
    each = cells is not None
    places = [cells.get(gpu, Cell()) for gpu in gpus] if cells is not None else [_whole(job)]
    return NodeJob(
        name=job.name,
        workload=job.workload,
        unit=job.unit,
        each=each,
        logs=np.array([_median_log(cell.by_repeat.values()) for cell in places]),
        ok=np.array([len(cell.by_repeat) for cell in places], dtype=np.int32),
        fail=np.array([cell.fail for cell in places], dtype=np.int32),
        ended=np.array([cell.ended for cell in places], dtype=np.int32),
        figures=np.array([_figures(cell.uses) for cell in places], dtype=np.float32),
        by_repeat=_by_repeat(places),
        n=job.n,
        to_run=job.to_run,
        unsteady=job.unsteady,
    )


def _whole(job: JobSummary) -> Cell:
    """All tasks of a job as one cell: a repeat's rate is the mean over its tasks."""
    uses = tuple(task.use for task in job.tasks if task.status == "ok" and task.use)
    rates = {repeat: rate for (_, repeat), rate in repeat_rates(job).items()}
    return Cell(rates, job.n, job.fail, job.to_run, job.unsteady, uses)


def _median_log(rates: Iterable[float]) -> float:
    known = sorted(rate for rate in rates if rate > 0)
    if not known:
        return math.nan
    low, high = known[(len(known) - 1) // 2], known[len(known) // 2]
    return (math.log(low) + math.log(high)) / 2


def _by_repeat(places: Sequence[Cell]) -> dict[int, float]:
    repeats = sorted({repeat for cell in places for repeat in cell.by_repeat})
    found = {r: _median_log(cell.by_repeat[r] for cell in places if r in cell.by_repeat) for r in repeats}
    return {repeat: log for repeat, log in found.items() if math.isfinite(log)}


def _figures(uses: Sequence[Use]) -> list[float]:
    gauges = [mean_known([getattr(use, name) for use in uses]) for name in GAUGES]
    events = [use.clock_events for use in uses if use.clock_events is not None]
    shares = [mean_known([of.get(name, 0.0) for of in events]) for name in EVENTS]
    return [math.nan if value is None else float(value) for value in (*gauges, *shares)]


def use_of(figures: NDArray[np.float32] | Floats) -> Use:
    """The figures of a place as a `Use`, as `causes.likely_cause` reads it."""
    values = [float(value) if math.isfinite(value) else None for value in figures]
    known = dict(zip(EVENTS, values[len(GAUGES) :], strict=True))
    events = {name: share for name, share in known.items() if share is not None}
    gauges: dict[str, Any] = dict(zip(GAUGES, values, strict=False))
    return Use(clock_events=events or None, **gauges)
