"""The further figures of a result, which a probe leaves beside its rate, in words."""

from __future__ import annotations

from benchsuite.measurement import Reading
from benchsuite.records import Result
from benchsuite.report.format import number, one_line

# With more labels than these, only the lowest and the highest value are shown.
_SHOWN = 8
_LONGEST = 600


def readings_words(result: Result) -> str:
    """All readings of a result in one line; empty if it has none. Fingerprints are left out."""
    readings = {name: one for stream in result.measurement.streams for name, one in stream.readings.items()}
    words = [f"{name} {_words(one)}" for name, one in readings.items() if one.unit != "hash" and _holds(one)]
    return one_line("; ".join(words), _LONGEST) if words else ""


def _holds(reading: Reading) -> bool:
    return reading.value is not None or bool(reading.values)


def _words(reading: Reading) -> str:
    if isinstance(reading.value, str):
        return reading.value
    if reading.value is not None:
        return f"{number(reading.value)} {reading.unit}"
    pairs = list(zip(reading.labels, reading.values, strict=False))
    known = sorted((value, label) for label, value in pairs if value is not None)
    if len(pairs) > _SHOWN and known:
        (low, lowest), (high, highest) = known[0], known[-1]
        return f"{number(low)} ({lowest}) to {number(high)} ({highest}) {reading.unit}"
    return f"{', '.join(f'{label}: {number(value)}' for label, value in pairs)} {reading.unit}"
