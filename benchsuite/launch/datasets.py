"""A wave's data set: found complete before its tasks start, its files in the page cache as the job asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchsuite.data import DataError, cache, descriptor, store
from benchsuite.describe.tasks import DataFolder, Task
from benchsuite.records import DataUsed


@dataclass(frozen=True)
class Given:
    """What the worker is told of its data set, and what the result keeps of it."""

    folder: DataFolder
    used: DataUsed


def give(task: Task, asked_to_stop: Callable[[], bool]) -> Given | None:
    """The data set of a wave's tasks; None where the job names none. `asked_to_stop` ends the filling of the cache.

    Raises:
        DataError: it is missing, incomplete or damaged, says which command brings it; or it cannot be read.
    """
    name = task.job.data
    if name is None:
        return None
    found = store.find(Path(task.data_root) if task.data_root else None, name)
    asked = task.job.page_cache
    try:
        paths = store.paths(found)
        if asked == "cold":
            cache.drop(paths)
        elif asked == "warm":
            cache.fill(paths, asked_to_stop)
        cached = cache.held(paths)
    except (OSError, ValueError) as error:
        raise DataError(f"data set '{name}' cannot be read: {error}") from None
    return Given(folder_of(found), msgspec.structs.replace(store.used(found), page_cache=asked, cached=cached))


def folder_of(found: store.Prepared) -> DataFolder:
    """A data set as a worker is told of it."""
    return DataFolder(name=found.name, path=found.path, reader=found.reader, layout=found.layout)


def not_ready(tasks: Sequence[Task]) -> list[str]:
    """A line for each data set that tasks need and that is not ready, with the command that brings it."""
    lines = []
    wanted: dict[tuple[str, str | None], list[str]] = {}
    for task in tasks:
        if task.job.data and task.skip is None:
            jobs = wanted.setdefault((task.job.data, task.data_root), [])
            if task.job.name not in jobs:
                jobs.append(task.job.name)
    for (name, root), jobs in wanted.items():
        why = _why_not_ready(name, root)
        if why:
            lines.append(f"{', '.join(jobs)} will fail: {why}")
    return lines


def _why_not_ready(name: str, root: str | None) -> str | None:
    if root is None:
        return f"data set '{name}': there is no data folder; bring it with 'benchsuite prepare {name} -d DATA'"
    found = store.look(Path(root), descriptor.load(name))
    if found.prepared:
        return None
    return f"data set '{name}' is {found.state}: {found.reason}; bring it with '{found.command}'"
