"""The hashes by which the files of a run name each other, recomputed.

They were made of the records that the run's own benchsuite knew (`profile.load`, `host.machine.facts_sha256`). A newer
one knows more fields, so each hash is made twice: of today's record, and of the JSON as it was written, whose fields
stand in the order of the record of then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.records import Machine
from benchsuite.schema import Record, decode


def jobs(tasks: Sequence[Task], file: Path | None = None) -> tuple[str, ...]:
    """What the hash of a profile's jobs may be, given the tasks planned of them and their plan.json.

    A job with a matrix stands in no plan as the profile has it; its hash comes from planning again.
    """
    records = list({task.job.name: task.job for task in tasks}.values())
    found = [_sha256(records)]
    content = _content(file) or {}
    kept = [*content.get("tasks", ()), *(task for wave in content.get("waves", ()) for task in wave["tasks"])]
    raw = {task["job"]["name"]: task["job"] for task in kept}
    if len(raw) == len(records):
        found.append(_sha256([_ordered(raw[job.name], job) for job in records]))
    return tuple(found)


def schema_of(file: Path) -> int:
    """The schema number that a kept file was written with; 0 where none can be read."""
    found = (_content(file) or {}).get("schema")
    return found if isinstance(found, int) else 0


def facts(machine: Machine, file: Path | None = None) -> tuple[str, ...]:
    """What the hash of a machine's facts may be, given its record and the run.json that holds it."""
    content = _content(file)
    raw = (content.get("machines") or [content.get("machine")])[0] if content else None
    return (_sha256(machine), *([_sha256(_ordered(raw, machine))] if raw else []))


def _content(file: Path | None) -> dict[str, Any] | None:
    """A kept record that was read before as plain JSON; None where it is not there any more."""
    try:
        return dict(decode(file.read_bytes())) if file else None
    except (OSError, ValueError):
        return None


def _ordered(raw: dict[str, Any], record: Record) -> msgspec.Raw:
    """A record's JSON with its mappings in the order of their keys, its own fields as they are."""
    parts = (
        msgspec.json.encode(name)
        + b":"
        + msgspec.json.encode(value, order="deterministic" if isinstance(getattr(record, name, None), dict) else None)
        for name, value in raw.items()
    )
    return msgspec.Raw(b"{" + b",".join(parts) + b"}")


def _sha256(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()
