"""Groups whose ranks could not fill a batch are refused before anything starts."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchsuite.data import DataError, store
from benchsuite.describe.plan import NO_GPU
from benchsuite.describe.tasks import DataFolder, Task
from benchsuite.errors import ProfileError, UsageError
from benchsuite.events import Assignment
from benchsuite.host.cgroupfs import started_ticks
from benchsuite.launch import process
from benchsuite.launch.batchsize import asks
from benchsuite.launch.child import child_environ, python
from benchsuite.launch.datasets import folder_of
from benchsuite.schema import to_json

LIMIT_S = 300


def check_filled(tasks: Sequence[Task], environ: Mapping[str, str], asked_to_stop: Callable[[], bool]) -> None:
    """Have the largest group of each job that reads a data set make a batch; what breaks otherwise is left to the task.

    Args:
        asked_to_stop: looked at while a batch is made; where it says so, nothing more is found out.

    Raises:
        UsageError: a rank cannot.
    """
    largest: dict[str, Task] = {}
    for task in tasks:
        known = largest.get(task.cell)
        if task.ranks > 1 and task.skip is None and not asks(task) and (not known or known.ranks < task.ranks):
            largest[task.cell] = task
    for task in largest.values():
        folder = _folder(task)
        why = _problem(task, folder, environ, asked_to_stop) if folder else None
        if why:
            raise UsageError(f"job '{task.cell}': {why}")


def _folder(task: Task) -> DataFolder | None:
    if task.job.data is None:
        return None
    try:
        return folder_of(store.find(Path(task.data_root) if task.data_root else None, task.job.data))
    except (DataError, ProfileError):
        return None  # said elsewhere


def _problem(
    task: Task, folder: DataFolder, environ: Mapping[str, str], asked_to_stop: Callable[[], bool]
) -> str | None:
    assignment = Assignment(task=task, events="", data=folder)
    env = {**child_environ(task, environ), "CUDA_VISIBLE_DEVICES": NO_GPU}
    words = [*python(), "-m", "benchsuite.worker.first_batch"]
    try:
        printed = answer(words, to_json(assignment), env, asked_to_stop)
        return msgspec.json.decode(printed.splitlines()[-1], type=str | None)
    except (OSError, ValueError, IndexError, msgspec.DecodeError):
        return None


def answer(words: Sequence[str], told: bytes, env: Mapping[str, str], asked_to_stop: Callable[[], bool]) -> bytes:
    """What a command prints, told this on its standard input; nothing of one that fails, takes over `LIMIT_S`, or is
    asked to stop meanwhile. None of its processes is left.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    mark = f"{os.getpid()}.fill.{time.monotonic_ns()}"
    child = subprocess.Popen(
        words,
        env={**env, process.MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    tree = process.Tree(child, started_ticks(child.pid), mark)
    deadline_s, given = time.monotonic() + LIMIT_S, told
    try:
        while not asked_to_stop() and time.monotonic() < deadline_s:
            try:
                printed, _ = child.communicate(given, timeout=0.1)
            except subprocess.TimeoutExpired:
                given = b""  # it has it all, or is still taking it
                continue
            return printed if child.returncode == 0 else b""
        return b""
    finally:
        tree.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
