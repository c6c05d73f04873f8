"""GPUs side by side: the throughput of each job on each GPU, and a test that names the outliers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.special import stdtr

from benchsuite.report.measure.intervals import MIN_REPEATS, mean
from benchsuite.report.read.summary import Summary, Use
from benchsuite.report.show.format import count
from benchsuite.report.stats.causes import likely_cause
from benchsuite.report.stats.verdict import FAMILY_ERROR, holm

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MIN_GPUS = 3
MIN_EFFECT = 0.02
# The name of the test over all jobs together.
ALL_JOBS = "all jobs"


@dataclass(frozen=True, order=True)
class GpuKey:
    """The identity of a GPU; `index` is its place among the GPUs that the run could use."""

    host: str
    index: int
    uuid: str

    @property
    def short(self) -> str:
        """The index and the first digits of the UUID."""
        return f"{self.index} {self.uuid.removeprefix('GPU-')[:8]}"

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.uuid.removeprefix('GPU-')[:8]}) on {self.host}"


@dataclass(frozen=True)
class Cell:
    """A job on one GPU.

    Attributes:
        by_repeat: items/s in each repeat that is ok; the mean of copies.
        n: planned tasks.
        not_run: tasks without an outcome.
        unsteady: tasks whose window is not steady.
        uses: of the ok tasks.
    """

    by_repeat: Mapping[int, float] = field(default_factory=dict)
    n: int = 0
    fail: int = 0
    not_run: int = 0
    unsteady: int = 0
    uses: tuple[Use, ...] = ()

    @property
    def mean(self) -> float | None:
        return mean(self.by_repeat.values())

    @property
    def min(self) -> float | None:
        return min(self.by_repeat.values(), default=None)

    @property
    def max(self) -> float | None:
        return max(self.by_repeat.values(), default=None)


@dataclass(frozen=True)
class Deviation:
    """The relative difference of a GPU's rate from the median GPU's (-0.1: a tenth slower), with the test's p."""

    job: str
    effect: float
    p: float
    repeats: int


@dataclass(frozen=True)
class Outlier:
    """A GPU that differs from the others in these jobs, or in all jobs together, with likely causes."""

    gpu: GpuKey
    deviations: tuple[Deviation, ...]
    causes: tuple[str, ...]


@dataclass(frozen=True)
class GpuComparison:
    """The GPUs of a run side by side.

    Attributes:
        cells: job -> GPU -> cell, for the jobs that are placed on each GPU.
        untested: job -> reason why there is no test.
        tests: the number of tests.
    """

    gpus: tuple[GpuKey, ...]
    cells: Mapping[str, Mapping[GpuKey, Cell]]
    outliers: tuple[Outlier, ...]
    untested: Mapping[str, str]
    tests: int


def compare_gpus(summary: Summary) -> GpuComparison:
    """Compare the GPUs of a run, by the jobs that run on each of them.

    The figure of a GPU in a repeat is ln(rate / median over GPUs). The test is Student's t of its mean over repeats
    against 0, with the scatter over repeats pooled over GPUs (df = (GPUs - 1) (repeats - 1)), so that three repeats are
    enough. Over all tests of all jobs, and of their mean, the error is 5 % (Holm, 1979). Differences under 2 % are not
    reported.
    """
    tasks = _tasks(summary)
    cells, found = _cells(tasks), deviations(tasks)
    repeats = found.groupby(["job", "gpu"]).size().groupby("job").agg(list).to_dict()
    untested = {job: why for job in cells if (why := _why_untested(len(cells[job]), repeats.get(job, [])))}
    tests = _tests(_with_all_jobs(found[~found.index.isin(untested, level="job")]))
    by_gpu: dict[GpuKey, list[Deviation]] = defaultdict(list)
    for (gpu, one), p in zip(tests, holm(np.array([one.p for _, one in tests])), strict=True):
        if p <= FAMILY_ERROR and abs(one.effect) >= MIN_EFFECT:
            by_gpu[gpu].append(one)
    outliers = tuple(Outlier(gpu, tuple(by_gpu[gpu]), _causes(gpu, by_gpu[gpu], cells)) for gpu in sorted(by_gpu))
    return GpuComparison(tuple(sorted(set(tasks["gpu"]))), cells, outliers, untested, len(tests))


def _tasks(summary: Summary) -> DataFrame:
    """The tasks of the jobs that run on each GPU, with their `GpuKey` as column "gpu"."""
    from benchsuite.report.stats.frame import task_frame

    tasks = task_frame(summary)
    tasks = tasks[(tasks["devices"] == "each") & tasks["gpu_uuid"].notna()].fillna({"host": "an unknown host"})
    keys: Any = zip(tasks["host"], tasks["gpu_index"].tolist(), tasks["gpu_uuid"], strict=True)
    gpus: Any = [GpuKey(*key) for key in keys]
    return tasks.assign(gpu=gpus)


