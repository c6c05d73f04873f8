"""The nodes of one kind of hardware as arrays of jobs by nodes by GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchsuite.report.fleet.node import EVENTS, GAUGES, Floats, NodeJob, NodeRecord
from benchsuite.report.fleet.spread import MIN_PLACES, centred
from benchsuite.report.read.mixed import GPU, PROCESSOR
from benchsuite.report.stats.gpu_tests import MIN_GPUS, median


@dataclass(frozen=True)
class Grid:
    """Nodes of one kind.

    Attributes:
        kind: the hardware in words.
        jobs: names, in the order of the plans.
        workloads: job -> what most nodes train; other nodes have no figure in this job.
        unlike: node -> its jobs that train something else.
    """

    kind: str
    nodes: tuple[NodeRecord, ...]
    jobs: tuple[str, ...]
    workloads: dict[str, tuple[str | None, str | None]]
    unlike: dict[str, tuple[str, ...]]

    def job(self, job: str, node: NodeRecord) -> NodeJob | None:
        """A job of a node; None if the node lacks it or trains something else under its name."""
        found = node.jobs.get(job)
        return (
            found if found and (found.workload, found.unit or self.workloads[job][1]) == self.workloads[job] else None
        )

    @cached_property
    def gpus(self) -> int:
        """The largest number of GPUs of a node."""
        return max((len(node.gpus) for node in self.nodes), default=0)

    @property
    def width(self) -> int:
        """The places of a node in arrays: its GPUs, or one for nodes without GPUs."""
        return max(1, self.gpus)

    @cached_property
    def logs(self) -> Floats:
        """ln(items/s), of shape [jobs, nodes]: of the median GPU, or of the node as a whole."""
        found = np.full((len(self.jobs), len(self.nodes)), np.nan)
        for j, n, job in self._cells():
            found[j, n] = job.log
        return found

    @cached_property
    def deviations(self) -> Floats:
        """Differences of `logs` from the job's median node."""
        return centred(self.logs)

    @cached_property
    def gpu_logs(self) -> Floats:
        """ln(items/s), of shape [jobs, nodes, `width`]; NaN for jobs that do not run on each GPU."""
        found = np.full((len(self.jobs), len(self.nodes), self.width), np.nan)
        for j, n, job in self._cells():
            if job.each:
                found[j, n, : len(job.logs)] = job.logs
        return found

    @cached_property
    def gpu_deviations(self) -> Floats:
        """Differences of `gpu_logs` from the node's median GPU, less what is usual for a GPU of this index.

        The place of a GPU in its node (its PCIe root, its processor) is no fault. NaN where fewer than three GPUs of a
        node have a rate.
        """
        enough = np.isfinite(self.gpu_logs).sum(axis=-1, keepdims=True) >= MIN_GPUS
        own = np.where(enough, self.gpu_logs, np.nan) - median(self.gpu_logs)[..., None]
        by_index = np.moveaxis(own, 1, -1)
        known = np.isfinite(by_index).sum(axis=-1) >= MIN_PLACES
        usual = np.where(known, median(by_index), 0.0)
        found: Floats = own - usual[:, None, :]
        return found

    @cached_property
    def repeats(self) -> Floats:
        """ln(items/s), of shape [jobs, repeats, nodes]."""
        keys = sorted({repeat for _, _, job in self._cells() for repeat in job.by_repeat})
        found = np.full((len(self.jobs), len(keys), len(self.nodes)), np.nan)
        for j, n, job in self._cells():
            for repeat, log in job.by_repeat.items():
                found[j, keys.index(repeat), n] = log
        return found

    def ok(self, job: int, node: int, gpu: int | None = None) -> int:
        """The number of ok repeats behind a figure, over all GPUs or of one."""
        found = self.job(self.jobs[job], self.nodes[node])
        return 0 if found is None else int(found.ok.sum() if gpu is None else found.ok[gpu])

    def figures(self, job: str) -> NDArray[np.float32]:
        """Telemetry of a job, of shape [nodes, places, figures]."""
        width = max((len(found.logs) for node in self.nodes if (found := self.job(job, node))), default=0)
        of = np.full((len(self.nodes), width, len(GAUGES) + len(EVENTS)), np.nan, dtype=np.float32)
        for n, node in enumerate(self.nodes):
            if (found := self.job(job, node)) is not None:
                of[n, : len(found.figures)] = found.figures
        return of

    def _cells(self) -> Iterable[tuple[int, int, NodeJob]]:
        for j, name in enumerate(self.jobs):
            for n, node in enumerate(self.nodes):
                if (job := self.job(name, node)) is not None:
                    yield j, n, job


def grids(records: Iterable[NodeRecord]) -> tuple[Grid, ...]:
    """The nodes that have results in groups of equal processors and GPU models, the largest group first."""
    kinds: dict[str, list[NodeRecord]] = {}
    for record in records:
        if not record.problem:
            kinds.setdefault(kind_of_hardware(record), []).append(record)
    in_order = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    return tuple(_grid(kind, of) for kind, of in in_order)


def kind_of_hardware(record: NodeRecord) -> str:
    """The GPU model and the processor in words. The number of GPUs is no part: a node may have lost one."""
    known = (record.hardware.get(what) for what in (GPU, PROCESSOR))
    return ", ".join(value for value in known if value) or "unknown hardware"


def _grid(kind: str, nodes: Sequence[NodeRecord]) -> Grid:
    jobs = tuple(dict.fromkeys(job for node in nodes for job in node.jobs))
    workloads = {job: _usual(node.jobs[job] for node in nodes if job in node.jobs) for job in jobs}
    grid = Grid(kind, tuple(nodes), jobs, workloads, {})
    for node in nodes:
        unlike = tuple(job for job in node.jobs if grid.job(job, node) is None)
        if unlike:
            grid.unlike[node.name] = unlike
    return grid


def _usual(jobs: Iterable[NodeJob]) -> tuple[str | None, str | None]:
    """What most nodes train, and the unit in which they count it."""
    every = list(jobs)
    workload = Counter(job.workload for job in every).most_common(1)[0][0]
    units = Counter(job.unit for job in every if job.workload == workload and job.unit)
    return workload, units.most_common(1)[0][0] if units else None
