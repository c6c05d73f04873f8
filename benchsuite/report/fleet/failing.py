"""The nodes and GPUs of a fleet that fail more often than the others, by the exact tests of `stats.failures`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchsuite.report.fleet.grid import Grid
from benchsuite.report.fleet.node import NodeRecord
from benchsuite.report.format import count, one_line, percent
from benchsuite.report.stats.failures import fails_more
from benchsuite.report.stats.verdict import FAMILY_ERROR, holm

Counts = NDArray[np.int64]


def failing_places(grid: Grid) -> dict[str, list[str]]:
    """Node -> what fails significantly more often there, in words: the node, and those of its GPUs.

    Each job is a stratum of Fisher's exact test. Nodes and GPUs have half of the error of 5 % each (Holm). A job that
    never succeeds on a node does not count there: `never_words` names it.
    """
    fail, ended = _without_never(*_tasks(grid))
    found: dict[str, list[str]] = defaultdict(list)
    for n in _named(fail.sum(axis=2), ended.sum(axis=2)):
        own, of, others = _numbers(fail.sum(axis=2), ended.sum(axis=2), n)
        found[grid.nodes[n].name].append(f"{own:,} of {count(of, 'task')} failed ({others} on the other nodes)")
    if grid.gpus < 2:
        return found
    gpu_fail, gpu_ended = _of_gpus(grid, fail, ended)
    for place in _named(gpu_fail, gpu_ended):
        n, g = divmod(place, fail.shape[2])
        own, of, others = _numbers(gpu_fail, gpu_ended, place)
        gpu = grid.nodes[n].gpus[g]
        text = f"GPU {gpu.index} ({gpu.uuid}): {own:,} of {count(of, 'task')} failed ({others} on the other GPUs)"
        found[grid.nodes[n].name].append(text)
    return found


def never_words(grid: Grid, node: NodeRecord) -> Iterator[tuple[str, bool]]:
    """Each job that fails in all tasks of a node, in words, and whether it succeeds on half of the other nodes."""
    for name in grid.jobs:
        job = grid.job(name, node)
        if job is None or not int(job.fail.sum()) or int(job.ok.sum()) or job.to_run:
            continue
        others = [of for other in grid.nodes if other is not node and (of := grid.job(name, other))]
        ok = sum(bool(int(of.ok.sum())) for of in others)
        fails = f"{one_line(name, 60)} fails in {job.fail.sum():,} of {count(int(job.ended.sum()), 'task')}"
        yield f"{fails}, and succeeds on {ok:,} of {len(others):,} other nodes", ok > 0 and 2 * ok >= len(others)


def _tasks(grid: Grid) -> tuple[Counts, Counts]:
    """Failed and ended tasks, of shape [jobs, nodes, places]; a job of the whole node has its tasks at place 0."""
    shape = (len(grid.jobs), len(grid.nodes), grid.width)
    fail, ended = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for j, name in enumerate(grid.jobs):
        for n, node in enumerate(grid.nodes):
            if (job := grid.job(name, node)) is not None:
                fail[j, n, : len(job.fail)], ended[j, n, : len(job.ended)] = job.fail, job.ended
    return fail, ended


def _without_never(fail: Counts, ended: Counts) -> tuple[Counts, Counts]:
    """The same without the tasks of a job on a node where each of them fails."""
    counted = ~(fail == ended).all(axis=2, keepdims=True)
    return np.where(counted, fail, 0), np.where(counted, ended, 0)


def _of_gpus(grid: Grid, fail: Counts, ended: Counts) -> tuple[Counts, Counts]:
    """The tasks of jobs that run on each GPU, of shape [jobs, all GPUs]."""
    each = np.array([[bool((job := grid.job(name, node)) and job.each) for node in grid.nodes] for name in grid.jobs])
    of_fail, of_ended = (np.where(each[:, :, None], of, 0).reshape(len(grid.jobs), -1) for of in (fail, ended))
    return of_fail, of_ended


def _named(fail: Counts, ended: Counts) -> list[int]:
    """The places (last axis) that fail significantly more often than the others."""
    total, total_ended = fail.sum(axis=1), ended.sum(axis=1)
    p = np.ones(fail.shape[1])
    for place in np.flatnonzero(fail.sum(axis=0)).tolist():
        own, of = fail[:, place], ended[:, place]
        strata = zip(own.tolist(), of.tolist(), (total - own).tolist(), (total_ended - of).tolist(), strict=True)
        # A stratum in which this place has no failure still counts: it may have some elsewhere.
        p[place] = fails_more([table for table in strata if table[1] and table[3]])
    return [int(place) for place in np.flatnonzero(holm(p) <= FAMILY_ERROR / 2)] if len(p) else []


def _numbers(fail: Counts, ended: Counts, place: int) -> tuple[int, int, str]:
    """Failed and ended tasks of a place, and the share of failed ones elsewhere in words."""
    own, of = int(fail[:, place].sum()), int(ended[:, place].sum())
    others, others_ended = int(fail.sum()) - own, int(ended.sum()) - of
    return own, of, percent(others / others_ended if others_ended else 0.0, 2)
