"""What limits each job: one class with its evidence, from counters that every run samples.

Three rules decide, in this order. Every threshold is a constant of this module.

1. **Copies, or the host.** A job waits for the longest of its stages. If the link to the host carries at least
   `NEAR_PEAK` of what it can carry, and for a larger share of the time than a kernel runs, copies limit it. If a kernel
   runs for less than half of the time, the host limits it: a host twice as fast saves more time than a GPU twice as
   fast. Of the host's time, the wait for the next batch counts as input by the same rule.
2. **Communication.** A group of ranks with less than half of the rate of one GPU alone loses more by communicating than
   it computes. Kernels of NCCL keep a GPU busy, so without the rate of one GPU a busy group is not judged.
3. **The unit of the GPU that is nearest to its peak**, while kernels run. Nsight Compute calls a kernel limited by
   latency if it reaches less than 60 % of both the compute and the memory peak. The same line is drawn here, over what
   real kernels reach of each peak (`UNITS`). A GPU whose clock the power limit lowers, and which is not limited by its
   memory, is limited by power. If heat or a fault of the hardware slows the clocks for half of the time, throttling
   limits the job.

A class is "not known" if the counters that decide are missing, and "GPU" if a kernel runs most of the time, but not all
of the units were counted (GPUs older than Hopper, and older versions of benchsuite). Older versions did not record the
wait for batches either; then "host or input" stands for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from benchsuite.describe.names import cell_name
from benchsuite.describe.tasks import PLACE_AXES
from benchsuite.report.format import percent, whole
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.use import Use
from benchsuite.telemetry import CAPPED, SLOWING

LimitedBy = Literal[
    "input",
    "host",
    "host or input",
    "copies",
    "communication",
    "memory bandwidth",
    "compute",
    "power",
    "throttling",
    "latency",
    "GPU",
    "not known",
]
# From this share on, a stage takes more time than all others together.
HALF = 0.5
# A unit above this share of what it can reach limits a job. Source: the rules of Nsight Compute's "speed of light".
NEAR_PEAK = 0.6
# The SM clock of a GPU that its power limit slows is below this share of its highest clock.
SLOWED_CLOCK = 0.97
# Each way of PCIe 5 x16: 32 GT/s x 16 lanes x 128/130. Copies from pinned memory reach 55.2 GB/s of payload on an H200,
# and the counter reads 56,300 MiB/s then, with the packets' headers. GPUs older than Hopper do not count PCIe.
# On the same GPU PCIe also carried 12,000 MiB/s in jobs of busy kernels that copy next to nothing.
LINK_MIB_S = 32e9 * 16 * 128 / 130 / 8 / 2**20
# From this share of the time on, the power limit or a wait for a CPU belongs to the evidence.
_NOTABLE = 0.05


@dataclass(frozen=True)
class Unit:
    """A unit of a GPU that may be at its peak.

    Attributes:
        field: of `Use`, in percent of the peak.
        reach: the share of the peak that a kernel made for this unit reaches on an H200.
    """

    name: str
    field: str
    reach: float
    by: LimitedBy


# Measured on an H200 over the peaks of its data sheet: a copy on the device 4,258 of 4,800 GB/s; products of matrices
# 654 of 989 TFLOP/s in bf16, and 51.2 of 67 in fp32. The FP64 and FP16 pipes are taken to be like the FP32 pipe.
UNITS = (
    Unit("memory", "dram_percent", 0.89, "memory bandwidth"),
    Unit("tensor cores", "tensor_percent", 0.66, "compute"),
    Unit("FP32", "fp32_percent", 0.76, "compute"),
    Unit("FP64", "fp64_percent", 0.76, "compute"),
    Unit("FP16", "fp16_percent", 0.76, "compute"),
)


@dataclass(frozen=True)
class Bottleneck:
    """What limits a job, the evidence in words, and what is missing for a better answer."""

    job: str
    by: LimitedBy
    evidence: tuple[str, ...]
    missing: str | None = None

    @property
    def words(self) -> str:
        """The class with its evidence in one sentence."""
        missing = f" ({self.missing})" if self.missing else ""
        return f"{self.by}: {', '.join(self.evidence)}{missing}" if self.evidence else f"{self.by}{missing}"


def bottlenecks(summary: Summary) -> list[Bottleneck]:
    """The bottleneck of each job that ran on a GPU and has an ok task, in order."""
    alone = {_progression(job): job.perf for job in summary.jobs if job.per == 1 and job.ranks == 1}
    clocks = {gpu.max_sm_clock_mhz for machine in summary.machines for gpu in machine.gpus}
    highest_mhz = clocks.pop() if len(clocks) == 1 else None
    return [
        bottleneck(_with_clock(job, highest_mhz), alone.get(_progression(job)))
        for job in summary.jobs
        if job.perf is not None and not _on_cpu(job)
    ]


def _with_clock(job: JobSummary, highest_mhz: int | None) -> JobSummary:
    """The job with the highest clock of its machine's GPUs, which older summaries keep with the machine only."""
    if job.use is None or job.use.max_sm_clock_mhz is not None or highest_mhz is None:
        return job
    return replace(job, use=replace(job.use, max_sm_clock_mhz=float(highest_mhz)))


