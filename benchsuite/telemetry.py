"""Telemetry: samples of GPUs and of tasks, taken from outside while they run, and the summary that a result keeps.

A value that could not be read is None, and the summary records the reason. Times called `monotonic_s`, `start_s` and
`end_s` are seconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from msgspec import Meta

from benchsuite.schema import Record

T = TypeVar("T")

# Fields of a sample that are readings of one moment or of the last second. A summary holds their spread.
GAUGES = (
    "gpu_percent",
    "memory_busy_percent",
    "memory_used_bytes",
    "power_w",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
)
# The same for readings of the time since the previous sample, by NVML's GPM (Hopper and newer).
GPM_GAUGES = (
    "sm_percent",
    "occupancy_percent",
    "tensor_percent",
    "fp64_percent",
    "fp32_percent",
    "fp16_percent",
    "dram_percent",
    "pcie_tx_mib_s",
    "pcie_rx_mib_s",
    "nvlink_tx_mib_s",
    "nvlink_rx_mib_s",
)

# Clock events (see `DeviceSample.clock_events`) that are faults: heat, and the board's self-protection.
SLOWING = ("sw_thermal", "hw_thermal", "hw_slowdown", "hw_power_brake")
# The clock event of a GPU at its power limit, which is normal under load.
CAPPED = "sw_power_cap"
# A sample holds until the next one. A gap longer than this many median intervals was not watched.
HOLDS_INTERVALS = 3

# A larger share of stolen processor time is worth a warning.
STOLEN_LIMIT = 0.01


def held(samples: Sequence[tuple[float, T]]) -> list[tuple[float, float, T]]:
    """Start, end and value of each span over which a sample holds. Gaps are left out, see `HOLDS_INTERVALS`.

    Args:
        samples: pairs of a time (seconds of CLOCK_MONOTONIC) and a value, in order of time.
    """
    spans = [(start_s, end_s, value) for (start_s, value), (end_s, _) in itertools.pairwise(samples)]
    if not spans:
        return []
    longest_s = HOLDS_INTERVALS * statistics.median(end_s - start_s for start_s, end_s, _ in spans)
    return [span for span in spans if span[1] - span[0] <= longest_s]


def gaps(times: Sequence[float], start_s: float, end_s: float, every_s: float) -> list[tuple[float, float]]:
    """The spans from `start_s` to `end_s` without a sample, those of up to `HOLDS_INTERVALS` intervals left out.

    Args:
        times: of the samples, ascending, in seconds of CLOCK_MONOTONIC.
        every_s: planned interval between samples; a median interval that is longer counts instead.
    """
    between = [later - earlier for earlier, later in itertools.pairwise(times)]
    longest_s = HOLDS_INTERVALS * max(every_s, statistics.median(between) if between else 0.0)
    return [(a, b) for a, b in itertools.pairwise([start_s, *times, end_s]) if b - a > longest_s]


def stolen_share(busy_s: float, stolen_s: float) -> float | None:
    """The share of the processors' time with work that a hypervisor withheld; None if they had no work.

    Args:
        busy_s: seconds in which the processors ran.
        stolen_s: seconds in which they had work and a hypervisor did not run them.
    """
    return stolen_s / (busy_s + stolen_s) if busy_s + stolen_s > 0 else None


class GpuProcess(Record, frozen=True, kw_only=True, array_like=True):
    """A compute process on a GPU, as NVML lists it."""

    pid: Annotated[int, Meta(description="process id")]
    memory_bytes: Annotated[int | None, Meta(description="GPU memory of the process")]
    here: Annotated[bool, Meta(description="a process with this pid is visible to benchsuite")]


class DeviceSample(Record, frozen=True, kw_only=True):
    """A GPU at one moment."""

    monotonic_s: float
    gpu_percent: Annotated[float | None, Meta(description="time with any kernel running, over up to 1 s")] = None
    memory_busy_percent: Annotated[
        float | None, Meta(description="time with device memory being read or written, over up to 1 s")
    ] = None
    memory_used_bytes: int | None = None
    power_w: Annotated[float | None, Meta(description="newer GPUs: mean over 1 s")] = None
    energy_j: Annotated[float | None, Meta(description="counter; only differences have a meaning")] = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    clock_events: Annotated[
        tuple[str, ...] | None, Meta(description="reasons why the clocks are below their maximum")
    ] = None
    ecc_corrected: Annotated[int | None, Meta(description="counter of corrected memory errors")] = None
    ecc_uncorrected: Annotated[int | None, Meta(description="counter of uncorrected memory errors")] = None
    processes: Annotated[tuple[GpuProcess, ...] | None, Meta(description="all compute processes")] = None
    sm_percent: Annotated[float | None, Meta(description="SMs that were busy, since the previous sample")] = None
    occupancy_percent: Annotated[
        float | None, Meta(description="warps that were resident, of the maximum, since the previous sample")
    ] = None
    tensor_percent: Annotated[
        float | None, Meta(description="use of all tensor pipes, of their peak, since the previous sample")
    ] = None
    fp64_percent: Annotated[float | None, Meta(description="use of the FP64 pipe, since the previous sample")] = None
    fp32_percent: Annotated[float | None, Meta(description="use of the FP32 pipe, since the previous sample")] = None
    fp16_percent: Annotated[float | None, Meta(description="use of the FP16 pipe, since the previous sample")] = None
    dram_percent: Annotated[
        float | None, Meta(description="device memory bandwidth, of its peak, since the previous sample")
    ] = None
    pcie_tx_mib_s: Annotated[float | None, Meta(description="MiB/s sent over PCIe, since the previous sample")] = None
    pcie_rx_mib_s: Annotated[float | None, Meta(description="MiB/s received over PCIe, since the previous sample")] = (
        None
    )
    nvlink_tx_mib_s: Annotated[
        float | None, Meta(description="MiB/s sent over all NVLinks, since the previous sample")
    ] = None
    nvlink_rx_mib_s: Annotated[
        float | None, Meta(description="MiB/s received over all NVLinks, since the previous sample")
    ] = None

    @property
    def answered(self) -> bool:
        """Whether the GPU gave any value."""
        return any(getattr(self, name) is not None for name in self.__struct_fields__ if name != "monotonic_s")


class TenantSample(Record, frozen=True, kw_only=True):
    """A task's processes at one moment."""

    monotonic_s: float
    processes: Annotated[int, Meta(description="number of living processes")]
    cpu_s: Annotated[
        float | None, Meta(description="CPU time since the processes were first seen, ended processes included")
    ] = None
    rss_bytes: Annotated[
        int | None, Meta(description="resident memory; a page that processes share counts once for each")
    ] = None
    group_memory_bytes: Annotated[int | None, Meta(description="memory charged to the task's control group")] = None
    cpus_busy_s: Annotated[
        float | None, Meta(description="seconds since boot in which the task's CPUs ran, for any process")
    ] = None
    cpus_stolen_s: Annotated[
        float | None,
        Meta(description="seconds since boot in which the task's CPUs had work and a hypervisor did not run them"),
    ] = None


