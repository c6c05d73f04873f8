"""Each job on each GPU, relative to the best GPU of the job: where one machine's GPUs are unlike, it shows here."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import Summary, TaskSummary
from benchsuite.report.show.format import NONE, count, number, share

# More columns than anyone can read.
MOST_GPUS = 64
# From the best down to each share, a class of the style sheet: the lower, the darker.
_STEPS = ((0.99, "level0"), (0.97, "level1"), (0.95, "level2"), (0.90, "level3"))
_LOWEST = "level4"
_SINGLE = re.compile(r"GPU \d+")


@dataclass(frozen=True)
class Square:
    """`text` is percent of the row's best, `title` the mean rate in items/s and what it rests on."""

    text: str
    title: str
    look: str


@dataclass(frozen=True)
class Matrix:
    """Hosts with how many GPUs of theirs are shown, then the GPUs, then a row a job."""

    hosts: tuple[tuple[str, int], ...]
    gpus: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Square, ...]], ...]
    left_out: int


Place = tuple[str, int]


def matrix(summary: Summary) -> Matrix | None:
    """Mean over tasks of each GPU of one job; None under two GPUs. Tasks on several GPUs have no place in it."""
    cells: dict[str, dict[Place, list[TaskSummary]]] = defaultdict(lambda: defaultdict(list))
    own_host = summary.machine.host if summary.machine else ""
    for job in summary.jobs:
        for task in job.tasks:
            if _SINGLE.fullmatch(task.device) and task.status not in OPEN:
                cells[job.name][task.host or own_host, int(task.device[4:])].append(task)
    places = sorted({place for of_job in cells.values() for place in of_job})
    if len(places) < 2:
        return None
    shown = places[:MOST_GPUS]
    hosts: dict[str, int] = defaultdict(int)
    for host, _ in shown:
        hosts[host] += 1
    rows = tuple((job, tuple(_row(of_job, shown))) for job, of_job in cells.items())
    gpus = tuple(f"GPU {gpu}" for _, gpu in shown)
    return Matrix(tuple(hosts.items()), gpus, rows, len(places) - len(shown))


def _row(of_job: dict[Place, list[TaskSummary]], shown: Sequence[Place]) -> list[Square]:
    means = {place: _mean(tasks) for place, tasks in of_job.items()}
    best = max((mean for mean in means.values() if mean is not None), default=None)
    return [_square(of_job.get(place, ()), means.get(place), best) for place in shown]


def _mean(tasks: Sequence[TaskSummary]) -> float | None:
    perfs = [task.perf for task in tasks if task.perf is not None]
    return statistics.fmean(perfs) if perfs else None


def _square(tasks: Sequence[TaskSummary], mean: float | None, best: float | None) -> Square:
    if not tasks:
        return Square(NONE, "no task here", "none")
    failed = [task for task in tasks if task.status != "ok"]
    title = f"{number(mean)} items/s; {count(len(tasks), 'task')}, {len(failed)} not ok"
    if mean is None or not best:
        return Square(f"{len(failed)} {failed[0].status}" if failed else NONE, title, "failed" if failed else "none")
    relative = mean / best
    look = next((look for least, look in _STEPS if relative >= least), _LOWEST)
    return Square(share(relative) + (f", {len(failed)} not ok" if failed else ""), title, "failed" if failed else look)
