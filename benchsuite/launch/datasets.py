"""Find the data set of a wave before its tasks start, and empty or fill the page cache as the job asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from benchsuite.data import DataError, cache, descriptor, store
from benchsuite.describe.tasks import DataFolder, Task
from benchsuite.launch.context import DataProvided, RunContext, WaveContext, WaveError
from benchsuite.records import Failure


@contextmanager
def data_set(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
    """Provide the data set that the wave's job names, if it names one.

    Raises:
        WaveError: see `provide`.
    """
    yield replace(wave, data=provide(wave.tasks[0], run.asked_to_stop))


def provide(task: Task, asked_to_stop: Callable[[], bool]) -> DataProvided | None:
    """The data set of a task; None if its job names none. The page cache is emptied or filled as the job asks.

    Args:
        asked_to_stop: ends the filling of the page cache.

    Raises:
        WaveError: the data set is missing, incomplete or damaged, or cannot be read; the message names the remedy.
    """
    name = task.job.data
    if name is None:
        return None
    asked = task.job.page_cache
    try:
        found = store.find(Path(task.data_root) if task.data_root else None, name)
        paths = store.paths(found)
        if asked == "cold":
            cache.drop(paths)
        elif asked == "warm":
            cache.fill(paths, asked_to_stop)
        cached = cache.held(paths)
    except DataError as error:
        raise WaveError(Failure(kind="data", message=str(error))) from None
    except (OSError, ValueError) as error:
        raise WaveError(Failure(kind="data", message=f"data set '{name}' cannot be read: {error}")) from None
    return DataProvided(folder_of(found), msgspec.structs.replace(store.used(found), page_cache=asked, cached=cached))


def folder_of(found: store.Prepared) -> DataFolder:
    """What a worker must know of a data set."""
    return DataFolder(name=found.name, path=found.path, reader=found.reader, layout=found.layout)


def not_ready(tasks: Sequence[Task]) -> list[str]:
    """A line for each data set that tasks need and that is not ready, with the command that prepares it."""
    lines = []
    wanted: dict[tuple[str, str | None], list[str]] = {}
    for task in tasks:
        if task.job.data and task.skip is None:
            jobs = wanted.setdefault((task.job.data, task.data_root), [])
            if task.job.name not in jobs:
                jobs.append(task.job.name)
    for (name, root), jobs in wanted.items():
        why = why_not_ready(name, root)
        if why:
            lines.append(f"{', '.join(jobs)} will fail: {why}")
    return lines


def why_not_ready(name: str, root: str | None) -> str | None:
    """Why a data set is not ready in the folder `root`, with the command that prepares it; None if it is."""
    if root is None:
        return f"data set '{name}': there is no data folder; bring it with 'benchsuite prepare {name} -d DATA'"
    found = store.look(Path(root), descriptor.load(name))
    if found.prepared:
        return None
    return f"data set '{name}' is {found.state}: {found.reason}; bring it with '{found.command}'"