class Spread(Record, frozen=True, kw_only=True, array_like=True, gc=False):
    """Minimum, mean and maximum of a number of samples."""

    min: Annotated[float, Meta(description="smallest sample")]
    mean: Annotated[float, Meta(description="arithmetic mean, each sample weighted alike")]
    max: Annotated[float, Meta(description="largest sample")]
    n: Annotated[int, Meta(description="number of samples with a value")]


class DeviceTelemetry(Record, frozen=True, kw_only=True):
    """A GPU over a window of time. Null: see `reasons`."""

    uuid: Annotated[str, Meta(description="UUID of the GPU")]
    pci: Annotated[str, Meta(description="PCI address")]
    visible_index: Annotated[int, Meta(description="place among the GPUs that this run may use")]
    samples: Annotated[int, Meta(description="number of samples in the window")]
    spreads: Annotated[dict[str, Spread | None], Meta(description="field of a sample -> its spread")]
    energy_j: Annotated[float | None, Meta(description="energy used within `energy_span_s`")]
    energy_span_s: Annotated[float | None, Meta(description="seconds between the window's first and last sample")]
    clock_events_s: Annotated[
        dict[str, float] | None, Meta(description="clock event -> seconds, within `clock_events_span_s`")
    ]
    clock_events_span_s: Annotated[float | None, Meta(description="seconds of the window that samples cover")]
    ecc_corrected: Annotated[int | None, Meta(description="memory errors corrected within the window")]
    ecc_uncorrected: Annotated[int | None, Meta(description="memory errors not corrected within the window")]
    foreign: Annotated[
        tuple[GpuProcess, ...] | None, Meta(description="compute processes that do not belong to the run")
    ]
    reasons: Annotated[
        dict[str, str],
        Meta(
            description="field or name in `spreads` -> why it is null; a span has the reason of the spanned field; "
            "`samples`: why there are `unsampled` spans"
        ),
    ]
    unsampled: Annotated[
        tuple[tuple[float, float], ...],
        Meta(description="spans of the window without a sample, each from and to, in seconds since its start"),
    ] = ()

    def unsampled_words(self, window_s: float) -> str:
        """The spans without a sample in words, with the reason; empty if there are none.

        Args:
            window_s: length of the window.
        """
        if not self.unsampled:
            return ""
        if self.samples == 0:
            spans = f"nothing sampled in the {window_s:.0f} s of its window"
        else:
            parts = (
                f"from {a:.0f} s on" if b >= window_s - 0.01 else f"from {a:.0f} to {b:.0f} s"
                for a, b in self.unsampled
            )
            spans = f"nothing sampled {', '.join(parts)} of the {window_s:.0f} s of its window"
        why = self.reasons.get("samples")
        return f"{spans}: {why}" if why else spans

    def sampled_share(self, window_s: float) -> float:
        """The share of the window outside the spans without a sample.

        Args:
            window_s: length of the window.
        """
        return 1.0 - sum(b - a for a, b in self.unsampled) / window_s if window_s > 0 else 1.0


