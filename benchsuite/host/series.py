"""Series of samples: bounded in number, cut to a window, and written to a file, one line a sample."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from benchsuite.describe.tasks import Gpu
from benchsuite.schema import to_json
from benchsuite.telemetry import DeviceSample, SeriesOf, TenantSample
from benchsuite.writing import write_new

S = TypeVar("S", DeviceSample, TenantSample)


class Series(Generic[S]):
    """Samples in order of time, shared between threads. Over `limit` samples, every second one is dropped."""

    def __init__(self, limit: int = 7200) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._samples: list[S] = []
        self._every, self._came = 1, 0

    def add(self, sample: S) -> None:
        """Append a sample, unless it is one of those that are dropped."""
        with self._lock:
            if self._came % self._every == 0:
                self._samples.append(sample)
            self._came += 1
            if len(self._samples) > self._limit:
                del self._samples[1::2]
                self._every, self._came = self._every * 2, 1

    def cut(self, start_s: float, end_s: float) -> list[S]:
        """The samples from `start_s` to `end_s`, both included."""
        with self._lock:
            return [s for s in self._samples if start_s <= s.monotonic_s <= end_s]

    def trim(self, before_s: float) -> None:
        """Drop older samples, and keep every new one again."""
        with self._lock:
            self._samples = [s for s in self._samples if s.monotonic_s >= before_s]
            self._every, self._came = 1, 0


def write_series(
    path: Path,
    devices: Iterable[tuple[Gpu, Sequence[DeviceSample], Mapping[str, str]]],
    tenant: Sequence[TenantSample] = (),
    tenant_reasons: Mapping[str, str] | None = None,
) -> None:
    """Write samples to a new file as strict JSON: a line that describes each series, then a line a sample.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be written; nothing is left behind.
    """
    heads: list[bytes] = []
    lines: list[bytes] = []
    for gpu, samples, reasons in devices:
        absent = {field: why for field, why in reasons.items() if any(getattr(s, field, 0) is None for s in samples)}
        about = SeriesOf(kind="device", of=gpu.uuid, pci=gpu.pci, visible_index=gpu.visible_index, reasons=absent)
        heads.append(to_json(about))
        lines += (_line(gpu.uuid, sample) for sample in samples)
    if tenant:
        heads.append(to_json(SeriesOf(kind="tenant", of="tenant", reasons=dict(tenant_reasons or {}))))
        lines += (_line("tenant", sample) for sample in tenant)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, b"".join(heads + lines))


def _line(of: str, sample: DeviceSample | TenantSample) -> bytes:
    return msgspec.json.encode({"of": of, **msgspec.structs.asdict(sample)}) + b"\n"