def _progression(job: JobSummary) -> str:
    """The name that a job shares with its rows on other numbers of GPUs."""
    return cell_name(job.job, {axis: value for axis, value in job.axes.items() if axis not in PLACE_AXES})


def _on_cpu(job: JobSummary) -> bool:
    return job.devices == "none" or bool(job.tasks and all(task.device.startswith("CPU") for task in job.tasks))


def bottleneck(job: JobSummary, alone: float | None = None) -> Bottleneck:
    """What limits a job on GPUs.

    Args:
        alone: the rate of the same job on one GPU; only a group of ranks needs it.
    """
    use = job.use
    kernels = _kernels(use) if use else None
    if use is None or kernels is None:
        return Bottleneck(job.name, "not known", (), "no telemetry of its GPUs")
    return (
        _by_copies(job.name, use, kernels)
        or _by_host(job.name, use, kernels)
        or _by_communication(job, use, kernels, alone)
        or _by_unit(job.name, use, kernels)
    )


def _kernels(use: Use) -> float | None:
    """The share of the time in which a kernel ran; where it is not recorded, the share of busy SMs."""
    busy = use.sm_percent if use.gpu_percent is None else use.gpu_percent
    return None if busy is None else busy / 100


def _by_copies(name: str, use: Use, kernels: float) -> Bottleneck | None:
    rates = {"in": use.pcie_rx_mib_s or 0.0, "out": use.pcie_tx_mib_s or 0.0}
    way = max(rates, key=lambda key: rates[key])
    busy = rates[way] / LINK_MIB_S
    if busy < max(NEAR_PEAK, kernels):
        return None
    word = "brings in" if way == "in" else "takes out"
    link = f"PCIe {word} {whole(rates[way])} MiB/s, {percent(busy, 0)} of what it can carry"
    return Bottleneck(name, "copies", (link, _kernel_words(use)))


def _by_host(name: str, use: Use, kernels: float) -> Bottleneck | None:
    if kernels >= HALF:
        return None
    evidence = (_kernel_words(use), *_host_evidence(use))
    if use.input_waiting is None:
        return Bottleneck(name, "host or input", evidence, "the wait for batches is not recorded")
    return Bottleneck(name, "input" if use.input_waiting >= HALF else "host", evidence)


def _by_communication(job: JobSummary, use: Use, kernels: float, alone: float | None) -> Bottleneck | None:
    """The verdict on a group of ranks that loses by communicating, or that cannot be judged; else None."""
    if job.ranks == 1:
        return None
    over = f" over {job.backend}" if job.backend else ""
    links = max(use.nvlink_tx_mib_s or 0.0, use.nvlink_rx_mib_s or 0.0)
    traffic = (f"NVLink carries {whole(links)} MiB/s",) if links else ()
    if not alone or job.perf is None:
        evidence = (f"{job.ranks} ranks{over}", _kernel_words(use), *traffic)
        return Bottleneck(job.name, "not known", evidence, "no rate of one GPU alone: give placement gpu_progression")
    efficiency = job.perf / alone
    kept = f"{job.ranks} ranks{over} reach {percent(efficiency, 0)} of the rate of one GPU each"
    if efficiency < HALF:
        return Bottleneck(job.name, "communication", (kept, *traffic))
    found = _by_unit(job.name, use, kernels)
    return Bottleneck(found.job, found.by, (kept, *found.evidence), found.missing)


