"""Pure: profile x machine -> every task, in order, before anything starts."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchsuite import entries
from benchsuite.errors import UsageError
from benchsuite.rundir import job_id
from benchsuite.tasks import Gpu, Job, Plan, Task, recorded_environ

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


def command_line(task: Task) -> str:
    """A line for a shell that runs the same training alone, on the same GPU; its result goes to stdout."""
    environ = {name: task.environ[name] for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")}
    words = ["env", *(f"{name}={value}" for name, value in environ.items())]
    script = Path(sys.executable).with_name("benchsuite")
    words += [str(script)] if script.exists() else [sys.executable, "-m", "benchsuite"]
    words += ["run", task.job.model or task.job.entry or ""]
    if task.data_root:
        words += ["-d", task.data_root]
    words += ["--", *_place_arguments(task), *_job_arguments(task.job), *_param_arguments(task.job)]
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """For a shell; a word with characters that cannot be seen has escapes in their place, as bash and its like have."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escaped(c) for c in word) + "'"


def _escaped(character: str) -> str:
    if not character.isprintable():
        return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    return f"\\{character}" if character in "\\'" else character


def _place_arguments(task: Task) -> Iterator[str]:
    """Where it goes and in how many ranks, where that is not one process on a GPU."""
    if task.job.placement.devices == "none" or not task.gpus:
        yield from ("--placement", "cpu")
    elif task.job.placement.devices in ("all", "progression"):
        yield from ("--placement", "all_gpus")
    if task.ranks > 1 or task.job.parallel.port:
        port = {"port": task.job.parallel.port} if task.job.parallel.port else {}
        yield f"--parallel={_json({'dp': task.ranks, **port})}"


def _job_arguments(job: Job) -> Iterator[str]:
    """The fields in which a job differs from a bare one, as words after `--`."""
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
