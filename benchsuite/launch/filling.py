"""Groups whose ranks could not fill a batch are refused before anything starts."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchsuite.data import DataError, store
from benchsuite.errors import ProfileError, UsageError
from benchsuite.events import Assignment
from benchsuite.launch.batchsize import asks
from benchsuite.launch.child import child_environ, python
from benchsuite.launch.datasets import folder_of
from benchsuite.plan import NO_GPU
from benchsuite.schema import to_json
from benchsuite.tasks import DataFolder, Task

LIMIT_S = 300


def check_filled(tasks: Sequence[Task], environ: Mapping[str, str]) -> None:
    """Have the largest group of each job that reads a data set make a batch; what breaks otherwise is left to the task.

    Raises:
        UsageError: a rank cannot.
    """
    largest: dict[str, Task] = {}
    for task in tasks:
        known = largest.get(task.job.name)
        if task.ranks > 1 and task.skip is None and not asks(task) and (not known or known.ranks < task.ranks):
            largest[task.job.name] = task
    for task in largest.values():
        folder = _folder(task)
        why = _problem(task, folder, environ) if folder else None
        if why:
            raise UsageError(f"job '{task.job.name}': {why}")


def _folder(task: Task) -> DataFolder | None:
    if task.job.data is None:
        return None
    try:
        return folder_of(store.find(Path(task.data_root) if task.data_root else None, task.job.data))
    except (DataError, ProfileError):
        return None  # said elsewhere


def _problem(task: Task, folder: DataFolder, environ: Mapping[str, str]) -> str | None:
    assignment = Assignment(task=task, events="", data=folder)
    env = {**child_environ(task, environ), "CUDA_VISIBLE_DEVICES": NO_GPU}
    words = [*python(), "-m", "benchsuite.worker.fill"]
    try:
        done = subprocess.run(
            words, input=to_json(assignment), env=env, capture_output=True, timeout=LIMIT_S, check=False
        )
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=str | None) if done.returncode == 0 else None
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return None
