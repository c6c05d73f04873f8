"""Pure: profile x machine -> every wave of tasks, in order, before anything starts.

A progression and a matrix are the same thing here: a job that is unrolled over an axis. What the plan decides (cell,
row, axes, wave, id) stands on each task, so that nothing else has to work it out again.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchsuite.describe import entries
from benchsuite.describe.matrix import Cell, cells
from benchsuite.describe.tasks import (
    PLACE_AXES,
    Gpu,
    Job,
    Plan,
    Task,
    Wave,
    cell_name,
    recorded_environ,
    wave_name,
    written,
)
from benchsuite.errors import UsageError

# Ranks of a group that runs on the CPU instead of on GPUs: enough to see that it works.
CPU_RANKS = 2
# An empty list hides every GPU from a worker that has none.
NO_GPU = ""


@dataclass(frozen=True)
class Place:
    """Where one task goes.

    Attributes:
        gpus: the GPUs of the task; none on a CPU.
        ranks: processes that train it together.
        number: what the id says behind the repeat; None where a job has one task a repeat.
        axes: the axis of a progression with this place's value.
        skip: why the task cannot run.
    """

    gpus: tuple[Gpu, ...] = ()
    ranks: int = 1
    number: int | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    skip: str | None = None


@dataclass(frozen=True)
class Around:
    """What all tasks of a plan share."""

    profile: str
    environ: Mapping[str, str]
    data_root: str | None = None


def make_plan(
    profile: str,
    jobs: Sequence[Job],
    gpus: Sequence[Gpu],
    *,
    environ: Mapping[str, str],
    repeats: int = 1,
    data_root: str | None = None,
) -> Plan:
    """All waves of a run: repeat by repeat, job by job, cell by cell, and for a progression one number of GPUs by one.

    Args:
        profile: the profile's name.
        gpus: the visible GPUs, in their order.
        environ: the environment that workers will inherit; each task records what matters of it.
        data_root: the folder of the data sets.

    Raises:
        UsageError: a job asks for more ranks than there are GPUs.
    """
    around = Around(profile, environ, data_root)
    unrolled = [cell for job in jobs for cell in cells(job)]
    tasks = [
        make_task(cell, place, around, repeat)
        for repeat, cell in itertools.product(range(repeats), unrolled)
        for place in places(cell.job, gpus)
    ]
    return plan_of(tasks)


def make_task(cell: Cell, place: Place, around: Around, repeat: int = 0) -> Task:
    """One task of a cell in its place."""
    job = cell.job
    row = f"{cell.name}.{place.ranks}" if place.axes else cell.name
    number = "" if place.number is None else f".{place.number}"
    return Task(
        id=f"{cell.name}.J{repeat}{number}",
        profile=around.profile,
        repeat=repeat,
        job=job,
        cell=cell.name,
        row=row,
        axes={**cell.axes, **place.axes},
        per=place.ranks if place.axes else 1,
        wave=wave_name(row, repeat),
        gpus=place.gpus,
        ranks=place.ranks,
        data_root=around.data_root,
        environ=task_environ(job, place.gpus, around.environ),
        skip=place.skip or missing_packages(job),
        cwd=str(Path.cwd()) if job.entry else None,
    )


def again(old: Task, job: Job, place: Place) -> Task:
    """A task with another job or place: its cell, row and axes follow; its repeat and id stay those of the original.

    Args:
        old: the task that runs again.
        job: its job with changes.
        place: where it goes now.
    """
    fields = {**written(job), **job.params}
    axes = {axis: fields.get(axis, value) for axis, value in old.axes.items() if axis not in PLACE_AXES}
    cell = Cell(cell_name(job.name, axes), axes, job)
    environ = {name: value for name, value in old.environ.items() if name not in old.job.env}
    task = make_task(cell, place, Around(old.profile, environ, old.data_root), old.repeat)
    return msgspec.structs.replace(task, id=old.id, copy=old.copy, cwd=old.cwd)


def places(job: Job, gpus: Sequence[Gpu]) -> Iterator[Place]:
    """The places of a job: a progression has one for each number of GPUs or, on the CPU, of ranks.

    Raises:
        UsageError: the job asks for more ranks than there are GPUs.
    """
    devices, asked = job.placement.devices, job.training.parallel.dp
    if devices != "none" and not gpus and not job.placement.cpu_allowed:
        named = {"each": "per_gpu", "progression": "gpu_progression", "all": "all_gpus"}[devices]
        skip = f"no GPU is visible, and the job's placement is {named} ({named}_or_cpu would allow the CPU)"
        yield _step(1, (), skip) if devices == "progression" else Place(skip=skip)
        return
    on_gpus = devices != "none" and bool(gpus)
    if on_gpus and (asked or 1) > len(gpus):
        raise UsageError(f"job '{job.name}': parallel.dp {asked} is over the {len(gpus)} visible GPUs; lower it")
    if on_gpus and devices == "each":
        yield from (Place((gpu,), number=gpu.visible_index) for gpu in gpus)
        return
    most = asked or (len(gpus) if on_gpus else 1 if devices in ("each", "none") else CPU_RANKS)
    if devices != "progression":
        yield Place(tuple(gpus[:most]) if on_gpus else (), most)
        return
    for ranks in range(1, most + 1):
        yield _step(ranks, gpus[:ranks] if on_gpus else ())


def _step(ranks: int, gpus: Sequence[Gpu], skip: str | None = None) -> Place:
    """One number of GPUs, or on a CPU of ranks, of a progression."""
    return Place(tuple(gpus), ranks, ranks - 1, {"gpus" if gpus or skip else "ranks": ranks}, skip)


def missing_packages(job: Job) -> str | None:
    """Why a job's model cannot be imported here, with the command that installs what is missing."""
    missing = entries.declared(job.model, job.entry).missing()
    wanted = " ".join(shlex.quote(package) for package in missing)
    return f"a package is missing: pip install {wanted}" if missing else None


def task_environ(job: Job, gpus: Sequence[Gpu], environ: Mapping[str, str]) -> dict[str, str]:
    """The recorded environment of a task: its GPUs by UUID, in PCI order unless the user chose, and the job's `env`."""
    return {
        **recorded_environ(environ),
        "CUDA_DEVICE_ORDER": environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        "CUDA_VISIBLE_DEVICES": ",".join(g.uuid for g in gpus) or NO_GPU,
        **job.env,
    }


def plan_of(tasks: Sequence[Task]) -> Plan:
    """The plan of tasks that are placed already, in their order."""
    grouped = itertools.groupby(tasks, key=lambda task: task.wave)
    return Plan(waves=tuple(Wave(name=name, tasks=tuple(wave)) for name, wave in grouped))