def _by_unit(name: str, use: Use, kernels: float) -> Bottleneck:
    events: Mapping[str, float] = use.clock_events or {}
    slowed = max(SLOWING, key=lambda event: events.get(event, 0.0))
    if events.get(slowed, 0.0) >= HALF:
        evidence = (
            f"{slowed} slow-down for {percent(events[slowed], 0)} of the time",
            *_clock(use),
            _kernel_words(use),
        )
        return Bottleneck(name, "throttling", evidence)
    shares = {unit: share for unit in UNITS if (share := _of_reach(use, unit, kernels)) is not None}
    first = max(shares, key=lambda unit: shares[unit], default=None)
    near = first if first and shares[first] >= NEAR_PEAK else None
    cap = tuple(_cap_words(use))
    evidence = (_kernel_words(use), *_unit_words(use, first))
    if capped(use) and not (near and near.by == "memory bandwidth"):
        return Bottleneck(name, "power", (*cap, *evidence))
    evidence = (*evidence, *cap)
    if near:
        return Bottleneck(name, near.by, evidence)
    missing = [unit.name for unit in UNITS if unit not in shares]
    if missing:
        return Bottleneck(name, "GPU", evidence, f"not recorded: {', '.join(missing)}")
    return Bottleneck(name, "latency", (*evidence, "no unit is near its peak"))


def _of_reach(use: Use, unit: Unit, kernels: float) -> float | None:
    """The use of a unit while kernels run, over what a kernel made for it reaches; None if it is not recorded."""
    value: float | None = getattr(use, unit.field)
    return None if value is None or kernels <= 0 else value / 100 / kernels / unit.reach


def capped(use: Use) -> bool:
    """Whether the power limit lowers the SM clock for at least half of the time."""
    if (use.clock_events or {}).get(CAPPED, 0.0) < HALF:
        return False
    if use.sm_clock_mhz is None or use.max_sm_clock_mhz is None:
        return False
    return use.sm_clock_mhz <= SLOWED_CLOCK * use.max_sm_clock_mhz


def _kernel_words(use: Use) -> str:
    if use.gpu_percent is None:
        return f"SMs are busy for {whole(use.sm_percent)} % of the time"
    return f"a kernel runs for {whole(use.gpu_percent)} % of the time"


def _cap_words(use: Use) -> Iterator[str]:
    share = (use.clock_events or {}).get(CAPPED, 0.0)
    if share >= _NOTABLE:
        yield f"at the power limit for {percent(share, 0)} of the time"
        yield from _clock(use)


def _clock(use: Use) -> Iterator[str]:
    if use.sm_clock_mhz is not None:
        of = f" of {whole(use.max_sm_clock_mhz)}" if use.max_sm_clock_mhz else ""
        yield f"SM clock {whole(use.sm_clock_mhz)}{of} MHz"


def _unit_words(use: Use, first: Unit | None) -> Iterator[str]:
    """The busy SMs, and each unit in use: the nearest to its peak first."""
    if use.gpu_percent is not None and use.sm_percent is not None:
        yield f"SMs busy {whole(use.sm_percent)} %"
    for unit in sorted(UNITS, key=lambda unit: unit is not first):
        value: float | None = getattr(use, unit.field)
        if value is not None and value >= 1:
            yield f"{unit.name} {value:.0f} %"


def _host_evidence(use: Use) -> Iterator[str]:
    if use.input_waiting is not None:
        yield f"the host waits for the next batch for {percent(use.input_waiting, 0)} of the time"
    if use.cpus_busy is not None:
        of = f" of {whole(use.cpus)}" if use.cpus else ""
        yield f"{use.cpus_busy:.1f}{of} CPUs are busy"
    for share, words in (
        (use.cpu_waiting, "a process waits for a CPU"),
        (use.cpu_throttled, "the CPU quota holds processes back"),
        (use.cpu_stolen, "a hypervisor withholds the CPUs"),
    ):
        if share is not None and share >= _NOTABLE:
            yield f"{words} for {percent(share, 0)} of the time"
