"""Tracks of benchsuite in a timeline of torch.profiler: phases and slices of the task, samples of GPU and host."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchsuite import manifest
from benchsuite.measurement import Clock, Stream
from benchsuite.records import Result
from benchsuite.report.read.samples import MEASURES, read_samples
from benchsuite.rundir import results

_PROCESS = "benchsuite"
_OPENING = re.compile(r'"traceEvents"\s*:\s*\[')
_BASE = re.compile(r'"baseTimeNanoseconds"\s*:\s*(\d+)')
# The events begin within the first characters, after the properties of the devices.
_HEAD_CHARACTERS = 1 << 20


def add_to_run(folder: Path) -> list[str]:
    """Write the tracks into every timeline of a run, and its manifest anew.

    Returns:
        Why a timeline has none, a line each.

    Raises:
        OutputError: the manifest cannot be written.
    """
    manifest.unseal(folder)
    missing = []
    for _, result in results(folder):
        if not isinstance(result, Result) or not result.task.trace or result.task.trace.tool != "timeline":
            continue
        for stream in (one for one in result.measurement.streams if one.traced):
            name = f"{result.task.id}: the timeline has no tracks of benchsuite's own"
            try:
                if not add_tracks(folder, result, stream):
                    missing.append(f"{name}: its form is not known")
            except (OSError, ValueError) as error:
                missing.append(f"{name}: {error}")
    manifest.seal(folder)
    return missing


def add_tracks(folder: Path, result: Result, stream: Stream) -> bool:
    """Write benchsuite's own tracks into the timeline of a stream.

    The trace counts microseconds of the wall clock from a base that it names; the stream's clock joins both clocks.

    Returns:
        False if the file has another form than that of torch.profiler, and is left as it is.

    Raises:
        OSError, ValueError: the trace or the samples cannot be read.
    """
    assert stream.traced
    path = folder / stream.traced.file
    aside = path.with_name(f".{path.name}.tmp")
    with gzip.open(path, "rt", encoding="utf-8") as trace:
        head = trace.read(_HEAD_CHARACTERS)
        opening, base = _OPENING.search(head), _BASE.search(head)
        if opening is None or base is None:
            return False
        zero_us = _zero_us(stream.clock, int(base[1]))
        ours = ",\n".join(json.dumps(event, allow_nan=False) for event in _events(folder, result, stream, zero_us))
        try:
            with gzip.open(aside, "wt", encoding="utf-8", compresslevel=6) as new:
                new.write(f"{head[: opening.end()]}{ours},\n{head[opening.end() :]}")
                while chunk := trace.read(1 << 20):
                    new.write(chunk)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    return True


def _zero_us(clock: Clock, base_ns: int) -> float:
    """What to add to microseconds of CLOCK_MONOTONIC to get those of the trace."""
    wall_us = datetime.fromisoformat(clock.wall).timestamp() * 1e6
    return wall_us - clock.monotonic_s * 1e6 - base_ns / 1e3


def _events(folder: Path, result: Result, stream: Stream, zero_us: float) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "args": {"name": f"benchsuite: {result.task.id}"}}
    for name, start_s, end_s in _phases(result, stream):
        yield _span("phases", name, start_s, end_s, zero_us)
    for one in stream.slices:
        name = f"{one.items / one.elapsed_s:,.4g} {stream.unit}/s"
        yield _span("slices", name, stream.origin_s + one.start_s, stream.origin_s + one.end_s, zero_us)
    for of in read_samples(folder, result.telemetry.series if result.telemetry else None):
        for measure in MEASURES:
            for at_s, value in measure.points(of) if measure.kind == of.about.kind else ():
                name = f"{of.name}: {measure.name}"
                at_us = at_s * 1e6 + zero_us
                yield {"ph": "C", "name": name, "pid": _PROCESS, "ts": at_us, "args": {measure.unit or "value": value}}


def _phases(result: Result, stream: Stream) -> Iterator[tuple[str, float, float]]:
    """The phases that a task reached: name, start and end, in seconds of CLOCK_MONOTONIC."""
    times = result.timeline
    if times.started_s is not None and times.ready_s is not None:
        yield "start and warm-up", times.started_s, times.ready_s
    if stream.slices:
        yield "measurement", stream.origin_s, stream.origin_s + stream.slices[-1].end_s
    traced = stream.traced
    if traced and traced.start_s is not None:
        yield "recording", traced.start_s, traced.start_s + traced.elapsed_s


def _span(track: str, name: str, start_s: float, end_s: float, zero_us: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": _PROCESS,
        "name": name,
        "pid": _PROCESS,
        "tid": track,
        "ts": start_s * 1e6 + zero_us,
        "dur": (end_s - start_s) * 1e6,
    }
