"""What a GPU's memory holds, from a recording of torch's allocator."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchsuite.errors import ResultError, one_line, reason
from benchsuite.measurement import MEMORY_KINDS, MemoryCurve

# A recorded peak that differs more from the allocator's own is not trusted.
TOLERANCE = 0.02


def read(path: Path) -> MemoryCurve:
    """Read a recording.

    Raises:
        ResultError: the file cannot be read, or is no recording of memory.
    """
    try:
        curve = msgspec.json.decode(path.read_bytes(), type=MemoryCurve)
    except OSError as error:
        raise ResultError(f"{one_line(str(path))}: cannot be read: {reason(error)}") from None
    except msgspec.DecodeError as error:
        raise ResultError(f"{one_line(str(path))}: no recording of memory: {error}") from None
    if any(len(point) != 1 + len(MEMORY_KINDS) for point in curve.points) or not curve.points:
        raise ResultError(
            f"{one_line(str(path))}: no recording of memory: a point needs a time and {len(MEMORY_KINDS)} sizes"
        )
    return curve


def off(curve: MemoryCurve) -> float | None:
    """How far the recorded peak is from the allocator's own, as a share of it; None if the latter is 0."""
    return sum(curve.at_peak.values()) / curve.peak_bytes - 1 if curve.peak_bytes else None
