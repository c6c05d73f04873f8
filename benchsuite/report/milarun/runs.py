"""One run of milarun 2020 by its result file: success, rate, group and GPUs."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from benchsuite.report.milarun.suite import LARGEST
from benchsuite.schema import Record


class _Timing(Record, frozen=True, kw_only=True):
    rates: list[float] = []
    sample_duration: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 0.5
    start: str | None = None

    @property
    def window(self) -> list[float]:
        """The rates whose mean is the timing's figure."""
        return self.rates[-20:-2]


class _Scheme(Record, frozen=True, kw_only=True):
    type: str | None = None
    cgroup: str | None = None


class _Job(Record, frozen=True, kw_only=True):
    partition_scheme: _Scheme = _Scheme()


class RunResult(Record, frozen=True, kw_only=True):
    """The fields of a result file that are read; milarun writes more."""

    name: str
    job_id: str | None
    sub_job: bool = False
    job: _Job = _Job()
    success: bool
    error: str | None = None
    hostname: str | None = None
    device_count: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 1
    devices: list[int] = []
    environ: dict[str, str] = {}
    metrics: dict[str, Any] = {}
    timings: dict[str, _Timing]
    gpu_monitor: dict[str, dict[str, dict[str, float]]] = {}


@dataclass(frozen=True)
class Run:
    """One result that counts, and its file."""

    result: RunResult
    file: Path

    @property
    def group_gpus(self) -> int | None:
        """The number of GPUs in the name of its group; None outside a progression."""
        return self.result.device_count if self.result.job.partition_scheme.type == "gpu-progression" else None

    @property
    def group(self) -> str:
        return f"{self.result.name}.{self.group_gpus}" if self.group_gpus else self.result.name

    @property
    def visible(self) -> list[str]:
        """The indices of its GPUs; their UUIDs if the user named the GPUs so."""
        text = self.result.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, self.result.devices))
        return [part.strip() for part in text.split(",") if part.strip()]

    @property
    def device(self) -> str:
        return f"GPU {','.join(self.visible)}" if self.visible else "GPU unknown"

    @property
    def start(self) -> str | None:
        """Local time, without a zone, as milarun writes it."""
        program = self.result.timings.get("program")
        return program.start if program else None

    @property
    def cgroup(self) -> str | None:
        """The cgroup that the run asked for; a run with --no-cgexec records the same."""
        return self.result.job.partition_scheme.cgroup

    @property
    def repeat(self) -> int:
        first = (self.result.job_id or "").partition(".")[0]
        return int(first) if re.fullmatch(r"[0-9]{1,9}", first) else 0

    @cached_property
    def windows(self) -> list[list[float]]:
        """The rates that count, of each timing named train*."""
        return [timing.window for timing in self._trains]

    @property
    def _trains(self) -> list[_Timing]:
        return [timing for name, timing in self.result.timings.items() if name.startswith("train")]

    @property
    def trouble(self) -> tuple[str, str] | None:
        """Status and reason of a run that is not ok, else None. Unlike in milarun, a run without a rate is not ok."""
        if not self.result.success:
            return "failed", ((self.result.error or "").strip().splitlines() or ["no error is recorded"])[-1]
        bad = [name for name, value in self.result.metrics.items() if isinstance(value, float) and math.isnan(value)]
        if bad:
            return "failed", f"its metric '{bad[0]}' is NaN"
        if not self.windows or not all(self.windows):
            return "insufficient", "it succeeded, but a timing has no more than the two rates that milarun leaves out"
        if not all(0 <= rate <= LARGEST for rates in self.windows for rate in rates):
            return "insufficient", f"its rates are not all numbers from 0 to {LARGEST:g}"
        return None

    @property
    def samples(self) -> list[float]:
        """Items/s, one for each timing (in a progression: rank); empty unless ok."""
        return [] if self.trouble else [statistics.fmean(rates) for rates in self.windows]

    @property
    def seconds(self) -> float:
        """The length of the longest window; all slices of a timing are equally long."""
        return max((len(timing.window) * timing.sample_duration for timing in self._trains), default=0.0)

    @property
    def items(self) -> float:
        return math.fsum(math.fsum(timing.window) * timing.sample_duration for timing in self._trains)

    @property
    def peak_mib(self) -> float | None:
        """The peak memory of its GPU, or of any GPU of the host if it used several; other processes' included."""
        monitor = self.result.gpu_monitor
        mine = self.visible if len(self.visible) == 1 and self.visible[0] in monitor else monitor
        found = (monitor[gpu].get("memory", {}).get("max", math.nan) for gpu in mine)
        return max((mib for mib in found if mib >= 0), default=None)


def read_run(content: dict[str, Any]) -> RunResult | str:
    """The result in a file's content, or the reason why it does not count."""
    try:
        result = msgspec.convert(content, RunResult)
    except msgspec.ValidationError as error:
        return f"not a valid result of milarun 2020: {error}"
    if result.job_id is None and not result.sub_job:
        return "a result of milarun 2020 without a job_id (a single run, or a rerun), which is in no report"
    return result
