"""What was seen of GPUs and of tasks from outside while they ran: samples, and their summary as a result keeps it.

Absent is always None, never a number that stands for it; the summary has the reason. Times called `monotonic_s`,
`start_s` and `end_s` are seconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Literal, TypeVar

from benchsuite.schema import Record

T = TypeVar("T")

# Fields of a sample that are readings of one moment (or of the last second), summarised by their spread.
GAUGES = (
    "gpu_percent",
    "memory_busy_percent",
    "memory_used_bytes",
    "power_w",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
)
# The same, of the time since the sample before: NVML's GPM, on Hopper and newer.
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

# Clock events (see `DeviceSample.clock_events`) that are trouble: heat, and the board's protection of itself.
SLOWING = ("sw_thermal", "hw_thermal", "hw_slowdown", "hw_power_brake")
# The clock event of a GPU at its power limit, which is normal under load.
CAPPED = "sw_power_cap"
# A sample holds until the next one, unless the gap is longer than this many median intervals: then nobody looked.
HOLDS_INTERVALS = 3

# From this share on, stolen processor time is worth a word.
STOLEN_LIMIT = 0.01


def held(samples: Sequence[tuple[float, T]]) -> list[tuple[float, float, T]]:
    """Start, end and value of each span over which a sample holds; gaps are left out, see `HOLDS_INTERVALS`.

    Args:
        samples: seconds of CLOCK_MONOTONIC with a value, in the order of time.
    """
    spans = [(start_s, end_s, value) for (start_s, value), (end_s, _) in itertools.pairwise(samples)]
    if not spans:
        return []
    longest_s = HOLDS_INTERVALS * statistics.median(end_s - start_s for start_s, end_s, _ in spans)
    return [span for span in spans if span[1] - span[0] <= longest_s]


def stolen_share(busy_s: float, stolen_s: float) -> float | None:
    """Of the time in which processors had work, the part that a hypervisor withheld; None where they had none."""
    return stolen_s / (busy_s + stolen_s) if busy_s + stolen_s > 0 else None


class GpuProcess(Record, frozen=True, kw_only=True, array_like=True):
    """A compute process on a GPU; `here`: its number is one of a process that this one can see."""

    pid: int
    memory_bytes: int | None
    here: bool


class DeviceSample(Record, frozen=True, kw_only=True):
    """A GPU at one moment.

    `gpu_percent` is the time in which any kernel ran, `memory_busy_percent` that in which memory was read or written,
    both over NVML's own period of at most 1 s. `power_w` is NVML's mean over 1 s on newer cards. `energy_j` and the ECC
    counts are counters of which only differences mean anything. `clock_events` are the reasons why clocks are not at
    their highest. The last eleven are shares and rates since the sample before; tensor counts all tensor pipes.
    """

    monotonic_s: float
    gpu_percent: float | None = None
    memory_busy_percent: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    clock_events: tuple[str, ...] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    sm_percent: float | None = None
    occupancy_percent: float | None = None
    tensor_percent: float | None = None
    fp64_percent: float | None = None
    fp32_percent: float | None = None
    fp16_percent: float | None = None
    dram_percent: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None
    nvlink_tx_mib_s: float | None = None
    nvlink_rx_mib_s: float | None = None


class TenantSample(Record, frozen=True, kw_only=True):
    """A task's processes at one moment.

    `cpu_s` counts from when they were first seen, what ended ones used included up to the last look at them;
    `rss_bytes` counts shared pages once a process; `group_memory_bytes` is what the task's group is charged with.
    `cpus_busy_s` and `cpus_stolen_s` are of the processors that it may use, counted since boot: the time that they ran,
    whoever for, and the time that a hypervisor withheld from them while they had work (steal).
    """

    monotonic_s: float
    processes: int
    cpu_s: float | None = None
    rss_bytes: int | None = None
    group_memory_bytes: int | None = None
    cpus_busy_s: float | None = None
    cpus_stolen_s: float | None = None


class Spread(Record, frozen=True, kw_only=True, array_like=True, gc=False):
    """Least, plain mean and greatest of `n` samples."""

    min: float
    mean: float
    max: float
    n: int


class DeviceTelemetry(Record, frozen=True, kw_only=True):
    """A GPU over a window; what is None, here or in `spreads`, has its reason under the same name in `reasons`
    (a span under the name of what it spans).

    `energy_j` is the energy counter's difference over the `energy_span_s` seconds between the window's first and last
    sample. `clock_events_s` is the time under each reason, of `clock_events_span_s` seconds that were watched.
    The ECC counts are the errors that came within the window. `foreign`: compute processes that were not the run's.
    """

    uuid: str
    pci: str
    visible_index: int
    samples: int
    spreads: dict[str, Spread | None]
    energy_j: float | None
    energy_span_s: float | None
    clock_events_s: dict[str, float] | None
    clock_events_span_s: float | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    foreign: tuple[GpuProcess, ...] | None
    reasons: dict[str, str]


class TenantTelemetry(Record, frozen=True, kw_only=True):
    """A task's processes over a window; `cpus` is the mean number of processors kept busy over `cpu_span_s`.

    `cpus_busy_s` and `cpus_stolen_s`: how much those counters of its processors grew, see `TenantSample`.
    """

    samples: int
    processes_max: int | None
    cpu_s: float | None
    cpu_span_s: float | None
    cpus: float | None
    rss_bytes: Spread | None
    group_memory_bytes: Spread | None
    reasons: dict[str, str]
    cpus_busy_s: float | None = None
    cpus_stolen_s: float | None = None


class Telemetry(Record, frozen=True, kw_only=True):
    """All that was seen of one task from `start_s` to `end_s`; `series` names the file with the samples themselves."""

    start_s: float
    end_s: float
    every_s: float
    devices: tuple[DeviceTelemetry, ...] = ()
    tenant: TenantTelemetry | None = None
    series: str | None = None
    notes: tuple[str, ...] = ()


class SeriesOf(Record, frozen=True, kw_only=True):
    """The first lines of a file of samples: whose samples carry which `of`, and why fields of them are null."""

    kind: Literal["device", "tenant"]
    of: str
    pci: str | None = None
    visible_index: int | None = None
    reasons: dict[str, str] = {}
