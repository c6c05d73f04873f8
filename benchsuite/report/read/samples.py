"""The samples beside a result, `telemetry/*.jsonl`, and the measures that are drawn over time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec
from msgspec.structs import replace

from benchsuite.records import Result
from benchsuite.report.read.curves import Curve, Panel, Points
from benchsuite.report.read.load import Row
from benchsuite.report.read.rates import window_span
from benchsuite.telemetry import DeviceSample, SeriesOf, TenantSample


@dataclass
class Sampled:
    """One series: of a GPU, or of a task's processes; times on CLOCK_MONOTONIC."""

    about: SeriesOf
    samples: list[DeviceSample | TenantSample] = field(default_factory=list)
    node: str = ""

    @property
    def name(self) -> str:
        """The series in words, as a legend shows it."""
        words = "processes" if self.about.kind == "tenant" else f"GPU {self.about.visible_index}"
        return f"{self.node} {words}" if self.node else words


@dataclass(frozen=True)
class Measure:
    """A quantity that is drawn over time.

    Attributes:
        kind: the kind of series that has it, "device" or "tenant".
        points: the (seconds of CLOCK_MONOTONIC, value) of a series.
    """

    name: str
    unit: str
    kind: str
    points: Callable[[Sampled], Points]


def samples_panel(measure: Measure, series: Sequence[tuple[Row, Sampled]], start_s: float, end_s: float) -> Panel:
    """One measure of several series over seconds since `start_s`; a curve has the name of its GPU, or of its task.

    Args:
        start_s, end_s: seconds of CLOCK_MONOTONIC.
    """
    curves = []
    for row, of in series:
        name = row.task.id if of.about.kind == "tenant" else of.name
        points = [(at - start_s, value) for at, value in measure.points(of)]
        curves.append(Curve(row, name, measure.unit, points, end_s - start_s, window_span(row, start_s)))
    top = 100.0 if measure.unit == "%" else None
    return Panel(measure.name, measure.unit, tuple(curves), end_s - start_s, top)


class _Line(msgspec.Struct):
    """The fields of every line: `of` names the series, and only the line that describes a series has `kind`."""

    of: str
    kind: str | None = None


def samples_of(folder: Path, result: Result, *, whole: bool = False) -> list[Sampled]:
    """All series of a task, GPUs first. Those of several nodes are on the clock of the host that recorded the result.

    Args, Raises: see `read_samples`.
    """
    if not result.parts:
        return read_samples(folder, result.telemetry.series if result.telemetry else None, whole=whole)
    found = []
    for part in result.parts:
        for of in read_samples(folder, part.telemetry.series if part.telemetry else None, whole=whole):
            shifted = [replace(sample, monotonic_s=sample.monotonic_s - part.offset_s) for sample in of.samples]
            found.append(Sampled(of.about, shifted, part.node))
    return sorted(found, key=lambda of: of.about.kind)


def read_samples(folder: Path, series: str | None, *, whole: bool = False) -> list[Sampled]:
    """The series of one file of samples, GPUs first; a series without a sample is left out.

    Args:
        folder: the results folder.
        series: the file's name as a result keeps it, "telemetry/...jsonl"; None if no samples were kept.
        whole: raise an error for a damaged line or file; false skips it.

    Raises:
        OSError: the file cannot be read.
        ValueError: `series` is not a file of telemetry/, or a line is damaged.
    """
    found: dict[str, Sampled] = {}
    try:
        for line in _file(folder, series).read_bytes().splitlines() if series else ():
            _add(line, found, whole)
    except (OSError, ValueError):
        if whole:
            raise
    return sorted((of for of in found.values() if of.samples), key=lambda of: of.about.kind)


def _file(folder: Path, series: str) -> Path:
    """Raises ValueError: the name, which comes from a file, leads out of telemetry/."""
    parts = PurePosixPath(series).parts
    if len(parts) != 2 or parts[0] != "telemetry" or ".." in parts:
        raise ValueError(f"'{series}' is no file of telemetry/")
    return folder.joinpath(*parts)


def _add(line: bytes, found: dict[str, Sampled], whole: bool) -> None:
    try:
        read = msgspec.json.decode(line, type=_Line)
        if read.kind is not None:
            found[read.of] = Sampled(msgspec.json.decode(line, type=SeriesOf))
        elif (of := found.get(read.of)) is None:
            raise ValueError(f"no line describes the series '{read.of}'")
        else:
            kind: type[DeviceSample | TenantSample] = DeviceSample if of.about.kind == "device" else TenantSample
            of.samples.append(msgspec.json.decode(line, type=kind))
    except (ValueError, RecursionError) as error:
        if whole:
            raise ValueError(f"a line is damaged: {error}") from error


def _gauge(name: str, scale: float = 1.0) -> Callable[[Sampled], Points]:
    def points(of: Sampled) -> Points:
        read = ((sample.monotonic_s, getattr(sample, name, None)) for sample in of.samples)
        return [(at, value * scale) for at, value in read if value is not None]

    return points


def _rate(name: str) -> Callable[[Sampled], Points]:
    """The growth of a counter of CPU seconds per second, from sample to sample: the number of CPUs in use."""

    def points(of: Sampled) -> Points:
        return [
            (at, max(0.0, now - before) / (at - since))
            for (since, before), (at, now) in itertools.pairwise(_gauge(name)(of))
            if at > since
        ]

    return points


def _stolen(of: Sampled) -> Points:
    """The CPUs stolen; no points if all are 0, as on a machine that is not virtual."""
    points = _rate("cpus_stolen_s")(of)
    return points if any(value for _, value in points) else []


MEASURES: Sequence[Measure] = (
    Measure("power", "W", "device", _gauge("power_w")),
    Measure("SM clock", "MHz", "device", _gauge("sm_clock_mhz")),
    Measure("temperature", "°C", "device", _gauge("temperature_c")),
    Measure("GPU busy", "%", "device", _gauge("gpu_percent")),
    Measure("CPUs busy", "", "tenant", _rate("cpu_s")),
    Measure("CPUs stolen", "", "tenant", _stolen),
    Measure("memory", "GiB", "tenant", _gauge("rss_bytes", 2.0**-30)),
)
