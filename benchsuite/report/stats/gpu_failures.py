"""GPUs that fail more often than the others, by exact tests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchsuite.report.stats.failures import Counts, fails_more
from benchsuite.report.stats.gpu_cells import Cell, Cells, GpuKey
from benchsuite.report.stats.verdict import FAMILY_ERROR, holm


@dataclass(frozen=True)
class JobFailures:
    """A job that never succeeds on a GPU, but does on others.

    Attributes:
        fail: failed tasks on the GPU, which are all that ended.
        others_fail: failed tasks on all other GPUs, of the `others_ended` ones.
        p: Fisher's exact test of this job alone, one-sided.
    """

    job: str
    fail: int
    others_fail: int
    others_ended: int
    p: float


@dataclass(frozen=True)
class FailingGpu:
    """A GPU that fails more often than the others, or on which a job never succeeds.

    Attributes:
        fail: failed tasks of all jobs, of the `ended` ones.
        others_fail: failed tasks on all other GPUs, of the `others_ended` ones.
        p: Fisher's exact test against all other GPUs, one-sided, each job a stratum.
        adjusted: after Holm's adjustment over GPUs: significant if at most 0.05.
        never: the jobs that never succeed on it.
    """

    gpu: GpuKey
    fail: int
    ended: int
    others_fail: int
    others_ended: int
    p: float
    adjusted: float
    never: tuple[JobFailures, ...]


def failing_gpus(cells: Cells, gpus: Sequence[GpuKey]) -> tuple[FailingGpu, ...]:
    """The GPUs that fail more often than the others, by an exact test, and those on which a job never succeeds.

    Among runs with alike GPUs, at most 5 % show a significant `FailingGpu` (Holm over the GPUs).
    """
    totals = {job: _totals(of_job.values()) for job, of_job in cells.items()}
    found = []
    for gpu in gpus:
        tables = {job: _table(of_job[gpu], *totals[job]) for job, of_job in cells.items() if gpu in of_job}
        never = tuple(_never(job, table) for job, table in tables.items() if _is_never(table))
        fail, ended, others_fail, others_ended = (sum(column) for column in zip(*tables.values(), strict=True))
        p = fails_more(tables.values())
        found.append(FailingGpu(gpu, fail, ended, others_fail, others_ended, p, p, never))
    adjusted = holm(np.array([one.p for one in found])).tolist() if found else []
    both = zip(found, adjusted, strict=True)
    return tuple(replace(one, adjusted=p) for one, p in both if p <= FAMILY_ERROR or one.never)


def _totals(cells: Collection[Cell]) -> tuple[int, int]:
    """Failed and ended tasks."""
    return sum(cell.fail for cell in cells), sum(cell.ended for cell in cells)


def _table(own: Cell, fail: int, ended: int) -> Counts:
    """Failed and ended tasks of a job on one GPU and on the others, from those on all."""
    return own.fail, own.ended, fail - own.fail, ended - own.ended


def _is_never(table: Counts) -> bool:
    fail, ended, others_fail, others_ended = table
    return 0 < fail == ended and others_fail < others_ended


def _never(job: str, table: Counts) -> JobFailures:
    fail, _, others_fail, others_ended = table
    return JobFailures(job, fail, others_fail, others_ended, fails_more([table]))