class TenantTelemetry(Record, frozen=True, kw_only=True):
    """A task's processes over a window of time. Null: see `reasons`."""

    samples: Annotated[int, Meta(description="number of samples in the window")]
    processes_max: Annotated[int | None, Meta(description="most processes at one time")]
    cpu_s: Annotated[float | None, Meta(description="CPU time used within `cpu_span_s`")]
    cpu_span_s: Annotated[float | None, Meta(description="seconds between the window's first and last sample")]
    cpus: Annotated[float | None, Meta(description="mean number of CPUs kept busy: `cpu_s` / `cpu_span_s`")]
    rss_bytes: Annotated[
        Spread | None, Meta(description="resident memory; a page that processes share counts once for each")
    ]
    group_memory_bytes: Annotated[Spread | None, Meta(description="memory charged to the task's control group")]
    reasons: Annotated[dict[str, str], Meta(description="field -> why it is null")]
    cpus_busy_s: Annotated[
        float | None, Meta(description="seconds in which the task's CPUs ran, for any process, summed over CPUs")
    ] = None
    cpus_stolen_s: Annotated[
        float | None,
        Meta(description="seconds in which the CPUs had work and a hypervisor did not run them, summed over CPUs"),
    ] = None


class Telemetry(Record, frozen=True, kw_only=True):
    """Summary of a task's samples from `start_s` to `end_s`."""

    start_s: Annotated[float, Meta(description="begin of the measured part")]
    end_s: Annotated[float, Meta(description="end of the measured part")]
    every_s: Annotated[float, Meta(description="interval between samples, as planned")]
    devices: Annotated[tuple[DeviceTelemetry, ...], Meta(description="one for each GPU of the task")] = ()
    tenant: Annotated[TenantTelemetry | None, Meta(description="the task's processes")] = None
    series: Annotated[str | None, Meta(description="file with all samples, relative to the run's folder")] = None
    notes: Annotated[tuple[str, ...], Meta(description="failures of the sampling, in words")] = ()


class SeriesOf(Record, frozen=True, kw_only=True):
    """The first line of each series in a file of samples: it describes the samples with the same `of`."""

    kind: Literal["device", "tenant"]
    of: Annotated[str, Meta(description="UUID of the GPU, or `tenant`")]
    pci: Annotated[str | None, Meta(description="PCI address of the GPU")] = None
    visible_index: Annotated[int | None, Meta(description="place among the GPUs that this run may use")] = None
    reasons: Annotated[dict[str, str], Meta(description="field of the samples -> why it is null")] = {}
