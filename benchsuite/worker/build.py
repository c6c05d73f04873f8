"""From a task to its workload: the model's module, its parameters, the same weights on each rank."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import sys
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.errors import ModelError
from benchsuite.models import Workload

HOME = str(Path(__file__).parents[2])


def module_of(task: Task) -> ModuleType:
    """The model's module. Only a user's own entry sees the current folder, whose names may shadow packages."""
    here = str(Path.cwd())
    asked = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [p for p in sys.path if p and (p != here or p in asked)]
    if HOME not in sys.path:  # the current folder is where benchsuite lies; processes that a model spawns need it, too
        sys.path.append(HOME)
    if task.job.model is not None:
        if task.job.data is not None and task.job.params.get("workers"):
            _begin_serving()
        return importlib.import_module(f"benchsuite.models.{task.job.model}")
    sys.path.insert(0, here)
    return importlib.import_module((task.job.entry or "").partition(":")[0])


def _begin_serving() -> None:
    """Start the process that will fork those which read images, so that it imports torch while this one does too."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["benchsuite.models.readers.images"])
    forkserver.ensure_running()


def seed_of(task: Task) -> int:
    """The seed that a job gives, else 0."""
    seed = task.job.params.get("seed", 0)
    return seed if isinstance(seed, int) else 0


def build(module: ModuleType, task: Task, rank: int) -> Workload:
    """The model, the same on each rank; what is drawn later, as by dropout, is not."""
    function = (task.job.entry or ":build").partition(":")[2]
    params = msgspec.convert(task.job.params, module.Params)
    random.seed(seed_of(task))
    if "torch" in sys.modules:  # a model that does without torch is not made to pay for it
        sys.modules["torch"].manual_seed(seed_of(task))
    workload = getattr(module, function)(params)
    if not isinstance(workload, Workload):
        raise ModelError(f"{function} of {module.__name__} returned {type(workload).__name__}, not a Workload")
    if not isinstance(workload.unit, str):
        raise ModelError(f"{function} of {module.__name__}: the unit is {workload.unit!r}; name what an item is")
    if rank:
        sys.modules["torch"].manual_seed(seed_of(task) + rank * 1_000_003)
    return workload
