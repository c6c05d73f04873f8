"""The workload of a job. Throughputs are comparable if, and only if, the workloads are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from benchsuite.describe.changes import flat
from benchsuite.describe.goal import DEFAULTS as GOAL
from benchsuite.describe.tasks import Job, profile_fields
from benchsuite.describe.training import Training

# The fields of a workload: the model, every field of `Training`, the input, and the neighbours on the GPU.
FIELDS = ("model", "entry", "params", *Training.__struct_fields__, "data", "page_cache", "sharing", "copies")
# The file of a model of the user's own. It is a part of the workload where it is recorded.
ENTRY_FILE = "entry_sha256"
# The port at which ranks meet does not affect what they train.
_SAME_WORK = frozenset({"parallel.port"})
# Parameters that a model gained after it was measured, with the value that leaves it as it was. A job with this value
# is the same work as one of a summary without the parameter.
_GAINED: Mapping[str, Mapping[str, Any]] = {"atari": {"algo": "ppo"}}
# Fields of a job that a summary does not keep: they do not affect the measurement, or may hold secrets.
_NOT_KEPT = frozenset({"matrix", "tags", "loss_band", "prepare", "env", "gpu_memory_gib"})
# Fields that were added without a new schema, with the values that every older file has. A summary leaves out such a
# value, so that its settings and the hash of its workload are those of an older one.
_ADDED: dict[str, Any] = {
    "checkpoint": False,
    "lr_schedule": None,
    "container": None,
    "unfused_units": 0,
    "sharing": "serial",
    "copies": 1,
    **GOAL,
}
_ADDED_TO_PARALLEL: dict[str, Any] = dict.fromkeys(
    ("fsdp", "backend", "pp", "schedule", "microbatches", "stages", "replicas")
)


def settings(job: Job, entry_sha256: str | None = None) -> dict[str, Any]:
    """The fields of a job that a summary keeps, with every parameter of the model.

    Args:
        entry_sha256: the hash of the file of a model of the user's own, if it is recorded.
    """
    fields = {name: value for name, value in profile_fields(job).items() if name not in _NOT_KEPT}
    kept = {**_without(fields, _ADDED), "parallel": _without(fields["parallel"], _ADDED_TO_PARALLEL)}
    return {**kept, ENTRY_FILE: entry_sha256} if entry_sha256 else kept


def _without(fields: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in added or value != added[name]}


def work(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The workload of a job: dotted name -> value.

    Args:
        fields: the job's settings.
    """
    own = _without_gained(fields)
    trained = {name: own[name] for name in (*FIELDS, ENTRY_FILE) if name in own}
    return {name: value for name, value in flat(trained).items() if name not in _SAME_WORK}


def workload(fields: Mapping[str, Any]) -> str:
    """SHA-256 of a workload, from the canonical JSON of its fields."""
    fields = _without_gained(fields)
    what = {name: fields.get(name) for name in FIELDS if name in fields or name not in _ADDED}
    what["parallel"] = {name: value for name, value in (what["parallel"] or {}).items() if name != "port"}
    if fields.get(ENTRY_FILE):
        what[ENTRY_FILE] = fields[ENTRY_FILE]
    return hashlib.sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _without_gained(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, the parameters without those of `_GAINED` that leave the model as it was."""
    neutral = _GAINED.get(fields.get("model") or "", {})
    if not neutral:
        return dict(fields)
    params = fields.get("params") or {}
    kept = {name: value for name, value in params.items() if name not in neutral or neutral[name] != value}
    return {**fields, "params": kept}
