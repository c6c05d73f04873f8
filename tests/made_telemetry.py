"""Telemetry of made results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conftest import make_gpu

from benchsuite.telemetry import DeviceSample, DeviceTelemetry, Spread, Telemetry, TenantTelemetry

USUAL = {
    "gpu_percent": 97.0,
    "sm_percent": 83.0,
    "tensor_percent": 12.0,
    "power_w": 640.0,
    "sm_clock_mhz": 1755.0,
    "temperature_c": 64.0,
    "pcie_tx_mib_s": 200.0,
    "pcie_rx_mib_s": 3400.0,
}


def make_device(
    gpu: int = 0,
    gauges: Mapping[str, float | None] | None = None,
    events: Mapping[str, float] | None = None,
    **fields: Any,
) -> DeviceTelemetry:
    """A GPU over 15 s; `gauges` differ from the usual ones, None where there is none; `events` are seconds by cause."""
    every = {**USUAL, **(gauges or {})}
    defaults: dict[str, Any] = {
        "samples": 15,
        "energy_j": 9750.0,
        "energy_span_s": 15.0,
        "clock_events_s": dict(events or {}),
        "clock_events_span_s": 15.0,
        "ecc_corrected": None,
        "ecc_uncorrected": None,
        "foreign": None,
        "reasons": {},
    }
    spreads = {
        name: None if value is None else Spread(min=value, mean=value, max=value, n=15) for name, value in every.items()
    }
    card = make_gpu(gpu)
    return DeviceTelemetry(uuid=card.uuid, pci=card.pci, visible_index=gpu, spreads=spreads, **{**defaults, **fields})


def make_telemetry(
    *devices: DeviceTelemetry, series: str | None = None, tenant: TenantTelemetry | None = None
) -> Telemetry:
    return Telemetry(start_s=1000.0, end_s=1015.0, every_s=1.0, devices=devices, series=series, tenant=tenant)


def stolen_from(share: float | None) -> TenantTelemetry:
    """Processors that had work for 30 s of the 15 s, of which a hypervisor withheld a share; None: nothing is known."""
    return TenantTelemetry(
        samples=15,
        processes_max=1,
        cpu_s=None,
        cpu_span_s=None,
        cpus=None,
        rss_bytes=None,
        group_memory_bytes=None,
        reasons={},
        cpus_busy_s=None if share is None else 30 * (1 - share),
        cpus_stolen_s=None if share is None else 30 * share,
    )


def make_samples(events: Sequence[Sequence[str]], start_s: float = 999.0, every_s: float = 1.0) -> list[DeviceSample]:
    """A sample for each moment's clock events."""
    return [
        DeviceSample(monotonic_s=start_s + i * every_s, clock_events=tuple(names)) for i, names in enumerate(events)
    ]
