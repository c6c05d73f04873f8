"""Pure: profile x machine -> every task, in order, before anything starts."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchsuite import entries
from benchsuite.rundir import job_id
from benchsuite.tasks import Gpu, Job, Plan, Task, recorded_environ

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
    """
    tasks: list[Task] = []
    for repeat, job in itertools.product(range(repeats), jobs):
        for placed, skip in places(job, gpus):
            tasks.append(
                make_task(profile, job, placed, repeat=repeat, environ=environ, data_root=data_root, skip=skip)
            )
    return Plan(tasks=tuple(tasks))


def make_task(
    profile: str,
    job: Job,
    gpus: tuple[Gpu, ...],
    *,
    environ: Mapping[str, str],
    repeat: int = 0,
    data_root: str | None = None,
    skip: str | None = None,
) -> Task:
    """One task on the given GPUs, or on the CPU where there are none."""
    task = Task(
        id="",
        profile=profile,
        repeat=repeat,
        job=job,
        gpus=gpus,
        data_root=data_root,
        environ=task_environ(job, gpus, environ),
        skip=skip or missing_packages(job),
        cwd=str(Path.cwd()) if job.entry else None,
    )
    return msgspec.structs.replace(task, id=f"{job.name}.J{job_id(task)}")


def places(job: Job, gpus: Sequence[Gpu]) -> Iterator[tuple[tuple[Gpu, ...], str | None]]:
    """The GPUs of each task of a job, and why it cannot run."""
    if job.placement.devices == "none":
        yield (), None
    elif gpus and job.placement.devices == "progression":
        for number in range(1, len(gpus) + 1):
            yield tuple(gpus[:number]), "several GPUs in one task: not in this version" if number > 1 else None
    elif gpus:
        yield from (((gpu,), None) for gpu in gpus)
    elif job.placement.cpu_allowed:
        yield (), None
    else:
        yield (), "no GPU is visible, and the profile does not allow this job on the CPU (placement: per_gpu_or_cpu)"


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
        return task.repeat, task.job.name, len(task.gpus) if task.job.placement.devices == "progression" else 0

    grouped = itertools.groupby(tasks, key=wave)
    return [list(group) for _, group in grouped]


def command_line(task: Task) -> str:
    """A line for a shell that runs the same training alone, on the same GPU; its result goes to stdout."""
    environ = {name: task.environ[name] for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")}
    words = ["env", *(f"{name}={value}" for name, value in environ.items())]
    script = Path(sys.executable).with_name("benchsuite")
    words += [str(script)] if script.exists() else [sys.executable, "-m", "benchsuite"]
    words += ["run", task.job.model or task.job.entry or ""]
    if task.data_root:
        words += ["-d", task.data_root]
    return shlex.join([*words, "--", *_job_arguments(task.job), *_param_arguments(task.job)])


def _job_arguments(job: Job) -> Iterator[str]:
    """The fields in which a job differs from a bare one, as words after `--`."""
    if job.placement.devices == "none":
        yield from ("--placement", "cpu")
    bare = Job(name=job.name)
    for field in (
        "max_count",
        "max_steps",
        "min_time_s",
        "max_time_s",
        "timeout_s",
        "precision",
        "compile",
        "channels_last",
        "data",
        "page_cache",
    ):
        value = getattr(job, field)
        needed = field == "min_time_s" and (job.max_count or job.max_steps)
        if value is not None and (value != getattr(bare, field) or needed):
            yield f"--{field.replace('_', '-')}={_number(value)}"
    for field in ("prepare", "env"):
        value = getattr(job, field)
        if value:
            yield f"--{field}={value if isinstance(value, str) else _json(value)}"


def _param_arguments(job: Job) -> Iterator[str]:
    declared = entries.declared(job.model, job.entry).parameters
    for name, value in job.params.items():
        if value == entries.plain(declared[name].default):
            continue
        text = value if declared[name].type is str else _json(value)
        yield f"--{name.replace('_', '-')}={text}"


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
