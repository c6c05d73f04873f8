"""The use of GPUs, memory and CPUs, from results; and the parts of the scatter between tasks."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchsuite.describe.tasks import Task
from benchsuite.records import Result
from benchsuite.report.measure.intervals import mean
from benchsuite.report.read.load import Row
from benchsuite.report.read.summary import TaskSummary
from benchsuite.report.read.use import StdParts, Use
from benchsuite.telemetry import DeviceTelemetry, stolen_share

_GAUGES = (
    "gpu_percent",
    "sm_percent",
    "tensor_percent",
    "dram_percent",
    "fp64_percent",
    "fp32_percent",
    "fp16_percent",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "pcie_tx_mib_s",
    "pcie_rx_mib_s",
    "nvlink_tx_mib_s",
    "nvlink_rx_mib_s",
)
# Facts of the GPUs, which say nothing on their use.
_FACTS = ("power_limit_w", "max_sm_clock_mhz")
_CPU = ("input_waiting", "cpus_busy", "cpus", "cpu_waiting", "cpu_throttled", "cpu_stolen")
_MEANS = (*_GAUGES, "power_w", *_FACTS, *_CPU)
# A GPU's telemetry counts if its samples cover at least this share of the window.
MIN_SAMPLED_SHARE = 0.5
_PEAKS = ("device_reserved_bytes", "host_rss_bytes")


def task_use(row: Row) -> Use | None:
    """The use of a task; None if its result records none.

    Copies that share a GPU have no items per joule of their own, since its power is that of all copies.
    """
    result = row.result
    if result is None:
        return None
    devices = _watched(result)
    rate = row.window.perf if row.status == "ok" and row.window else None
    watts = _total_w(row) if row.task.job.processes == 1 else None
    spreads = [device.spreads for device in devices]
    gauges: dict[str, Any] = {n: mean([of.mean for every in spreads if (of := every.get(n))]) for n in _GAUGES}
    facts: dict[str, Any] = {name: mean([getattr(gpu, name) for gpu in row.task.gpus]) for name in _FACTS}
    use = Use(
        **gauges,
        **facts,
        power_w=mean(_power_w(device) for device in devices),
        items_per_joule=None if rate is None or watts is None else rate / watts,
        **_peaks(result),
        **_clock_events(devices),
        input_waiting=_input_waiting(result),
        **_cpu(result),
        cpu_stolen=cpu_stolen(result),
    )
    return None if use == Use(**facts) else use


def job_use(tasks: Sequence[TaskSummary], items_per_joule: float | None) -> Use | None:
    """The mean over a job's ok tasks, of peaks the largest; None if no ok task has a use.

    Args:
        items_per_joule: of the whole job.
    """
    known = [task.use for task in tasks if task.status == "ok" and task.use]
    if not known:
        return None
    watched = [(use.clock_events, use.watched_s) for use in known if use.clock_events is not None and use.watched_s]
    watched_s = math.fsum(seconds for _, seconds in watched)
    causes = sorted({cause for events, _ in watched for cause in events})
    shares = {c: math.fsum(events.get(c, 0.0) * s for events, s in watched) / watched_s for c in causes}
    means: dict[str, Any] = {name: mean([getattr(use, name) for use in known]) for name in _MEANS}
    peaks: dict[str, Any] = {name: _most(getattr(use, name) for use in known) for name in _PEAKS}
    return Use(
        tasks=len(known),
        **means,
        **peaks,
        items_per_joule=items_per_joule,
        clock_events=shares if watched else None,
        watched_s=watched_s if watched else None,
    )


def std_parts(tasks: Iterable[TaskSummary]) -> StdParts | None:
    """The scatter between GPUs, between repeats, and the rest.

    A two-way table of means: x = mean + GPU + repeat + rest, with population standard deviations of each. A repeat of
    another session is another repeat. None if no repeat has every GPU, or if there is a single figure.
    """
    table: dict[tuple[int, int], dict[tuple[object, ...], float]] = defaultdict(dict)
    for task in tasks:
        if task.perf is not None:
            table[task.session, task.repeat][task.host, task.device, task.copy] = task.perf
    places = {place for of_repeat in table.values() for place in of_repeat}
    complete = [of_repeat for of_repeat in table.values() if len(of_repeat) == len(places)]
    mean = statistics.fmean(perf for of in complete for perf in of.values()) if complete else 0.0
    if not mean or len(complete) * len(places) < 2:
        return None
    gpus = {place: statistics.fmean(of[place] for of in complete) for place in places}
    repeats = [statistics.fmean(of.values()) for of in complete]
    rest = [of[p] - gpus[p] - at + mean for of, at in zip(complete, repeats, strict=True) for p in places]
    several_gpus, several_repeats = len(places) > 1, len(complete) > 1
    return StdParts(
        gpus=statistics.pstdev(gpus.values()) / mean if several_gpus else None,
        repeats=statistics.pstdev(repeats) / mean if several_repeats else None,
        rest=statistics.pstdev(rest) / mean if several_gpus and several_repeats else None,
        complete=len(complete),
    )


def job_items_per_joule(rows: Sequence[Row]) -> float | None:
    """The sum of rates over the sum of powers: work over energy, not a mean of ratios.

    A GPU that copies share counts once a repeat. A GPU counts in a repeat only if all its tasks are ok and have an
    energy counter.
    """
    by_gpus: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        host = row.result.identity.host if row.result else None
        by_gpus[host, row.task.repeat, tuple(gpu.uuid for gpu in row.task.gpus)].append(row)
    rates, powers = [], []
    for shared in by_gpus.values():
        known = [power for row in shared if (power := _total_w(row)) is not None]
        if len(known) == len(shared):
            rates.append(math.fsum(row.window.perf or 0.0 for row in shared if row.window))
            powers.append(statistics.fmean(known))
    return math.fsum(rates) / math.fsum(powers) if powers else None


def _watched(result: Result) -> list[DeviceTelemetry]:
    """The GPUs whose samples cover at least `MIN_SAMPLED_SHARE` of the window."""
    found = result.telemetry
    if found is None:
        return []
    window_s = found.end_s - found.start_s
    return [device for device in found.devices if device.sampled_share(window_s) >= MIN_SAMPLED_SHARE]


def unsampled(result: Result | None) -> str | None:
    """The parts of a task's window in which its GPUs were not sampled, in words; None without such a part."""
    found = result.telemetry if result else None
    if result is None or found is None:
        return None
    spans = ((gpu_words(result.task, d), d.unsampled_words(found.end_s - found.start_s)) for d in found.devices)
    return "; ".join(f"{gpu}: {words}" for gpu, words in spans if words) or None


