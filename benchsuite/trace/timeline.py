"""A timeline of torch.profiler as columns: what ran on each GPU, what the host launched, and what it waited for."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchsuite.errors import ResultError, one_line
from benchsuite.trace.chrome import events
from benchsuite.trace.intervals import Intervals, union
from benchsuite.trace.kernels import COMMUNICATION, kernel_class

KERNEL, COPY, COLLECTIVE = 0, 1, 2
_ON_GPU = {"kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": COPY}
_CALLS = ("cuda_runtime", "cuda_driver")
_STEP = "ProfilerStep#"
# Calls in which the host waits for the GPU.
_SYNCS = frozenset(
    {
        "cudaDeviceSynchronize",
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "cuStreamSynchronize",
        "cuCtxSynchronize",
    }
)


@dataclass(frozen=True)
class GpuWork:
    """What ran on one GPU, in order of time; a row a kernel, copy or fill.

    Attributes:
        starts_us, ends_us: microseconds of the trace's clock.
        kinds: KERNEL, COPY (copies and fills) or COLLECTIVE (kernels of NCCL).
        names: the index of each name in `Timeline.names`.
        launched_us: when the host's call began; NaN if the trace does not hold it.
    """

    starts_us: NDArray[np.float64]
    ends_us: NDArray[np.float64]
    kinds: NDArray[np.int64]
    names: NDArray[np.int64]
    launched_us: NDArray[np.float64]

    def of(self, *kinds: int) -> Intervals:
        """When work of these kinds ran."""
        kept = np.isin(self.kinds, kinds)
        return union(self.starts_us[kept], self.ends_us[kept])


@dataclass(frozen=True)
class Timeline:
    """A trace. `gpus` has the work of each device; `syncs` and `loading` say when the host waited, and for what.

    Attributes:
        steps: the steps that the profiler marks, each with its start and end in microseconds; empty if it marks none.
        starts_us, ends_us: the first start and the last end of anything that the host or a GPU did.
    """

    gpus: dict[int, GpuWork]
    names: tuple[str, ...]
    syncs: Intervals
    loading: Intervals
    steps: tuple[tuple[float, float], ...]
    starts_us: float
    ends_us: float
    host_calls: int


@dataclass
class _Columns:
    """Rows of a timeline while it is read: arrays of numbers, since a trace may have millions of events."""

    starts: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    kinds: array[int] = field(default_factory=lambda: array("q"))
    names: array[int] = field(default_factory=lambda: array("q"))
    devices: array[int] = field(default_factory=lambda: array("q"))
    correlations: array[int] = field(default_factory=lambda: array("q"))


class _Spans:
    """Starts and ends of one kind of the host's work."""

    def __init__(self) -> None:
        self.starts, self.ends = array("d"), array("d")

    def add(self, start: float, end: float) -> None:
        self.starts.append(start)
        self.ends.append(end)

    def union(self) -> Intervals:
        return union(np.array(self.starts, dtype=float), np.array(self.ends, dtype=float))


def read(path: Path) -> Timeline:
    """Read a trace of torch.profiler (Chrome format, also `.gz`).

    Raises:
        ResultError: the file cannot be read, is no trace, is cut off, or holds no timed event.
    """
    reading = _Reading()
    for event in events(path):
        reading.add(event)
    if reading.first_us > reading.last_us:
        raise ResultError(f"{one_line(str(path))}: the trace is empty: it holds no event with a duration")
    return reading.timeline()


class _Reading:
    def __init__(self) -> None:
        self._gpu = _Columns()
        self._called_us, self._called = array("d"), array("q")
        self._syncs, self._loading = _Spans(), _Spans()
        self._names: dict[str, int] = {}
        self._collective: dict[int, bool] = {}
        self._steps: dict[str, tuple[float, float]] = {}
        self.first_us, self.last_us = np.inf, -np.inf

    def add(self, event: dict[str, Any]) -> None:
        """Keep what the analyses need of one event."""
        start, duration = _number(event.get("ts")), _number(event.get("dur"))
        if event.get("ph") != "X" or start is None or duration is None or duration < 0:
            return
        category, name, end = event.get("cat"), str(event.get("name", "")), start + duration
        if category in _ON_GPU:
            self._add_gpu(event, name, _ON_GPU[category], start, end)
        elif category in _CALLS:
            self._add_call(event, name, start, end)
        elif category in ("user_annotation", "cpu_op"):
            if name.startswith(_STEP):
                self._steps[name] = (start, end)
            elif name.startswith("enumerate(DataLoader)"):
                self._loading.add(start, end)
        else:
            return
        self.first_us, self.last_us = min(self.first_us, start), max(self.last_us, end)

    def _add_gpu(self, event: dict[str, Any], name: str, kind: int, start: float, end: float) -> None:
        details = event.get("args") if isinstance(event.get("args"), dict) else {}
        number = self._names.setdefault(name, len(self._names))
        if kind == KERNEL and self._collective.setdefault(number, kernel_class(name) == COMMUNICATION):
            kind = COLLECTIVE
        device = details.get("device", event.get("pid", 0)) if details else event.get("pid", 0)
        self._gpu.starts.append(start)
        self._gpu.ends.append(end)
        self._gpu.kinds.append(kind)
        self._gpu.names.append(number)
        self._gpu.devices.append(device if isinstance(device, int) else 0)
        self._gpu.correlations.append(_whole(details.get("correlation")) if details else -1)

    def _add_call(self, event: dict[str, Any], name: str, start: float, end: float) -> None:
        if name in _SYNCS:
            self._syncs.add(start, end)
        details = event.get("args")
        correlation = _whole(details.get("correlation")) if isinstance(details, dict) else -1
        if correlation >= 0:
            self._called_us.append(start)
            self._called.append(correlation)

    def timeline(self) -> Timeline:
        """All that was kept, as arrays."""
        gpu = {name: np.array(getattr(self._gpu, name)) for name in _Columns.__dataclass_fields__}
        launched = self._launched(gpu["correlations"])
        gpus = {}
        for device in sorted(set(self._gpu.devices)):
            mine = np.flatnonzero(gpu["devices"] == device)
            mine = mine[np.argsort(gpu["starts"][mine], kind="stable")]
            gpus[device] = GpuWork(
                gpu["starts"][mine], gpu["ends"][mine], gpu["kinds"][mine], gpu["names"][mine], launched[mine]
            )
        return Timeline(
            gpus=gpus,
            names=tuple(self._names),
            syncs=self._syncs.union(),
            loading=self._loading.union(),
            steps=tuple(sorted(self._steps.values())),
            starts_us=float(self.first_us),
            ends_us=float(self.last_us),
            host_calls=len(self._called_us),
        )

    def _launched(self, correlations: NDArray[np.int64]) -> NDArray[np.float64]:
        """When the call with each correlation id began; NaN without one."""
        ids, at = np.array(self._called, dtype=np.int64), np.array(self._called_us, dtype=float)
        if not len(ids):
            return np.full(len(correlations), np.nan)
        order = np.argsort(ids, kind="stable")
        ids, at = ids[order], at[order]
        place = np.minimum(np.searchsorted(ids, correlations), len(ids) - 1)
        return np.where(ids[place] == correlations, at[place], np.nan)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e18 else None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else -1
