"""GPUs side by side: what each job reaches on each of them, and a test that names one that falls out."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtr

from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import JobSummary, Summary, TaskSummary, Use
from benchsuite.report.show.format import count
from benchsuite.report.stats.causes import likely_cause
from benchsuite.report.stats.verdict import holm

MIN_GPUS = 3
MIN_EFFECT = 0.02
_FAMILY_ERROR = 0.05
# The name of the test over all jobs together.
ALL_JOBS = "all jobs"

# GPU -> repeat -> ln(its rate / the median GPU's).
_Deviations = Mapping["GpuKey", Mapping[int, float]]


@dataclass(frozen=True, order=True)
class GpuKey:
    """Which GPU; `index` is its place among those that the run could use."""

    host: str
    index: int
    uuid: str

    @property
    def short(self) -> str:
        """Its place and the beginning of its UUID."""
        return f"{self.index} {self.uuid.removeprefix('GPU-')[:8]}"

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.uuid.removeprefix('GPU-')[:8]}) on {self.host}"


@dataclass(frozen=True)
class Cell:
    """A job on one GPU: items/s in each repeat that is ok (of copies their mean), of `n` planned tasks; `unsteady`
    counts those whose window is not steady."""

    by_repeat: Mapping[int, float] = field(default_factory=dict)
    n: int = 0
    fail: int = 0
    not_run: int = 0
    unsteady: int = 0
    uses: tuple[Use, ...] = ()

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.by_repeat.values()) if self.by_repeat else None

    @property
    def min(self) -> float | None:
        return min(self.by_repeat.values(), default=None)

    @property
    def max(self) -> float | None:
        return max(self.by_repeat.values(), default=None)


@dataclass(frozen=True)
class Deviation:
    """By how much a GPU's rate differs from the median GPU's (-0.1: a tenth slower), with the test's p."""

    job: str
    effect: float
    p: float
    repeats: int


@dataclass(frozen=True)
class Outlier:
    """A GPU that falls out in these jobs (or in all together), with what its telemetry says of the cause."""

    gpu: GpuKey
    deviations: tuple[Deviation, ...]
    causes: tuple[str, ...]


@dataclass(frozen=True)
class GpuComparison:
    """`cells`: job -> GPU -> cell, for the jobs that are placed on each GPU. `untested`: job -> why there is no test;
    `tests`: how many there were."""

    gpus: tuple[GpuKey, ...]
    cells: Mapping[str, Mapping[GpuKey, Cell]]
    outliers: tuple[Outlier, ...]
    untested: Mapping[str, str]
    tests: int


def compare_gpus(summary: Summary) -> GpuComparison:
    """Set the GPUs of a run side by side, by the jobs that run on each of them.

    The figure of a GPU in a repeat is ln(rate / median over GPUs); the test is Student's t of its mean over repeats
    against 0, with the scatter over repeats pooled over GPUs (df = (GPUs - 1) (repeats - 1)), so that three repeats can
    tell. Over all tests of all jobs, and of their mean, the error is 5 % (Holm, 1979); less than 2 % is no matter.
    """
    jobs = {job.name: _cells(job, summary) for job in summary.jobs if job.devices == "each"}
    jobs = {name: cells for name, cells in jobs.items() if cells}
    gpus = tuple(sorted({gpu for cells in jobs.values() for gpu in cells}))
    untested = {name: why for name, cells in jobs.items() if (why := _why_untested(cells))}
    tested = {name: deviations(cells) for name, cells in jobs.items() if name not in untested}
    if len(tested) > 1:
        tested[ALL_JOBS] = _over_jobs(list(tested.values()))
    found = [(gpu, one) for name, of in tested.items() for gpu, one in _tests(name, of)]
    by_gpu: dict[GpuKey, list[Deviation]] = defaultdict(list)
    for gpu, one in _holm(found):
        if abs(one.effect) >= MIN_EFFECT:
            by_gpu[gpu].append(one)
    outliers = tuple(Outlier(gpu, tuple(by_gpu[gpu]), _causes(gpu, by_gpu[gpu], jobs)) for gpu in sorted(by_gpu))
    return GpuComparison(gpus, jobs, outliers, untested, len(found))


def deviations(cells: Mapping[GpuKey, Cell]) -> _Deviations:
    """Of each GPU in each repeat in which at least three have a rate."""
    repeats = sorted({repeat for cell in cells.values() for repeat in cell.by_repeat})
    found: dict[GpuKey, dict[int, float]] = defaultdict(dict)
    for repeat in repeats:
        rates = {gpu: cell.by_repeat[repeat] for gpu, cell in cells.items() if cell.by_repeat.get(repeat)}
        if len(rates) >= MIN_GPUS:
            usual = statistics.median(rates.values())
            for gpu, rate in rates.items():
                found[gpu][repeat] = math.log(rate / usual)
    return found


