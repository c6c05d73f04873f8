"""The names of cells and waves, made of a job and the values of its axes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def cell_name(job: str, axes: Mapping[str, Any]) -> str:
    """The job's name with the values of its axes."""
    values = ",".join(f"{axis}={axis_value(value)}" for axis, value in axes.items())
    return f"{job}[{values}]" if values else job


def axis_value(value: Any) -> str:
    """The value of an axis as names and tables show it. Text that a name could be misread by is quoted."""
    if isinstance(value, str) and value.isprintable() and not set(value) & set(',=[]"'):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def wave_name(row: str, repeat: int, part: int | None = None) -> str:
    """The name of the wave in which the tasks of a row run in one repeat.

    Args:
        part: its number among the waves of the row; None if it is the only one.
    """
    return f"{row}.R{repeat}" + ("" if part is None else f".{part}")
