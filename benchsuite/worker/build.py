"""Build a task's workload: import the model's module and make the model, with the same weights on each rank."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import importlib
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec

from benchsuite.describe.arrays import SEED, params_of
from benchsuite.describe.tasks import Task
from benchsuite.errors import ModelError
from benchsuite.models import Workload

HOME = str(Path(__file__).parents[2])


def module_of(task: Task) -> ModuleType:
    """Import the model's module.

    The current folder is on `sys.path` only for a user's own entry, since a file there may shadow a package.

    Raises:
        ModelError: the module of a user's own entry comes from another file than that of the plan.
    """
    here = str(Path.cwd())
    asked = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [p for p in sys.path if p and (p != here or p in asked)]
    if HOME not in sys.path:  # benchsuite is in the current folder; processes that a model spawns need it as well
        sys.path.append(HOME)
    if task.job.model is not None:
        if task.job.data is not None and task.job.params.get("workers"):
            _begin_serving()
        with _without_collections():
            return importlib.import_module(f"benchsuite.models.{task.job.model}")
    sys.path.insert(0, here)
    module = (task.job.entry or "").partition(":")[0]
    sys.argv[:] = [module]  # a module that parses a command line when it is imported finds an empty one of its own
    with _without_collections():
        imported = importlib.import_module(module)
    _check_file(imported, task.entry_sha256)
    return imported


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage is collected meanwhile: an import keeps what it makes, and the searches take a tenth of torch's.

    A module that changes the collector's settings keeps its own.
    """
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*before)


def _check_file(module: ModuleType, sha256: str | None) -> None:
    """Raises ModelError: the module's file does not have this hash; None allows any file."""
    file = Path(module.__file__ or "")
    if sha256 and hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
        why = "it has changed since, or PYTHONPATH names another"
        raise ModelError(f"{file} is not the file with which the run was planned: {why}; start a new run")


def _begin_serving() -> None:
    """Start the server that forks the image readers early: it imports torch while this process does so, too."""
    import multiprocessing
    from multiprocessing import forkserver

    multiprocessing.get_context("forkserver").set_forkserver_preload(["benchsuite.models.readers.images"])
    forkserver.ensure_running()


def seed_of(task: Task) -> int:
    """The seed among the model's parameters, that of an array's first model; 0 if there is none."""
    seed = task.job.params.get("seed", 0)
    if isinstance(seed, list):
        seed = seed[0]
    return seed if isinstance(seed, int) else 0


def build_each(module: ModuleType, task: Task, rank: int) -> list[Workload]:
    """Make the models that this process trains: one, or those of an array, each with its own parameters and seed.

    Raises:
        ModelError: see `build`.
    """
    job = task.job
    if job.training.array == 1:
        return [build(module, task, rank)]
    fusible = {one.name for one in dataclasses.fields(module.Params) if one.metadata.get("fusible")}
    found = []
    for model in range(job.training.array):
        own = msgspec.structs.replace(job, params=params_of(job.params, fusible, model))
        offset = 0 if SEED in fusible else model  # weights differ, also if the model's file does not mark its seed
        found.append(build(module, msgspec.structs.replace(task, job=own), rank, offset))
    return found


def build(module: ModuleType, task: Task, rank: int, offset: int = 0) -> Workload:
    """Make the model. Its weights are the same on each rank; random numbers drawn later (dropout) differ.

    Args:
        offset: added to the task's seed.

    Raises:
        ModelError: the function returned no workload, or the workload has no unit.
    """
    function = (task.job.entry or ":build").partition(":")[2]
    params = msgspec.convert(task.job.params, module.Params)
    seed = seed_of(task) + offset
    random.seed(seed)
    if "torch" in sys.modules:  # a model without torch does not pay for importing it
        sys.modules["torch"].manual_seed(seed)
    workload = getattr(module, function)(params)
    if not isinstance(workload, Workload):
        raise ModelError(f"{function} of {module.__name__} returned {type(workload).__name__}, not a Workload")
    if not isinstance(workload.unit, str):
        raise ModelError(f"{function} of {module.__name__}: the unit is {workload.unit!r}; name what an item is")
    if rank:
        sys.modules["torch"].manual_seed(seed_of(task) + rank * 1_000_003)
    return workload
