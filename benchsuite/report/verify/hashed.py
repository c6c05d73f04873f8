"""The hashes by which the files of a run refer to each other, recomputed.

The run's own benchsuite made them from its records (`profile.load`, `host.machine.facts_sha256`). The records of a
newer benchsuite have more fields. So each hash is computed twice: from today's record, and from the JSON file, whose
fields keep the order of the old record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchsuite.describe.goal import DEFAULTS as GOAL
from benchsuite.describe.tasks import Job, Task, profile_fields
from benchsuite.records import Machine
from benchsuite.schema import Record, decode

# The fields of a job in schema 1, in the order of its record.
_FIELDS_1 = (
    *(
        "name",
        "model",
        "entry",
        "params",
        "placement",
        "parallel",
        "max_count",
        "max_steps",
        "min_time_s",
        "max_time_s",
    ),
    *("timeout_s", "loss_band", "precision", "compile", "channels_last", "data", "page_cache", "prepare", "env"),
    *("tenant", "tags"),
)
# The fields of a job that schema 2 did not have, those of its training that schema 3 did not have, and those that were
# added to a job, its training and its `parallel` during schema 4.
_NEW_IN_3 = ("warm_up_s",)
_JOB_ADDED = ("container", "sharing", "copies")
_TRAINING_NEW_IN_4 = ("intra_op_threads",)
_TRAINING_ADDED, _NEWEST_OF_TRAINING = ("checkpoint", "lr_schedule", "unfused_units"), ("lr_schedule", "unfused_units")
_NEWEST_OF_PARALLEL = ("backend", "pp", "schedule", "microbatches", "stages", "replicas")
_PARALLEL_ADDED = ("fsdp", *_NEWEST_OF_PARALLEL)


def jobs(tasks: Sequence[Task], file: Path | None = None) -> tuple[str, ...]:
    """The possible hashes of a profile's jobs, from their planned tasks and plan.json.

    A plan holds no job with its matrix, so the hash of such a profile comes from planning again.
    """
    records = list({task.job.name: task.job for task in tasks}.values())
    found = [_sha256(records)]
    content = _content(file) or {}
    kept = [*content.get("tasks", ()), *(task for wave in content.get("waves", ()) for task in wave["tasks"])]
    raw = {task["job"]["name"]: task["job"] for task in kept}
    if len(raw) == len(records):
        found.append(_sha256([_ordered(raw[job.name], job) for job in records]))
    return tuple(found)


def jobs_of_schema(schema: int, found: Sequence[Job]) -> tuple[str, ...]:
    """The possible hashes of a profile's jobs as records with fewer fields made them.

    A resume rewrites plan.json with today's fields.
    """
    if schema == 1:
        return (_of_schema_1(found),)
    of_training = _TRAINING_ADDED if schema >= 4 else (*_TRAINING_ADDED, *_TRAINING_NEW_IN_4)
    newest = (*_JOB_ADDED, *GOAL)
    oldest = _without(found, (*newest, *(_NEW_IN_3 if schema == 2 else ())), of_training)
    return (oldest, _without(found, newest, _NEWEST_OF_TRAINING, _NEWEST_OF_PARALLEL)) if schema >= 4 else (oldest,)


def _of_schema_1(found: Sequence[Job]) -> str:
    rows = []
    for job in found:
        fields = {"name": job.name, **profile_fields(job)}
        row = {name: fields[name] for name in _FIELDS_1}
        row["parallel"] = _less(row["parallel"], _PARALLEL_ADDED)
        row["placement"] = _of_placement(row["placement"])
        rows.append({**row, **{name: dict(sorted(row[name].items())) for name in ("params", "env")}})
    return hashlib.sha256(msgspec.json.encode(rows)).hexdigest()


def _without(
    found: Sequence[Job],
    of_job: Collection[str],
    of_training: Collection[str],
    of_parallel: Collection[str] = _PARALLEL_ADDED,
) -> str:
    rows = []
    for job in found:
        fields = msgspec.to_builtins(job)
        training = _less(fields["training"], of_training)
        training["parallel"] = _less(training["parallel"], of_parallel)
        placement = _of_placement(fields["placement"])
        rows.append(_ordered(_less({**fields, "training": training, "placement": placement}, of_job), job))
    return _sha256(rows)


def _of_placement(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A placement with the fields that it had before `sharing` and `copies` were fields of the job."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        found[name] = value
        if name == "nodes":
            found |= {"copies": 1, "share": "timeslice"}
    return found


def _less(fields: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def facts(machine: Machine, file: Path | None = None) -> tuple[str, ...]:
    """The possible hashes of a machine's facts, from its record and the run.json that holds it."""
    content = _content(file)
    raw = (content.get("machines") or [content.get("machine")])[0] if content else None
    return (machine.sha256, *([_sha256(_ordered(raw, machine))] if raw else []))


def _content(file: Path | None) -> dict[str, Any] | None:
    """A file as plain JSON; None if it cannot be read."""
    try:
        return dict(decode(file.read_bytes())) if file else None
    except (OSError, ValueError):
        return None


def _ordered(raw: dict[str, Any], record: Record) -> msgspec.Raw:
    """A record's JSON: the keys of its mappings sorted, its own fields in the order of the file."""
    parts = (
        msgspec.json.encode(name)
        + b":"
        + msgspec.json.encode(value, order="deterministic" if isinstance(getattr(record, name, None), dict) else None)
        for name, value in raw.items()
    )
    return msgspec.Raw(b"{" + b",".join(parts) + b"}")


def _sha256(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()
