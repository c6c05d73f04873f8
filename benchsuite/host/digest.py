"""Summarise a window of samples in one record: spreads, differences of counters, time under each clock event."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchsuite.describe.tasks import Gpu
from benchsuite.schema import finite
from benchsuite.telemetry import (
    GAUGES,
    GPM_GAUGES,
    DeviceSample,
    DeviceTelemetry,
    GpuProcess,
    Spread,
    TenantSample,
    TenantTelemetry,
    gaps,
    held,
)


@dataclass(frozen=True)
class Window:
    """What should have been sampled: from `start_s` to `end_s` on CLOCK_MONOTONIC, every `every_s` seconds."""

    start_s: float
    end_s: float
    every_s: float


def summarise(
    gpu: Gpu,
    samples: Sequence[DeviceSample],
    reasons: Mapping[str, str],
    own_pids: Collection[int],
    window: Window | None = None,
) -> DeviceTelemetry:
    """A GPU over the window that `samples` were cut to. A sample to which the GPU answered nothing does not count.

    Args:
        reasons: field -> why it has no value, see `Monitor.device_reasons`.
        own_pids: the processes of the run. Any other process on the GPU is foreign.
        window: if given, its spans without a sample are recorded.
    """
    why: dict[str, str] = {}
    answered = [sample for sample in samples if sample.answered]
    samples = answered or samples
    unsampled = _unsampled(answered, window, reasons) if window else ()
    if unsampled:
        why["samples"] = reasons.get("samples", "no sample came in time")
    spreads = {field: _spread(samples, field, reasons, why) for field in (*GAUGES, *GPM_GAUGES)}
    energy_j, energy_span_s = _difference(samples, "energy_j", reasons, why)
    events_s, events_span_s = _clock_events(samples, reasons, why)
    ecc = [_difference(samples, field, reasons, why)[0] for field in ("ecc_corrected", "ecc_uncorrected")]
    return DeviceTelemetry(
        uuid=gpu.uuid,
        pci=gpu.pci,
        visible_index=gpu.visible_index,
        samples=len(answered),
        spreads=spreads,
        energy_j=energy_j,
        energy_span_s=energy_span_s,
        clock_events_s=events_s,
        clock_events_span_s=events_span_s,
        ecc_corrected=None if ecc[0] is None else int(ecc[0]),
        ecc_uncorrected=None if ecc[1] is None else int(ecc[1]),
        foreign=_foreign(samples, frozenset(own_pids), reasons, why),
        reasons=why,
        unsampled=unsampled,
    )


def _unsampled(
    samples: Sequence[DeviceSample], window: Window, reasons: Mapping[str, str]
) -> tuple[tuple[float, float], ...]:
    """Seconds since the start of the window; after a loss also an end that is shorter than the gaps that count."""
    times = [sample.monotonic_s for sample in samples]
    found = gaps(times, window.start_s, window.end_s, window.every_s)
    last_s = times[-1] if times else window.start_s
    if "samples" in reasons and window.end_s - last_s > window.every_s and (last_s, window.end_s) not in found:
        found.append((last_s, window.end_s))
    return tuple((round(a - window.start_s, 3), round(b - window.start_s, 3)) for a, b in found)


def summarise_tenant(samples: Sequence[TenantSample], reasons: Mapping[str, str]) -> TenantTelemetry:
    """A task's processes over the window that `samples` were cut to."""
    why: dict[str, str] = {}
    cpu_s, span_s = _difference(samples, "cpu_s", reasons, why)
    busy_s, stolen_s = (_difference(samples, field, reasons, why)[0] for field in ("cpus_busy_s", "cpus_stolen_s"))
    if not samples:
        why["processes_max"] = _why(samples, "processes", reasons)
    return TenantTelemetry(
        samples=len(samples),
        processes_max=max((s.processes for s in samples), default=None),
        cpu_s=cpu_s,
        cpu_span_s=span_s,
        cpus=finite(cpu_s / span_s) if cpu_s is not None and span_s else None,
        rss_bytes=_spread(samples, "rss_bytes", reasons, why),
        group_memory_bytes=_spread(samples, "group_memory_bytes", reasons, why),
        reasons=why,
        cpus_busy_s=busy_s,
        cpus_stolen_s=stolen_s,
    )


def _present(samples: Sequence[DeviceSample | TenantSample], field: str) -> list[tuple[float, Any]]:
    return [(s.monotonic_s, value) for s in samples if (value := getattr(s, field)) is not None]


def _why(samples: Sequence[DeviceSample | TenantSample], field: str, reasons: Mapping[str, str]) -> str:
    return reasons.get(field, "not read") if samples else reasons.get("samples", "no sample in the window")


def _spread(
    samples: Sequence[DeviceSample | TenantSample], field: str, reasons: Mapping[str, str], why: dict[str, str]
) -> Spread | None:
    values = [value for _, value in _present(samples, field)]
    if not values:
        why[field] = _why(samples, field, reasons)
        return None
    mean = float(f"{statistics.fmean(values):.7g}")
    return Spread(min=min(values), mean=mean, max=max(values), n=len(values))


def _difference(
    samples: Sequence[DeviceSample | TenantSample], field: str, reasons: Mapping[str, str], why: dict[str, str]
) -> tuple[float | None, float | None]:
    """The growth of a counter between the first and the last sample with a value, and the seconds between them."""
    found = _present(samples, field)
    if not found:
        why[field] = _why(samples, field, reasons)
    elif len(found) < 2:
        why[field] = "one sample in the window; a difference needs two"
    elif any(later < earlier for (_, earlier), (_, later) in itertools.pairwise(found)):
        why[field] = "the counter was reset within the window"
    else:
        (first_s, first), (last_s, last) = found[0], found[-1]
        return finite(last - first, 9), finite(last_s - first_s, 9)
    return None, None


def _clock_events(
    samples: Sequence[DeviceSample], reasons: Mapping[str, str], why: dict[str, str]
) -> tuple[dict[str, float] | None, float | None]:
    """The seconds under each clock event, and the seconds that samples cover (see `telemetry.held`)."""
    found = _present(samples, "clock_events")
    if len(found) < 2:
        why["clock_events_s"] = (
            "fewer than two samples in the window" if found else _why(samples, "clock_events", reasons)
        )
        return None, None
    under_s: dict[str, float] = {}
    watched_s = 0.0
    for start_s, end_s, events in held(found):
        watched_s += end_s - start_s
        for event in events:
            under_s[event] = under_s.get(event, 0.0) + (end_s - start_s)
    return {name: round(s, 6) for name, s in sorted(under_s.items())}, round(watched_s, 6)


def _foreign(
    samples: Sequence[DeviceSample], own: frozenset[int], reasons: Mapping[str, str], why: dict[str, str]
) -> tuple[GpuProcess, ...] | None:
    """The processes that are not of the run, each with the most memory that it had.

    In a container, NVML may list the pids of the host. If no process of the run is listed, an unknown pid may be one of
    them. Then foreign processes are not known.
    """
    found = _present(samples, "processes")
    if not found:
        why["foreign"] = _why(samples, "processes", reasons)
        return None
    listed = [process for _, processes in found for process in processes]
    others = [process for process in listed if process.pid not in own]
    if len(others) == len(listed) and any(not process.here for process in others):
        why["foreign"] = "NVML lists processes by numbers that are not of this container"
        return None
    most: dict[int, GpuProcess] = {}
    for process in others:
        before = most.get(process.pid)
        if before is None or (process.memory_bytes or 0) > (before.memory_bytes or 0):
            most[process.pid] = process
    return tuple(most[pid] for pid in sorted(most))