def _cells(job: JobSummary, summary: Summary) -> dict[GpuKey, Cell]:
    here = summary.machine.host if summary.machine else "an unknown host"
    tasks: dict[GpuKey, list[TaskSummary]] = defaultdict(list)
    for task in job.tasks:
        if len(task.gpus) == 1:
            tasks[GpuKey(task.host or here, task.gpus[0].index, task.gpus[0].uuid)].append(task)
    return {gpu: _cell(of_gpu) for gpu, of_gpu in tasks.items()}


def _cell(tasks: Sequence[TaskSummary]) -> Cell:
    rates: dict[int, list[float]] = defaultdict(list)
    for task in tasks:
        if task.perf is not None:
            rates[task.repeat].append(task.perf)
    ok, not_run = sum(task.status == "ok" for task in tasks), sum(task.status in OPEN for task in tasks)
    return Cell(
        by_repeat={repeat: statistics.fmean(of) for repeat, of in rates.items()},
        n=len(tasks),
        fail=len(tasks) - ok - not_run,
        not_run=not_run,
        unsteady=sum(task.steady is False for task in tasks),
        uses=tuple(task.use for task in tasks if task.status == "ok" and task.use),
    )


def _why_untested(cells: Mapping[GpuKey, Cell]) -> str | None:
    if len(cells) < MIN_GPUS:
        return f"{count(len(cells), 'GPU')}, {MIN_GPUS} are needed"
    repeats = [len(of) for of in deviations(cells).values()]
    most, enough = max(repeats, default=0), sum(found >= MIN_REPEATS for found in repeats)
    if most < MIN_REPEATS:
        return f"{count(most, 'repeat')} with at least {MIN_GPUS} GPUs ok, {MIN_REPEATS} are needed"
    if enough < MIN_GPUS:
        return f"{count(enough, 'GPU')} with {MIN_REPEATS} repeats, {MIN_GPUS} are needed"
    return None


def _over_jobs(jobs: Sequence[_Deviations]) -> _Deviations:
    """Of each GPU the mean over the jobs in which it has all repeats, so that every repeat averages the same ones."""
    repeats = {repeat for of in jobs for by_repeat in of.values() for repeat in by_repeat}
    found: dict[GpuKey, dict[int, float]] = {}
    for gpu in {gpu for of in jobs for gpu in of}:
        complete = [of[gpu] for of in jobs if gpu in of and of[gpu].keys() == repeats]
        if complete:
            found[gpu] = {repeat: statistics.fmean(of[repeat] for of in complete) for repeat in repeats}
    return found


def _tests(job: str, found: _Deviations) -> list[tuple[GpuKey, Deviation]]:
    enough = {gpu: list(of.values()) for gpu, of in found.items() if len(of) >= MIN_REPEATS}
    if len(enough) < MIN_GPUS:
        return []
    squares = math.fsum(statistics.pvariance(of) * len(of) for of in enough.values())
    df = sum(len(of) - 1 for of in enough.values()) * (1 - 1 / len(enough))
    tests = []
    for gpu, of in enough.items():
        mean = statistics.fmean(of)
        error = math.sqrt(squares / df / len(of))
        p = 2 * float(stdtr(df, -abs(mean) / error)) if error else float(mean == 0)
        tests.append((gpu, Deviation(job, math.expm1(mean), p, len(of))))
    return tests


def _holm(tests: Sequence[tuple[GpuKey, Deviation]]) -> list[tuple[GpuKey, Deviation]]:
    """Those that stand, in their order."""
    adjusted = holm(np.array([one.p for _, one in tests]))
    return [test for test, p in zip(tests, adjusted, strict=True) if p <= _FAMILY_ERROR]


def _causes(gpu: GpuKey, found: Sequence[Deviation], jobs: Mapping[str, Mapping[GpuKey, Cell]]) -> tuple[str, ...]:
    """By the jobs in which it is slower; by all where it is so only over all. None for one that is faster."""
    slower = [one.job for one in found if one.effect < 0]
    if not slower:
        return ()
    names = [name for name in slower if name in jobs] or list(jobs)
    here = [jobs[name] for name in names if gpu in jobs[name]]
    others = [[cell.uses for key, cell in cells.items() if key != gpu] for cells in here]
    signs = likely_cause([cells[gpu].uses for cells in here], others)
    unsteady, n = sum(cells[gpu].unsteady for cells in here), sum(cells[gpu].n for cells in here)
    # More than half, so that it is not one odd repeat.
    return (*signs, f"{unsteady} of its {count(n, 'window')} are not steady") if 2 * unsteady > n else signs
