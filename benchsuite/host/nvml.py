"""The only door to pynvml: opened at the first call; a value that is not supported is None and never a number."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pynvml

from benchsuite.describe.tasks import Gpu


@cache
def start() -> str | None:
    """Open NVML once; why that failed, in words, else None."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML: {_words(error)}"
    return None


def _words(error: Exception) -> str:
    return str(error).strip().lower() or type(error).__name__


class Turns:
    """Lets one call at a time into NVML, unless a call does not return.

    Each GPU has a thread of its own, but NVML has been seen to crash the process if two call it at once. A call that
    takes longer than `limit_s` no longer blocks the others.
    """

    def __init__(self, limit_s: float = 2.0) -> None:
        self._limit_s = limit_s
        self._lock, self._replacing = threading.Lock(), threading.Lock()
        self._taken_s = math.inf  # when the call under way began, on CLOCK_MONOTONIC

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While entered, no other call runs, except those that have not returned for `limit_s`."""
        lock = self._lock
        while not lock.acquire(timeout=self._limit_s / 4):
            with self._replacing:
                if lock is self._lock and time.monotonic() - self._taken_s > self._limit_s:
                    self._lock, self._taken_s = threading.Lock(), math.inf
                lock = self._lock
        self._taken_s = time.monotonic()
        try:
            yield
        finally:
            if lock is self._lock:
                self._taken_s = math.inf
            lock.release()


_turns = Turns()


@dataclass(frozen=True)
class Absent:
    """The reason why NVML gave no answer.

    Attributes:
        lost: the device is gone.
    """

    reason: str
    lost: bool = False


def ask(function: str, *arguments: Any) -> Any:
    """NVML's answer as text, number or structure, or `Absent`."""
    call: Callable[..., Any] | None = getattr(pynvml, function, None)
    if call is None:
        return Absent(f"this nvidia-ml-py has no {function}")
    if reason := start():
        return Absent(reason)
    try:
        with _turns.taken():
            answer = call(*arguments)
    except pynvml.NVMLError as error:
        gone = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_GPU_NOT_FOUND, pynvml.NVML_ERROR_RESET_REQUIRED)
        return Absent(_words(error), lost=error.value in gone)
    except pynvml.NVMLLibraryMismatchError:
        return Absent("the driver is older than nvidia-ml-py needs for this")
    return answer.decode() if isinstance(answer, bytes) else answer


def query(function: str, *arguments: Any) -> Any:
    """As `ask`, with None if there is no answer."""
    answer = ask(function, *arguments)
    return None if isinstance(answer, Absent) else answer


def constant(name: str) -> int:
    """One of NVML's numbers by its name in `nvml.h`."""
    return int(getattr(pynvml, name))


def gpm_metrics(before: Any, after: Any, metrics: Sequence[int]) -> list[float] | Absent:
    """GPM's metrics between two samples, in the order of `metrics`; NaN for one that the device does not give.

    Source: `nvmlGpmMetricsGet` in nvml.h; each metric has a return code of its own.
    """
    wanted = pynvml.c_nvmlGpmMetricsGet_t()
    wanted.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    wanted.numMetrics = len(metrics)
    wanted.sample1, wanted.sample2 = before, after
    for place, metric in enumerate(metrics):
        wanted.metrics[place].metricId = metric
    answer = ask("nvmlGpmMetricsGet", wanted)
    if isinstance(answer, Absent):
        return answer
    found = [answer.metrics[place] for place in range(len(metrics))]
    return [float(m.value) if m.nvmlReturn == pynvml.NVML_SUCCESS else math.nan for m in found]


def driver() -> str | None:
    """The driver's version."""
    version = query("nvmlSystemGetDriverVersion")
    return None if version is None else str(version)


def gpus() -> tuple[list[Gpu], str | None]:
    """All GPUs in NVML's order, which is PCI order; and a reason if there are none, or one does not answer."""
    reason = start()
    if reason:
        return [], reason
    found, silent = [], []
    for index in range(query("nvmlDeviceGetCount") or 0):
        handle = query("nvmlDeviceGetHandleByIndex", index)
        gpu = _describe(handle, index) if handle is not None else None
        if gpu:
            found.append(gpu)
        else:
            silent.append(str(index))
    if silent:
        note = f"NVML: GPU {', '.join(silent)} does not answer and is left out"
        warnings.warn(note, RuntimeWarning, stacklevel=2)
        return found, note
    return found, None if found else "NVML lists no GPU"


def _describe(handle: Any, index: int) -> Gpu | None:
    uuid, name = query("nvmlDeviceGetUUID", handle), query("nvmlDeviceGetName", handle)
    pci = query("nvmlDeviceGetPciInfo", handle)
    if uuid is None or name is None or pci is None:
        return None
    memory = query("nvmlDeviceGetMemoryInfo", handle)
    limit_mw = query("nvmlDeviceGetEnforcedPowerLimit", handle)
    clock_mhz = query("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM)
    return Gpu(
        visible_index=index,
        nvml_index=index,
        uuid=str(uuid),
        name=str(name),
        pci=pci.busId.decode() if isinstance(pci.busId, bytes) else str(pci.busId),
        memory_bytes=None if memory is None else int(memory.total),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        max_sm_clock_mhz=None if clock_mhz is None else int(clock_mhz),
    )
