"""The command line that runs one task of a plan alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from benchsuite.describe import entries
from benchsuite.describe.invocation import program
from benchsuite.describe.overrides import FIELDS, as_argument
from benchsuite.describe.tasks import Job, Task, profile_fields

# These fields do not affect a task that runs alone, or other words of the line stand for them. All others are printed.
_LEFT_OUT = (
    *("matrix", "placement", "sharing", "copies", "parallel", "loss_band", "tenant", "tags", "prepare", "env"),
    *("gpu_memory_gib",),
)


def command_line(task: Task) -> str:
    """A shell command that trains the same alone, on the same GPU, and prints the result to stdout."""
    environ = {name: task.environ[name] for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")}
    before = ["env", *(f"{name}={value}" for name, value in environ.items())]
    words = ["run", task.job.model or task.job.entry or ""]
    if task.data_root:
        words += ["-d", task.data_root]
    words += ["--", *_place_arguments(task), *_job_arguments(task.job), *_param_arguments(task.job)]
    return " ".join([*map(_quoted, before), program(), *map(_quoted, words)])


def _quoted(word: str) -> str:
    """A word quoted for a shell. Unprintable characters become escapes that bash, zsh and ksh read."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escaped(c) for c in word) + "'"


def _escaped(character: str) -> str:
    if not character.isprintable():
        return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    return f"\\{character}" if character in "\\'" else character


def _place_arguments(task: Task) -> Iterator[str]:
    """Placement and ranks, unless the task is one process on one GPU."""
    if task.job.placement.devices == "none" or not task.gpus:
        yield from ("--placement", "cpu")
    elif task.job.placement.devices in ("all", "progression"):
        yield from ("--placement", "all_gpus")
    parallel = task.job.training.parallel
    if task.ranks > 1 or parallel.port or parallel.fsdp:
        shards = parallel.shards(task.ranks)
        dp = task.ranks // (parallel.multiple if parallel.pp else shards)
        exact = msgspec.structs.replace(parallel, dp=dp, fsdp=shards if parallel.fsdp else None)
        fields = msgspec.to_builtins(exact)
        yield as_argument("parallel", {name: value for name, value in fields.items() if value is not None})


def _job_arguments(job: Job) -> Iterator[str]:
    """The fields that differ from their defaults, as words after `--`."""
    fields, bare = profile_fields(job), profile_fields(Job(name=job.name))
    for name in FIELDS:
        needed = name == "min_time_s" and bool(job.max_count or job.max_steps)
        needed |= name == "timeout_s" and job.max_time_s != bare["max_time_s"]
        if name not in _LEFT_OUT and fields[name] is not None and (fields[name] != bare[name] or needed):
            yield as_argument(name, fields[name])
    for name in ("prepare", "env"):
        if fields[name]:
            yield as_argument(name, fields[name])


def _param_arguments(job: Job) -> Iterator[str]:
    declared = entries.declared(job.model, job.entry).parameters
    for name, value in job.params.items():
        if value == entries.plain(declared[name].default):
            continue
        if isinstance(value, str) and declared[name].type is not str:
            value = msgspec.json.encode(value).decode()  # other types are read as YAML
        if isinstance(value, bool) and declared[name].type is not bool:
            value = str(value).lower()  # a flag stands for a plain bool only
        yield as_argument(name, value)