def _rates(tasks: DataFrame) -> Series:
    """Items/s by job, repeat and GPU; the mean of copies."""
    return tasks.groupby(["job", "repeat", "gpu"], sort=False)["perf"].mean().dropna()


def _cells(tasks: DataFrame) -> dict[str, dict[GpuKey, Cell]]:
    ok = tasks["status"] == "ok"
    counted = tasks.assign(n=1, fail=~ok & ~tasks["open"], unsteady=(~tasks["steady"]).fillna(False).astype(bool))
    counts = counted.groupby(["job", "gpu"], sort=False)[["n", "fail", "open", "unsteady"]].sum()
    uses = tasks[ok & tasks["use"].notna()].groupby(["job", "gpu"])["use"].agg(tuple).to_dict()
    rates: dict[Any, dict[int, float]] = defaultdict(dict)
    for (job, repeat, gpu), rate in cast("Iterable[Any]", _rates(tasks).items()):
        rates[job, gpu][repeat] = rate
    cells: dict[str, dict[GpuKey, Cell]] = defaultdict(dict)
    for key, n, fail, not_run, unsteady in cast("Iterable[Any]", counts.itertuples()):
        job, gpu = key
        cells[job][gpu] = Cell(rates[key], n, fail, not_run, unsteady, uses.get(key, ()))
    return cells


def deviations(tasks: DataFrame) -> Series:
    """ln(rate / the median GPU's) by job, repeat and GPU, in repeats in which at least three GPUs have a rate.

    Args:
        tasks: one row a task, with columns job, repeat, gpu and perf.
    """
    rates = _rates(tasks)
    rates = rates[rates > 0]
    rates = rates[rates.groupby(["job", "repeat"]).transform("size") >= MIN_GPUS]
    return (rates / rates.groupby(["job", "repeat"]).transform("median")).map(math.log)


def _why_untested(gpus: int, repeats: Sequence[int]) -> str | None:
    if gpus < MIN_GPUS:
        return f"{count(gpus, 'GPU')}, {MIN_GPUS} are needed"
    most, enough = max(repeats, default=0), sum(found >= MIN_REPEATS for found in repeats)
    if most < MIN_REPEATS:
        return f"{count(most, 'repeat')} with at least {MIN_GPUS} GPUs ok, {MIN_REPEATS} are needed"
    if enough < MIN_GPUS:
        return f"{count(enough, 'GPU')} with {MIN_REPEATS} repeats, {MIN_GPUS} are needed"
    return None


def _with_all_jobs(found: Series) -> Series:
    """The deviations, and for several jobs also those of `ALL_JOBS`.

    These are the mean of each GPU over the jobs in which it has all repeats, so that every repeat averages the same
    jobs.
    """
    from pandas import concat

    if found.index.get_level_values("job").nunique() < 2:
        return found
    complete = found.unstack("repeat").dropna()
    together: Any = complete.groupby("gpu").mean().unstack()  # by repeat and GPU, as `found`
    return cast("Series", concat([found, concat({ALL_JOBS: together}, names=["job"])]))


def _tests(found: Series) -> list[tuple[GpuKey, Deviation]]:
    """A test for each job and GPU with enough repeats, if the job has enough such GPUs."""
    figures = found.groupby(["job", "gpu"], sort=False).agg(["count", "mean", "var"]).query(f"count >= {MIN_REPEATS}")
    figures = figures[figures.groupby("job")["mean"].transform("size") >= MIN_GPUS]
    n, mean = figures["count"], figures["mean"]
    df = (n - 1).groupby("job").transform("sum") * (1 - 1 / n.groupby("job").transform("size"))
    squares = (figures["var"] * (n - 1)).groupby("job").transform("sum")
    # Without any scatter a mean of 0 gives 0 / 0: it is no deviation.
    p = (2 * stdtr(df, -(mean.abs() / np.sqrt(squares / df / n)))).fillna(1.0)
    each: Iterable[Any] = zip(figures.index, np.expm1(mean).tolist(), p.tolist(), n.tolist(), strict=True)
    return [(gpu, Deviation(job, *of_gpu)) for (job, gpu), *of_gpu in each]


def _causes(gpu: GpuKey, found: Sequence[Deviation], jobs: Mapping[str, Mapping[GpuKey, Cell]]) -> tuple[str, ...]:
    """The likely causes of a slower GPU, from the jobs in which it is slower; from all jobs if only `ALL_JOBS` is."""
    slower = [one.job for one in found if one.effect < 0]
    if not slower:
        return ()
    names = [name for name in slower if name in jobs] or list(jobs)
    here = [jobs[name] for name in names if gpu in jobs[name]]
    others = [[cell.uses for key, cell in cells.items() if key != gpu] for cells in here]
    signs = likely_cause([cells[gpu].uses for cells in here], others)
    unsteady, n = sum(cells[gpu].unsteady for cells in here), sum(cells[gpu].n for cells in here)
    # More than half: a single odd repeat is no cause.
    return (*signs, f"{unsteady} of its {count(n, 'window')} are not steady") if 2 * unsteady > n else signs
