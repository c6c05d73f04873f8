"""What a tender could demand of the measurements themselves: data, precision, and nothing that held the GPUs back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from benchsuite.findings import Finding, note, ok, unmet
from benchsuite.records import Result
from benchsuite.report.read.workload import COLD, WARM
from benchsuite.report.show.format import count, one_line, percent
from benchsuite.report.stats.use import cpu_stolen
from benchsuite.report.verify import some
from benchsuite.report.verify.evidence import Evidence
from benchsuite.telemetry import SLOWING, STOLEN_LIMIT, DeviceTelemetry

# From most to least exact, as `worker.checks` names them, and what a job asks for as it shows there.
_EXACT = ("fp32", "tf32 or fp16", "bf16")
_ASKED = {"fp32": "fp32", "tf32": "tf32 or fp16", "amp-fp16": "tf32 or fp16", "bf16": "bf16"}


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Each demand, met or not; what was not recorded is said to be unknown."""
    results = evidence.measured
    if not results:
        return
    yield from _data(results)
    yield _precision(results)
    yield _stolen(results)
    devices = [(result, device) for result in results for device in _devices(result)]
    if any(result.task.gpus for result in results):
        yield _throttling(results, devices)
        yield _foreign(results, devices)
        yield _ecc(results, devices)


def _devices(result: Result) -> Iterable[DeviceTelemetry]:
    return result.telemetry.devices if result.telemetry else ()


def _data(results: Iterable[Result]) -> Iterator[Finding]:
    kinds: dict[str, set[str]] = defaultdict(set)
    wrong, unknown = [], []
    for result in results:
        job, data = result.task.job, result.data
        if job.data is None:
            kinds["made in memory, as the profile says"].add(job.name)
        elif data is None or data.name != job.data or not data.sha256:
            wrong.append(f"{result.task.id}: {job.data} was asked for, {data.name if data else 'nothing'} is recorded")
        else:
            kind = "real" if data.real else f"synthetic{f', size {data.size}' if data.size else ''}"
            kinds[f"{kind}, version {data.version}"].add(job.name)
            if job.page_cache != "any" and data.cached is None:
                unknown.append(result.task.id)
            elif (job.page_cache == "cold" and (data.cached or 0) > COLD) or (
                job.page_cache == "warm" and (data.cached or 0) < WARM
            ):
                wrong.append(
                    f"{result.task.id}: page cache {job.page_cache} was asked for, {data.cached:.0%} were held"
                )
    lines = [f"{kind}: {some(sorted(jobs), 30)}" for kind, jobs in sorted(kinds.items())]
    synthetic = any(kind.startswith("synthetic") for kind in kinds)
    if wrong:
        remedy = "bring the data sets with benchsuite prepare, on a file system whose cache can be dropped"
        yield unmet(
            "data", f"{count(len(wrong), 'task')} without the data that was asked for", remedy, [*wrong, *lines]
        )
    elif synthetic:
        yield unmet("data", "synthetic, complete", "benchsuite prepare --profile NAME brings the real data sets", lines)
    else:
        yield ok("data", "; ".join(lines))
    if unknown:
        yield note("page cache", f"how much it held is not known for {count(len(unknown), 'task')}", None, unknown)


def _precision(results: Iterable[Result]) -> Finding:
    less: list[str] = []
    more: list[str] = []
    unchecked, checked = set(), 0
    for result in results:
        for stream in result.measurement.streams:
            if stream.precision is None:
                unchecked.add(result.task.job.name)
                continue
            checked += 1
            asked, found = result.task.job.training.precision, stream.precision.in_force
            said = f"{result.task.id}: {asked} was asked for, {found} was in force"
            if stream.precision.asked != asked or found not in _EXACT:
                less.append(f"{said}, checked as {stream.precision.asked}")
            elif found != _ASKED[asked]:
                (less if _EXACT.index(found) > _EXACT.index(_ASKED[asked]) else more).append(said)
    if less:
        remedy = "unset what overrides precision, such as NVIDIA_TF32_OVERRIDE"
        return unmet("precision", f"{count(len(less), 'stream')} less exact than was asked for", remedy, less)
    if more:
        text = f"{count(len(more), 'stream')} more exact than was asked for, which costs speed, not trust"
        return note("precision", text, None, more)
    if unchecked:
        text = f"as asked in {count(checked, 'stream')}; not checked in {some(sorted(unchecked), 30)}"
        return note("precision", text)
    return ok("precision", f"in force as asked in all {count(checked, 'stream')}")


