"""Refuse groups whose ranks cannot fill a batch, and pipelines that do not fit a model, before anything starts."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchsuite.data import DataError, store
from benchsuite.describe.plan import NO_GPU
from benchsuite.describe.tasks import DataFolder, Task
from benchsuite.errors import ProfileError, UsageError
from benchsuite.events import Assignment
from benchsuite.launch import process
from benchsuite.launch.batchsize import asks
from benchsuite.launch.child import child_environ, python
from benchsuite.launch.datasets import folder_of
from benchsuite.launch.supervise import bounded, supervise
from benchsuite.schema import to_json

LIMIT_S = 300


def check_filled(tasks: Sequence[Task], environ: Mapping[str, str], asked_to_stop: Callable[[], bool]) -> None:
    """Let the largest group of each job that reads a data set make a batch, and cut the model of each pipeline.

    Any other failure is left to the task itself.

    Args:
        asked_to_stop: ends the check early, as if each batch could be filled.

    Raises:
        UsageError: a rank cannot fill a batch, or the model cannot be cut into the stages that the job asks for.
    """
    largest: dict[str, Task] = {}
    for task in tasks:
        known = largest.get(task.cell)
        if (
            task.ranks > 1
            and task.skip is None
            and not task.job.container
            and not asks(task)
            and (not known or known.ranks < task.ranks)
        ):
            largest[task.cell] = task
    for task in largest.values():
        folder = _folder(task)
        needed = folder is not None or (task.job.training.parallel.pp and task.job.data is None)
        why = _problem(task, folder, environ, asked_to_stop) if needed else None
        if why:
            raise UsageError(f"job '{task.cell}': {why}")


def _folder(task: Task) -> DataFolder | None:
    if task.job.data is None:
        return None
    try:
        return folder_of(store.find(Path(task.data_root) if task.data_root else None, task.job.data))
    except (DataError, ProfileError):
        return None  # `datasets.not_ready` reports it


def _problem(
    task: Task, folder: DataFolder | None, environ: Mapping[str, str], asked_to_stop: Callable[[], bool]
) -> str | None:
    assignment = Assignment(task=task, events="", data=folder)
    env = {**child_environ(task, environ), "CUDA_VISIBLE_DEVICES": NO_GPU}
    words = [*python(), "-m", "benchsuite.worker.first_batch"]
    try:
        printed = answer(words, to_json(assignment), env, asked_to_stop)
        return msgspec.json.decode(printed.splitlines()[-1], type=str | None)
    except (OSError, ValueError, IndexError, msgspec.DecodeError):
        return None


def answer(words: Sequence[str], given: bytes, env: Mapping[str, str], asked_to_stop: Callable[[], bool]) -> bytes:
    """The standard output of a command that reads `given` on its standard input; none of its processes is left.

    Empty if the command fails, takes over `LIMIT_S`, or is stopped.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    mark = f"{os.getpid()}.fill.{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory(prefix="benchsuite-") as folder:
        read, printed = Path(folder, "in"), Path(folder, "out")
        read.write_bytes(given)
        tree = process.start(words, environ=env, mark=mark, out=printed, err=Path(os.devnull), given=read)
        exit = supervise(tree, bounded(time.monotonic() + LIMIT_S, asked_to_stop))
        return printed.read_bytes() if exit.code == 0 and exit.ended == "exited" else b""