def gpu_words(task: Task, device: DeviceTelemetry) -> str:
    """A GPU of a task, as "GPU 3". Of a task over nodes its node comes first, since each node numbers its own."""
    nodes = [share.node for share in task.nodes for _ in range(share.gpus)]
    node = next((node for node, gpu in zip(nodes, task.gpus, strict=False) if gpu.uuid == device.uuid), None)
    return f"{node} GPU {device.visible_index}" if node else f"GPU {device.visible_index}"


def _total_w(row: Row) -> float | None:
    """Mean power of all GPUs of a task together; None unless it is ok and each GPU has an energy counter."""
    if row.status != "ok" or not row.result or not row.result.telemetry:
        return None
    devices = _watched(row.result)
    powers = [_counted_w(device) for device in devices] if len(devices) == len(row.result.telemetry.devices) else []
    return math.fsum(power for power in powers if power) if powers and all(powers) else None


def _counted_w(device: DeviceTelemetry) -> float | None:
    """Mean power by the energy counter, over the seconds between its two readings."""
    if device.energy_j is None or not device.energy_span_s or device.energy_j <= 0:
        return None
    return device.energy_j / device.energy_span_s


def _power_w(device: DeviceTelemetry) -> float | None:
    counted = _counted_w(device)
    return _gauge(device, "power_w") if counted is None else counted


def _gauge(device: DeviceTelemetry, name: str) -> float | None:
    spread = device.spreads.get(name)
    return spread.mean if spread else None


def _peaks(result: Result) -> dict[str, Any]:
    peaks = [stream.peak_memory for stream in result.measurement.streams if stream.peak_memory]
    host = [peak.host_rss_bytes for peak in peaks if peak.host_rss_bytes is not None]
    return {
        "device_reserved_bytes": _most(peak.device_reserved_bytes for peak in peaks),
        "host_rss_bytes": sum(host) if host else None,
    }


def _clock_events(devices: Iterable[DeviceTelemetry]) -> dict[str, Any]:
    watched = [(d.clock_events_s, d.clock_events_span_s) for d in devices if d.clock_events_s is not None]
    seconds = math.fsum(span_s or 0.0 for _, span_s in watched)
    if not seconds:
        return {"clock_events": None, "watched_s": None}
    under: dict[str, float] = defaultdict(float)
    for events, _ in watched:
        for cause, cause_s in events.items():
            under[cause] += cause_s / seconds
    return {"clock_events": dict(under), "watched_s": seconds}


def _input_waiting(result: Result) -> float | None:
    """The share of the measured slices in which the host waited for a batch, mean over ranks; None if not recorded."""
    shares = []
    for stream in result.measurement.streams:
        if stream.input_s is None:
            continue
        measured_s = math.fsum(s.elapsed_s for s in stream.slices if s.phase == "measure")
        if measured_s > 0:
            shares.append(min(1.0, stream.input_s / measured_s))
    return statistics.fmean(shares) if shares else None


def _cpu(result: Result) -> dict[str, Any]:
    started_s, ended_s = result.timeline.started_s, result.timeline.ended_s
    if started_s is None or ended_s is None or ended_s <= started_s:
        return {}
    pressure, took_s = result.tenant.pressure, ended_s - started_s
    waited_s = pressure.cpu_some_s if pressure else None
    throttled_s = result.tenant.throttled_s
    seen = result.telemetry.tenant if result.telemetry else None
    return {
        "cpus_busy": seen.cpus if seen else None,
        "cpus": len(result.tenant.cpus) or None,
        "cpu_waiting": None if waited_s is None else waited_s / took_s,
        "cpu_throttled": None if throttled_s is None else throttled_s / took_s,
    }


def cpu_stolen(result: Result) -> float | None:
    """The share that a hypervisor withheld of the time in which a task's processors had work; None if not recorded."""
    tenant = result.telemetry.tenant if result.telemetry else None
    if tenant is None or tenant.cpus_busy_s is None or tenant.cpus_stolen_s is None:
        return None
    return stolen_share(tenant.cpus_busy_s, tenant.cpus_stolen_s)


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
