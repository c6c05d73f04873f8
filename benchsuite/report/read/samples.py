"""The samples beside a result: `telemetry/*.jsonl`, read as far as they are whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import msgspec

from benchsuite.records import Result
from benchsuite.telemetry import DeviceSample, SeriesOf, TenantSample

Points = list[tuple[float, float]]


@dataclass
class Sampled:
    """One series: of a GPU, or of a task's processes; times on CLOCK_MONOTONIC."""

    about: SeriesOf
    samples: list[DeviceSample | TenantSample] = field(default_factory=list)

    @property
    def name(self) -> str:
        """How people call it."""
        return "processes" if self.about.kind == "tenant" else f"GPU {self.about.visible_index}"


@dataclass(frozen=True)
class Measure:
    """What is drawn over time: name, unit, and how a series gives its points (seconds of CLOCK_MONOTONIC, value)."""

    name: str
    unit: str
    kind: str
    points: Callable[[Sampled], Points]


def read_samples(folder: Path, result: Result) -> list[Sampled]:
    """The series of a result, GPUs first; empty where none were kept or the file is gone. Bad lines are passed over."""
    if result.telemetry is None or not result.telemetry.series:
        return []
    # A name from a file must not lead out of the folder.
    file = folder / "telemetry" / PurePath(result.telemetry.series).name
    try:
        lines = file.read_bytes().splitlines() if file.is_file() else []
    except OSError:
        return []
    found: dict[str, Sampled] = {}
    for line in lines:
        try:
            content = msgspec.json.decode(line)
            if "kind" in content:
                about = msgspec.convert(content, SeriesOf)
                found[about.of] = Sampled(about)
                continue
            of = found[content["of"]]
            if of.about.kind == "device":
                of.samples.append(msgspec.convert(content, DeviceSample))
            else:
                of.samples.append(msgspec.convert(content, TenantSample))
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, RecursionError):
            continue
    return sorted((of for of in found.values() if of.samples), key=lambda of: of.about.kind)


def _gauge(name: str, scale: float = 1.0) -> Callable[[Sampled], Points]:
    def points(of: Sampled) -> Points:
        read = ((sample.monotonic_s, getattr(sample, name, None)) for sample in of.samples)
        return [(at, value * scale) for at, value in read if value is not None]

    return points


def _rate(name: str) -> Callable[[Sampled], Points]:
    """How much a counter of seconds grew a second, between one sample and the next: so many processors."""

    def points(of: Sampled) -> Points:
        return [
            (at, max(0.0, now - before) / (at - since))
            for (since, before), (at, now) in itertools.pairwise(_gauge(name)(of))
            if at > since
        ]

    return points


def _stolen(of: Sampled) -> Points:
    """Nothing where nothing was stolen, as on all machines that are not virtual."""
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
