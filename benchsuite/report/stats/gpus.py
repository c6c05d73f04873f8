"""GPUs side by side: which GPUs are slower or faster than the others, which fail, and which could not be tested."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchsuite.report.format import count
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.summary import Summary
from benchsuite.report.stats.causes import NO_TELEMETRY, NOTHING_DIFFERS, likely_cause
from benchsuite.report.stats.gpu_cells import Cells, GpuKey, gpu_cells
from benchsuite.report.stats.gpu_failures import FailingGpu, failing_gpus
from benchsuite.report.stats.gpu_tests import MIN_GPUS, Floats, SpeedTests, compare_speeds, smallest_effects

# The name of the test over all jobs together.
ALL_JOBS = "all jobs"
# A GPU that deviates by this much without a significant test is a suspect.
SUSPECT_EFFECT = 0.05
SUSPECT_EFFECT_ALL = 0.02
# A test that is done must be significant by itself, without the adjustment; else noise alone makes many suspects.
SUSPECT_P = 0.1


@dataclass(frozen=True)
class Deviation:
    """The relative difference of a GPU's rate from the median GPU's (-0.1: a tenth slower).

    Attributes:
        p: of this test alone; None without a test.
        adjusted: after Holm's adjustment over the family of tests: significant if at most 0.05.
        repeats: the number of repeats with a figure.
        decides: about the number of repeats at which the same effect would be significant; None if the effect is
            significant, or if the number is above 1,000.
    """

    job: str
    effect: float
    p: float | None
    adjusted: float | None
    repeats: int
    decides: int | None = None


@dataclass(frozen=True)
class Outlier:
    """A GPU that differs from the others in these jobs, or in all jobs together, with likely causes."""

    gpu: GpuKey
    deviations: tuple[Deviation, ...]
    causes: tuple[str, ...]


@dataclass(frozen=True)
class Power:
    """The slowdown that the tests find in 80 % of cases at this number of repeats: over all jobs, and in one job."""

    repeats: int
    all_jobs: float | None
    one_job: float


@dataclass(frozen=True)
class GpuComparison:
    """The GPUs of a run side by side.

    Attributes:
        cells: job -> GPU -> cell, for the jobs that are placed on each GPU.
        suspects: GPUs that stand out without a significant test, or without any.
        untested: job -> reason why none of its GPUs is tested.
        untested_gpus: GPU -> job -> reason, for the jobs in which other GPUs are tested.
        tests: the number of tests of speed.
        power: None without a test.
    """

    gpus: tuple[GpuKey, ...]
    cells: Cells
    outliers: tuple[Outlier, ...]
    suspects: tuple[Outlier, ...]
    failing: tuple[FailingGpu, ...]
    untested: Mapping[str, str]
    untested_gpus: Mapping[GpuKey, Mapping[str, str]]
    tests: int
    power: Power | None


def compare_gpus(summary: Summary) -> GpuComparison:
    """Compare the GPUs of a run, by the jobs that run on each of them: `compare_cells`."""
    return compare_cells(gpu_cells(summary))


def compare_cells(cells: Cells) -> GpuComparison:
    """Compare GPUs by their cells.

    `gpu_tests` describes the tests of speed, on the tasks that are ok. At most 5 % of runs of equal GPUs name an
    outlier, and at most 5 % name a GPU that fails more often. Differences under 2 % are no outliers.
    """
    gpus = tuple(sorted({gpu for of_job in cells.values() for gpu in of_job}))
    logs = _logs(cells, gpus)
    tests, together = compare_speeds(logs)
    untested, untested_gpus = _untested(cells, gpus, tests)
    outliers, suspects = [], []
    for g, gpu in enumerate(gpus):
        named, standing_out = _stand_out(g, list(cells), tests, together)
        if named:
            outliers.append(Outlier(gpu, named, _causes(gpu, named, cells)))
        if standing_out:
            known = (
                cause for cause in _causes(gpu, standing_out, cells) if cause not in (NO_TELEMETRY, NOTHING_DIFFERS)
            )
            suspects.append(Outlier(gpu, standing_out, tuple(known)))
    return GpuComparison(
        gpus=gpus,
        cells=cells,
        outliers=tuple(outliers),
        suspects=tuple(suspects),
        failing=failing_gpus(cells, gpus),
        untested=untested,
        untested_gpus=untested_gpus,
        tests=tests.tests + (together.tests if together else 0),
        power=_power(tests, together),
    )


def _logs(cells: Cells, gpus: Sequence[GpuKey]) -> Floats:
    """ln(items/s), of shape [jobs, repeats, gpus]; NaN without a figure, or for a rate of 0."""
    of_gpu = {gpu: g for g, gpu in enumerate(gpus)}
    of_repeat = {
        r: i for i, r in enumerate({r for job in cells.values() for cell in job.values() for r in cell.by_repeat})
    }
    logs = np.full((len(cells), len(of_repeat), len(gpus)), np.nan)
    for j, of_job in enumerate(cells.values()):
        for gpu, cell in of_job.items():
            for repeat, rate in cell.by_repeat.items():
                logs[j, of_repeat[repeat], of_gpu[gpu]] = math.log(rate) if rate > 0 else math.nan
    return logs


_Family = tuple[str, SpeedTests, tuple[int, ...]]


def _stand_out(
    g: int, jobs: Sequence[str], tests: SpeedTests, together: SpeedTests | None
) -> tuple[tuple[Deviation, ...], tuple[Deviation, ...]]:
    """The significant deviations of a GPU, and those that stand out without being significant.

    A deviation that is named over all jobs is not repeated for each job: a job stands out if it differs from it. What
    one job does to the mean over all jobs is not named either.
    """
    families: list[_Family] = [(name, tests, (j, g)) for j, name in enumerate(jobs)]
    over_all = math.nan
    if together:
        families.insert(0, (ALL_JOBS, together, (g,)))
        over_all = float(together.effect[g])
    significant = {name for name, family, at in families if family.outliers[at]}
    effects = {name: float(family.effect[at]) for name, family, at in families}
    wide = abs(over_all) >= SUSPECT_EFFECT_ALL and not _due_to_one_job(tests.effect[:, g])
    around = over_all if wide or ALL_JOBS in significant else 0.0
    standing_out = {name for name in jobs if abs(effects[name] - around) >= SUSPECT_EFFECT <= abs(effects[name])}
    standing_out |= {ALL_JOBS} if wide else set()
    standing_out &= {name for name, family, at in families if not family.p[at] > SUSPECT_P}
    named = tuple(_deviation(*family) for family in families if family[0] in significant)
    return named, tuple(_deviation(*family) for family in families if family[0] in standing_out - significant)


def _due_to_one_job(effects: Floats) -> bool:
    """Whether a job stands out by itself while half of the jobs hardly deviate."""
    known = effects[np.isfinite(effects)]
    hardly = abs(float(np.median(known))) < SUSPECT_EFFECT_ALL / 2
    return hardly and float(np.abs(known).max()) >= SUSPECT_EFFECT


def _deviation(job: str, family: SpeedTests, at: tuple[int, ...]) -> Deviation:
    effect, repeats = float(family.effect[at]), int(family.n[at])
    if repeats < MIN_REPEATS:
        return Deviation(job, effect, None, None, repeats, MIN_REPEATS)
    decides = None if family.outliers[at] else family.decides(at)
    return Deviation(job, effect, float(family.p[at]), float(family.adjusted[at]), repeats, decides)


def _untested(
    cells: Cells, gpus: Sequence[GpuKey], tests: SpeedTests
) -> tuple[dict[str, str], dict[GpuKey, dict[str, str]]]:
    """The reasons why jobs are not tested, and why GPUs are not tested in jobs in which others are."""
    whole: dict[str, str] = {}
    of_gpus: dict[GpuKey, dict[str, str]] = defaultdict(dict)
    for (job, of_job), compared in zip(cells.items(), tests.n, strict=True):
        if not (compared >= MIN_REPEATS).any():
            most = int(compared.max(initial=0))
            few_gpus = f"{count(len(of_job), 'GPU')}, {MIN_GPUS} are needed"
            few_repeats = f"{count(most, 'repeat')} with at least {MIN_GPUS} GPUs ok, {MIN_REPEATS} are needed"
            whole[job] = few_gpus if len(of_job) < MIN_GPUS else few_repeats
            continue
        for gpu, n in zip(gpus, compared.tolist(), strict=True):
            if gpu in of_job and n < MIN_REPEATS:
                ok = len(of_job[gpu].by_repeat)
                others = f" with at least {MIN_GPUS} GPUs ok" if ok >= MIN_REPEATS else " ok"
                repeats = count(int(n) if ok >= MIN_REPEATS else ok, "repeat")
                of_gpus[gpu][job] = f"{repeats}{others}, {MIN_REPEATS} are needed"
    return whole, {gpu: of_gpus[gpu] for gpu in gpus if gpu in of_gpus}


def _power(tests: SpeedTests, together: SpeedTests | None) -> Power | None:
    all_jobs, one_job = smallest_effects(tests, together)
    if one_job is None:
        return None
    repeats = int(np.median(tests.n[tests.n >= MIN_REPEATS]))
    return Power(repeats, all_jobs, one_job)


def _causes(gpu: GpuKey, found: Sequence[Deviation], jobs: Cells) -> tuple[str, ...]:
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
