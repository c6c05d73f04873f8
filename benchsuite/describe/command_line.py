"""The command line that runs one task of a plan alone."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchsuite.describe import entries
from benchsuite.describe.tasks import Job, Task


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
