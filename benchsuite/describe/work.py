"""What a job trains: throughputs may be compared where, and only where, it is the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from benchsuite.describe.changes import flat
from benchsuite.describe.tasks import Job, written
from benchsuite.describe.training import Training

# The fields that make two jobs unlike: the model, every field of `Training`, and the input.
FIELDS = ("model", "entry", "params", *Training.__struct_fields__, "data", "page_cache")
# Where ranks meet changes nothing of what they train.
_SAME_WORK = frozenset({"parallel.port"})
# Fields of a job that a summary does not keep: they change nothing that is measured, or may hold what must not spread.
_NOT_KEPT = frozenset({"matrix", "tags", "loss_band", "prepare", "env"})


def settings(job: Job) -> dict[str, Any]:
    """What was asked of a job, by field, every parameter with its value."""
    return {name: value for name, value in written(job).items() if name not in _NOT_KEPT}


def work(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted name -> value of everything in a job's settings that makes it another workload."""
    trained = {name: fields[name] for name in FIELDS if name in fields}
    return {name: value for name, value in flat(trained).items() if name not in _SAME_WORK}


def workload(fields: Mapping[str, Any]) -> str:
    """SHA-256 of what a job trains, as canonical JSON of its fields."""
    what = {name: fields.get(name) for name in FIELDS}
    what["parallel"] = {name: value for name, value in (what["parallel"] or {}).items() if name != "port"}
    return hashlib.sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
