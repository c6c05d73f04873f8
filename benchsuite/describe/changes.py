"""The differences between jobs, in words: a profile and the shipped one, a rerun and its original, two plans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchsuite.describe.tasks import Job, profile_fields


def changes(before: Mapping[str, Job], after: Mapping[str, Job]) -> tuple[str, ...]:
    """The differences between two sets of named jobs, each a phrase such as "vae: params.batch_size 128 -> 64"."""
    found = [f"{name}: not run" for name in before if name not in after]
    found += [f"{name}: added" for name in after if name not in before]
    for name, job in before.items():
        if name in after and job != after[name]:
            found += [f"{name}: {change}" for change in job_changes(job, after[name])]
    return tuple(found)


def job_changes(before: Job, after: Job) -> list[str]:
    """The fields in which two jobs differ, each a phrase such as "precision fp32 -> bf16".

    `gpu_memory_gib` is left out: it describes the work and does not change it.
    """
    old, new = flat(profile_fields(before)), flat(profile_fields(after))
    for fields in (old, new):
        del fields["gpu_memory_gib"]
    return [
        f"{key} {_shown(old.get(key))} -> {_shown(new.get(key))}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]


def flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as a single one with dotted names.

    Args:
        prefix: put before each name.
    """
    found: dict[str, Any] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value) if isinstance(value, list | tuple | dict) else str(value)
