"""What is gained if several models share a GPU: the rate of each way and number of copies over that of one model alone.

Rows of one model are compared if they differ only in the way, the number of copies, the precision, and torch.compile.
A speed-up is a rate of all models on a GPU over the rate of one model that trains alone, eagerly and in fp32. If fp32
was not measured, it is another precision, which `Shared.alone` names.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchsuite.describe import work
from benchsuite.report.measure.intervals import mean
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.use import Use

# The settings in which the lines of a model differ.
_VARIED = frozenset({"sharing", "copies", "array", "precision", "compile"})
_MANY = frozenset({"concurrent", "mps", "mig"})
SERIAL = "serial"
PRECISIONS = ("fp32", "tf32", "bf16", "amp-fp16")


@dataclass(frozen=True, order=True)
class Line:
    """A way of sharing in one precision, compiled or not."""

    way: str
    precision: str
    compile: str = "none"

    @property
    def words(self) -> str:
        """ "mps bf16", "serial fp32, reduce-overhead"."""
        return f"{self.way} {self.precision}" + ("" if self.compile == "none" else f", {self.compile}")

    @property
    def mode(self) -> str:
        """ "mps:bf16", "serial+reduce-overhead:fp32": as the columns of the CSV begin."""
        return f"{self.way}{'' if self.compile == 'none' else f'+{self.compile}'}:{self.precision}"


@dataclass(frozen=True)
class Point:
    """A number of copies.

    Attributes:
        runs: repeat -> items/s of all models on a GPU, mean over GPUs; a repeat of another session is another one.
        overlap: the least share of a copy's window in which all copies trained; None for a single process.
        memory_bytes: peak memory of a GPU, or of the host, with all models.
        state: why there is no rate.
    """

    copies: int
    runs: Mapping[int, float]
    overlap: float | None
    memory_bytes: int | None
    use: Use
    state: str = ""

    @property
    def rate(self) -> float | None:
        """The mean over repeats."""
        return mean(self.runs.values())


@dataclass(frozen=True)
class Shared:
    """A model with all ways in which it was measured.

    Attributes:
        name: the job's name.
        base: items/s of one model alone and eager; None if that was not measured.
        precision: of `base`: fp32 if it was measured.
    """

    name: str
    unit: str
    base: float | None
    precision: str = "fp32"
    lines: Mapping[Line, tuple[Point, ...]] = field(default_factory=dict)

    @property
    def alone(self) -> str:
        """ "one model alone, eager and in fp32": what speed-ups are relative to."""
        return f"one model alone, eager and in {self.precision}"

    def speed_up(self, rate: float | None) -> float | None:
        """A rate over `base`."""
        return rate / self.base if rate is not None and self.base else None

    def best(self, line: Line) -> Point | None:
        """The number of copies with the highest rate; None without a rate."""
        rated = [point for point in self.lines.get(line, ()) if point.rate is not None]
        return max(rated, key=lambda point: point.rate or 0.0, default=None)

    def best_of(self, way: str, precision: str, *, compiled: bool | None = None) -> tuple[Line, Point] | None:
        """The best of a way in one precision; `compiled` restricts it to lines with torch.compile, or without."""
        fitting = [
            (line, point)
            for line in self.lines
            if (line.way, line.precision) == (way, precision)
            and compiled in (None, line.compile != "none")
            and (point := self.best(line))
        ]
        return max(fitting, key=lambda found: found[1].rate or 0.0, default=None)


def shared(summary: Summary) -> list[Shared]:
    """The models that share a GPU in some row of a summary, in the order of the summary."""
    groups: dict[str, list[JobSummary]] = defaultdict(list)
    for job in summary.jobs:
        if _compares(job):
            groups[_workload(job.settings)].append(job)
    return [_group(jobs) for jobs in groups.values() if any(way(job) != SERIAL for job in jobs)]


def _compares(job: JobSummary) -> bool:
    """Does the row belong to a model alone, or to whole models that share a GPU?"""
    kept = job.settings
    array_of_its_own = way(job) == SERIAL and kept.get("array", 1) != 1
    return bool(
        kept
        and job.ranks == 1
        and job.devices in ("each", "none")
        and not array_of_its_own
        and not kept.get("unfused_units")
    )


def way(job: JobSummary) -> str:
    """The way in which the models of a row share a GPU."""
    return str(job.settings.get("sharing", SERIAL))


def _workload(settings: Mapping[str, Any]) -> str:
    same = {name: value for name, value in work.work(settings).items() if name not in _VARIED}
    return json.dumps(same, sort_keys=True, default=str)


def _group(jobs: Sequence[JobSummary]) -> Shared:
    lines: dict[Line, list[Point]] = defaultdict(list)
    for job in jobs:
        kept = job.settings
        lines[Line(way(job), str(kept.get("precision", "fp32")), str(kept.get("compile", "none")))].append(_point(job))
    ordered = {line: tuple(sorted(points, key=lambda point: point.copies)) for line, points in lines.items()}
    eager = {line.precision: of[0].rate for line, of in ordered.items() if line == Line(SERIAL, line.precision)}
    precision = next((one for one in PRECISIONS if eager.get(one)), "fp32")
    name = next(job.job for job in jobs if way(job) != SERIAL)
    return Shared(name, next((job.unit for job in jobs if job.unit), "item"), eager.get(precision), precision, ordered)


def _point(job: JobSummary) -> Point:
    asked = job.settings.get("copies", 1)
    copies = asked if isinstance(asked, int) else 0
    use = job.use or Use()
    whole = job.together
    runs = dict(_runs(job))
    overlaps = [rate.overlap for rate in whole.rates if rate.overlap is not None] if whole else []
    host = job.devices == "none" or not job.gpu_names
    memory = use.host_rss_bytes if host else use.device_reserved_bytes
    return Point(
        copies=copies,
        runs=runs,
        overlap=min(overlaps, default=None),
        memory_bytes=whole.memory_bytes if whole else memory,
        use=use,
        state="" if runs else _state(job),
    )


def _runs(job: JobSummary) -> Iterator[tuple[int, float]]:
    """Each repeat with the rate of all models on a GPU, mean over GPUs; only repeats in which every GPU has one."""
    if job.together:
        by_repeat: dict[int, list[float | None]] = defaultdict(list)
        for rate in job.together.rates:
            by_repeat[rate.repeat].append(rate.perf)
        found: Iterable[tuple[int, list[float | None]]] = by_repeat.items()
    else:
        planned = max((repeat.repeat for repeat in job.repeats), default=0) + 1
        found = (
            (one.session * planned + one.repeat, [None if one.perf is None else one.perf * job.per])
            for one in job.repeats
        )
    for repeat, rates in found:
        known = [rate for rate in rates if rate is not None]
        if known and len(known) == len(rates):
            yield repeat, sum(known) / len(known)


def _state(job: JobSummary) -> str:
    statuses = sorted({task.status for task in job.tasks if task.status != "ok"})
    if statuses == ["oom"]:
        return "OOM"
    reasons = [rate.reason for rate in job.together.rates if rate.reason] if job.together else []
    return ", ".join(statuses) or (reasons[0] if reasons else "no rate")