def _stolen(results: list[Result]) -> Finding:
    shares = [(cpu_stolen(result), result.task.id) for result in results]
    known = sorted(((share, task) for share, task in shares if share is not None), reverse=True)
    held_up = [f"{task}: {percent(share)} of its processors' time" for share, task in known if share >= STOLEN_LIMIT]
    if held_up:
        text = f"a hypervisor withheld processor time from {count(len(held_up), 'task')}"
        return unmet("stolen CPU", text, "measure on a host of its own, or take more repeats", held_up)
    if len(known) < len(results):
        return note("stolen CPU", f"known of {len(known)} of {count(len(results), 'task')}")
    return ok("stolen CPU", f"a hypervisor withheld at most {percent(known[0][0])} of any task's processor time")


Devices = list[tuple[Result, DeviceTelemetry]]


def _unknown(about: str, results: Iterable[Result], known: int, why: str | None) -> Finding:
    """What not all GPUs tell is no proof of anything."""
    total = sum(len(result.task.gpus) for result in results)
    reason = f": {one_line(why)}" if why else ""
    return note(about, f"known of {known} of {count(total, 'GPU window')}{reason}")


def _throttling(results: list[Result], devices: Devices) -> Finding:
    found = [(result, device, device.clock_events_s) for result, device in devices if device.clock_events_s is not None]
    slowed = [
        f"{result.task.id} on GPU {device.visible_index}: {event}, "
        f"{seconds:.1f} s of {device.clock_events_span_s or 0:.1f} s"
        for result, device, events_s in found
        for event, seconds in events_s.items()
        if event in SLOWING and seconds > 0
    ]
    if slowed:
        remedy = "see to cooling and power supply, then measure anew"
        return unmet(
            "throttling", f"{count(len(slowed), 'GPU window')} slowed down by heat or hardware", remedy, slowed
        )
    if len(found) < sum(len(result.task.gpus) for result in results):
        why = next((d.reasons.get("clock_events_s") for _, d in devices if d.clock_events_s is None), None)
        return _unknown("throttling", results, len(found), why)
    return ok("throttling", f"none by heat or hardware in {count(len(found), 'GPU window')}")


def _foreign(results: list[Result], devices: Devices) -> Finding:
    found = [(result, device, device.foreign) for result, device in devices if device.foreign is not None]
    others = [
        f"{result.task.id} on GPU {device.visible_index}: process {process.pid}"
        for result, device, processes in found
        for process in processes
    ]
    if others:
        remedy = "have the machine to yourself, then measure anew"
        return unmet("foreign", f"{count(len(others), 'process')} of others on the GPUs", remedy, others)
    if len(found) < sum(len(result.task.gpus) for result in results):
        why = next((d.reasons.get("foreign") for _, d in devices if d.foreign is None), None)
        return _unknown("foreign", results, len(found), why)
    return ok("foreign", f"no other compute process in {count(len(found), 'GPU window')}")


def _ecc(results: list[Result], devices: Devices) -> Finding:
    found = [
        (result, device, device.ecc_uncorrected) for result, device in devices if device.ecc_uncorrected is not None
    ]
    errors = [f"{result.task.id} on GPU {device.visible_index}: {n} uncorrected" for result, device, n in found if n]
    if errors:
        return unmet("ECC", f"{count(len(errors), 'GPU window')} with memory errors", "have the GPU replaced", errors)
    if len(found) < sum(len(result.task.gpus) for result in results):
        why = next((d.reasons.get("ecc_uncorrected") for _, d in devices if d.ecc_uncorrected is None), None)
        return _unknown("ECC", results, len(found), why)
    return ok("ECC", f"no uncorrected error in {count(len(found), 'GPU window')}")
