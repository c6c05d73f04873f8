"""The tasks of jobs that run on each GPU, as one cell for each job and GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from benchsuite.report.measure.intervals import mean
from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import Summary, TaskSummary
from benchsuite.report.read.use import Use


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
    def ended(self) -> int:
        """The number of tasks that have an outcome."""
        return self.n - self.not_run

    @property
    def mean(self) -> float | None:
        return mean(self.by_repeat.values())

    @property
    def min(self) -> float | None:
        return min(self.by_repeat.values(), default=None)

    @property
    def max(self) -> float | None:
        return max(self.by_repeat.values(), default=None)


# Job -> GPU -> cell.
Cells = Mapping[str, Mapping[GpuKey, Cell]]


def gpu_cells(summary: Summary) -> Cells:
    """The cells of the jobs that run on each GPU; jobs in the plan's order."""
    grouped: dict[str, dict[GpuKey, list[TaskSummary]]] = defaultdict(lambda: defaultdict(list))
    for job, gpu, task in _tasks(summary):
        grouped[job][gpu].append(task)
    return {job: {gpu: _cell(tasks) for gpu, tasks in of_job.items()} for job, of_job in grouped.items()}


def _tasks(summary: Summary) -> Iterator[tuple[str, GpuKey, TaskSummary]]:
    here = (summary.machine.host if summary.machine else None) or "an unknown host"
    for job in summary.jobs:
        for task in job.tasks if job.devices == "each" else ():
            if len(task.gpus) == 1:
                yield job.name, GpuKey(task.host or here, task.gpus[0].index, task.gpus[0].uuid), task


def _cell(tasks: list[TaskSummary]) -> Cell:
    rates: dict[int, list[float]] = defaultdict(list)
    for task in tasks:
        if task.perf is not None:
            rates[task.repeat].append(task.perf)
    not_run = sum(task.status in OPEN for task in tasks)
    ok = [task for task in tasks if task.status == "ok"]
    return Cell(
        by_repeat={repeat: sum(found) / len(found) for repeat, found in rates.items()},
        n=len(tasks),
        fail=len(tasks) - len(ok) - not_run,
        not_run=not_run,
        unsteady=sum(task.steady is False for task in tasks),
        uses=tuple(task.use for task in ok if task.use is not None),
    )
