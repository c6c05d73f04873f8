"""Each job on each GPU, relative to the best GPU of the job, so that a page shows unlike GPUs of a machine."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import Summary, TaskSummary
from benchsuite.report.show.document import Cell
from benchsuite.report.show.format import NONE, count, number, share

# More columns than anyone can read.
MOST_GPUS = 64
# The least share of each class of the style sheet: the lower, the darker.
_LEVELS = ((0.99, "level0"), (0.97, "level1"), (0.95, "level2"), (0.90, "level3"))
_LOWEST = "level4"

# A host, and the index of a GPU on it.
Place = tuple[str, int]


@dataclass(frozen=True)
class Matrix:
    """Hosts with their number of GPUs shown, the GPUs, and the cells of each job.

    A cell's value is its share of the row's best; its note is the mean rate in items/s and the number of tasks.
    """

    hosts: tuple[tuple[str, int], ...]
    gpus: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    left_out: int


def matrix(summary: Summary) -> Matrix | None:
    """Means over the ended tasks of each job on each GPU, without tasks on several GPUs; None below two GPUs."""
    own_host = summary.machine.host if summary.machine else ""
    jobs: dict[str, dict[Place, list[TaskSummary]]] = defaultdict(lambda: defaultdict(list))
    for job in summary.jobs:
        for task in job.tasks:
            if len(task.gpus) == 1 and task.status not in OPEN:
                jobs[job.name][task.host or own_host, task.gpus[0].index].append(task)
    places = sorted({place for of_job in jobs.values() for place in of_job})
    if len(places) < 2:
        return None
    shown = places[:MOST_GPUS]
    hosts = Counter(host for host, _ in shown)
    rows = tuple((name, tuple(_row(of_job, shown))) for name, of_job in jobs.items())
    return Matrix(tuple(hosts.items()), tuple(f"GPU {gpu}" for _, gpu in shown), rows, len(places) - len(shown))


def level(cell: Cell) -> str:
    """The class of the style sheet for a cell."""
    if cell.tone == "bad":
        return "failed"
    if not isinstance(cell.value, float):
        return "none"
    return next((name for least, name in _LEVELS if cell.value >= least), _LOWEST)


def _row(of_job: Mapping[Place, Sequence[TaskSummary]], shown: Sequence[Place]) -> list[Cell]:
    perfs = {place: [task.perf for task in tasks if task.perf is not None] for place, tasks in of_job.items()}
    means = {place: statistics.fmean(values) for place, values in perfs.items() if values}
    best = max(means.values(), default=None)
    return [_cell(of_job.get(place, ()), means.get(place), best) for place in shown]


def _cell(tasks: Sequence[TaskSummary], mean: float | None, best: float | None) -> Cell:
    if not tasks:
        return Cell(NONE, note="no task here")
    failed = [task for task in tasks if task.status != "ok"]
    note = f"{number(mean)} items/s; {count(len(tasks), 'task')}, {len(failed)} not ok"
    if mean is None or not best:
        text, relative = f"{len(failed)} {failed[0].status}" if failed else NONE, None
    else:
        relative = mean / best
        text = share(relative) + (f", {len(failed)} not ok" if failed else "")
    return Cell(text, relative, "bad" if failed else "", note)
