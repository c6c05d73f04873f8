"""Pure: profile x machine -> every task, in order, before anything starts."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchsuite.describe import entries
from benchsuite.describe.tasks import Gpu, Job, Plan, Task, recorded_environ
from benchsuite.errors import UsageError
from benchsuite.rundir import job_id

# How many ranks stand for the GPUs where a job for several runs on the CPU instead: enough to see that it works.
CPU_RANKS = 2
# For a child without a GPU: an empty list hides them all.
NO_GPU = ""


def make_plan(
    profile: str,
    jobs: Sequence[Job],
    gpus: Sequence[Gpu],
    *,
    environ: Mapping[str, str],
    repeats: int = 1,
    data_root: str | None = None,
) -> Plan:
    """All tasks of a run: repeat by repeat, job by job, one for each visible GPU.

    Args:
        profile: the profile's name.
        gpus: the visible GPUs, in their order.
        environ: the environment that children will inherit; what matters of it is recorded in each task.
        data_root: the folder of the data sets.

    Raises:
        UsageError: a job asks for more ranks than there are GPUs.
    """
    tasks: list[Task] = []
    for repeat, job in itertools.product(range(repeats), jobs):
        for place in places(job, gpus):
            tasks.append(make_task(profile, job, place, repeat=repeat, environ=environ, data_root=data_root))
    return Plan(tasks=tuple(tasks))


def make_task(
    profile: str,
    job: Job,
    place: Place,
    *,
    environ: Mapping[str, str],
    repeat: int = 0,
    data_root: str | None = None,
) -> Task:
    """One task in its place."""
    task = Task(
        id="",
        profile=profile,
        repeat=repeat,
        job=job,
        gpus=place.gpus,
        ranks=place.ranks,
        data_root=data_root,
        environ=task_environ(job, place.gpus, environ),
        skip=place.skip or missing_packages(job),
        cwd=str(Path.cwd()) if job.entry else None,
    )
    return msgspec.structs.replace(task, id=f"{job.name}.J{job_id(task)}")


@dataclass(frozen=True)
class Place:
    """Where a task goes, and how many processes train it together; `skip`: why it cannot run."""

    gpus: tuple[Gpu, ...] = ()
    ranks: int = 1
    skip: str | None = None


def places(job: Job, gpus: Sequence[Gpu]) -> Iterator[Place]:
    """The place of each task of a job: a progression has one for each number of GPUs or, on the CPU, of ranks.

    Raises:
        UsageError: the job asks for more ranks than there are GPUs.
    """
    devices, asked = job.placement.devices, job.parallel.dp
    if devices != "none" and not gpus and not job.placement.cpu_allowed:
        named = {"each": "per_gpu", "progression": "gpu_progression", "all": "all_gpus"}[devices]
        yield Place(skip=f"no GPU is visible, and the job's placement is {named} ({named}_or_cpu would allow the CPU)")
        return
    on_gpus = devices != "none" and bool(gpus)
    if on_gpus and (asked or 1) > len(gpus):
        raise UsageError(f"job '{job.name}': parallel.dp {asked} is over the {len(gpus)} visible GPUs; lower it")
    if on_gpus and devices == "each":
        yield from (Place((gpu,)) for gpu in gpus)
        return
    most = asked or (len(gpus) if on_gpus else 1 if devices in ("each", "none") else CPU_RANKS)
    for ranks in range(1 if devices == "progression" else most, most + 1):
        yield Place(tuple(gpus[:ranks]) if on_gpus else (), ranks)


def missing_packages(job: Job) -> str | None:
    """Why a job's model cannot be imported here, with the command that mends it."""
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


def waves(tasks: Sequence[Task]) -> list[list[Task]]:
    """Tasks that run side by side: a job's in one repeat; of a progression each is alone."""

    def wave(task: Task) -> tuple[int, str, int]:
        return task.repeat, task.job.name, task.ranks

    grouped = itertools.groupby(tasks, key=wave)
    return [list(group) for _, group in grouped]
