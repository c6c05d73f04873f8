"""Figures of a kept summary that stand beside the rates: use of GPUs, memory and CPUs, and the parts of std%."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from benchsuite.schema import Record


class Use(Record, frozen=True, kw_only=True):
    """The use of GPUs, memory and CPUs in the measured part; fields are null if not recorded.

    A task's figure is the mean over its GPUs, a job's the mean over its ok tasks that have one.
    """

    tasks: Annotated[int, Meta(description="ok tasks with such figures")] = 1
    gpu_percent: Annotated[float | None, Meta(description="time in which any kernel ran (NVML)")] = None
    sm_percent: Annotated[float | None, Meta(description="mean share of SMs that were busy (GPM)")] = None
    tensor_percent: Annotated[float | None, Meta(description="use of all tensor pipes (GPM)")] = None
    dram_percent: Annotated[float | None, Meta(description="device memory bandwidth, of its peak (GPM)")] = None
    fp64_percent: Annotated[float | None, Meta(description="use of the FP64 pipe (GPM)")] = None
    fp32_percent: Annotated[float | None, Meta(description="use of the FP32 pipe (GPM)")] = None
    fp16_percent: Annotated[float | None, Meta(description="use of the FP16 pipe (GPM)")] = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None
    nvlink_tx_mib_s: float | None = None
    nvlink_rx_mib_s: float | None = None
    power_w: Annotated[float | None, Meta(description="of one GPU, by its energy counter where it has one")] = None
    power_limit_w: float | None = None
    items_per_joule: Annotated[
        float | None, Meta(description="throughput in the window over the power of all GPUs in the measured part")
    ] = None
    device_reserved_bytes: Annotated[int | None, Meta(description="peak of one GPU, the largest")] = None
    host_rss_bytes: Annotated[int | None, Meta(description="peak of a task, its ranks added up")] = None
    clock_events: Annotated[
        dict[str, float] | None,
        Meta(description="share of `watched_s` under each reason why clocks were not at their highest"),
    ] = None
    watched_s: Annotated[float | None, Meta(description="seconds that were sampled, added up over GPUs")] = None
    input_waiting: Annotated[
        float | None, Meta(description="share of the measured time in which the host waited for the next batch")
    ] = None
    cpus_busy: Annotated[float | None, Meta(description="mean number of CPUs that a task kept busy")] = None
    cpus: Annotated[float | None, Meta(description="logical processors of a task")] = None
    cpu_waiting: Annotated[
        float | None, Meta(description="share of the time in which a process of the task waited for a CPU (PSI)")
    ] = None
    cpu_throttled: Annotated[
        float | None, Meta(description="share of the time in which the run's CPU quota held processes back")
    ] = None
    cpu_stolen: Annotated[
        float | None,
        Meta(description="share of its processors' time with work that a hypervisor withheld (steal)"),
    ] = None


class StdParts(Record, frozen=True, kw_only=True):
    """The parts of std%, relative to the mean of the tasks concerned; null with one GPU or one repeat.

    Their squares add up to the square of the whole.
    """

    gpus: Annotated[float | None, Meta(description="population standard deviation of the GPUs' means")] = None
    repeats: Annotated[float | None, Meta(description="population standard deviation of the repeats' means")] = None
    rest: Annotated[float | None, Meta(description="standard deviation of what both leave")] = None
    complete: Annotated[
        int, Meta(description="repeats behind the parts: those in which each GPU (or copy) that was ever ok is ok")
    ] = 0
