"""How jobs differ, in words: of a profile from the shipped one, of a rerun from its original."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from benchsuite.describe.tasks import Job


def differences(before: Sequence[Job], after: Sequence[Job]) -> tuple[str, ...]:
    """How two lists of jobs differ, each change as a phrase such as "vae: params.batch_size 128 -> 64"."""
    old, new = {j.name: j for j in before}, {j.name: j for j in after}
    found = [f"{name}: not run" for name in old if name not in new] + [
        f"{name}: added" for name in new if name not in old
    ]
    for name in old:
        if name in new and old[name] != new[name]:
            found += [f"{name}: {change}" for change in job_changes(old[name], new[name])]
    return tuple(found)


def job_changes(before: Job, after: Job) -> list[str]:
    """The fields in which two jobs differ, old and new."""
    changes = []
    old, new = _flat(msgspec.to_builtins(before)), _flat(msgspec.to_builtins(after))
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            changes.append(f"{key} {_shown(old.get(key))} -> {_shown(new.get(key))}")
    return changes


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value) if isinstance(value, list | tuple | dict) else str(value)
