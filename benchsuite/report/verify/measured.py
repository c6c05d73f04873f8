"""The purchase requirements on the measurements: the data and precision asked for, and GPUs that nothing slows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from benchsuite.describe.tasks import Task
from benchsuite.describe.training import Precision
from benchsuite.findings import Finding, note, ok, unmet
from benchsuite.measurement import PrecisionCheck
from benchsuite.records import Result
from benchsuite.report.format import count, one_line, percent
from benchsuite.report.read.workload import COLD, WARM
from benchsuite.report.stats.use import cpu_stolen, gpu_words, unsampled
from benchsuite.report.verify import some
from benchsuite.report.verify.evidence import Evidence
from benchsuite.telemetry import SLOWING, STOLEN_LIMIT, DeviceTelemetry

# From most to least exact, as `worker.checks` names them; then the name there of each precision of a job.
_EXACT = ("fp32", "tf32 or fp16", "bf16")
_ASKED = {"fp32": "fp32", "tf32": "tf32 or fp16", "amp-fp16": "tf32 or fp16", "bf16": "bf16"}
# Dtypes of parameters with fewer bits than float32, and with more. Mixed precision keeps parameters in float32, too.
_SHORT = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"})
_LONG = frozenset({"float64", "complex128"})


@dataclass(frozen=True)
class _Watched:
    """A demand on what telemetry records of each GPU.

    `field` is that of `DeviceTelemetry`; `troubles` lists what is wrong on one GPU. The finding says either "2 `noun`s
    `unmet`", or "`fine` in 3 GPU windows".
    """

    about: str
    field: str
    troubles: Callable[[DeviceTelemetry], Iterable[str]]
    noun: str
    unmet: str
    remedy: str
    fine: str


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Each demand, met or not, or unknown if the records lack it."""
    results = evidence.measured
    if not results:
        return
    yield from _data(results)
    yield _precision(results)
    yield from _memory(results)
    yield _stolen(results)
    if any(result.task.gpus for result in results):
        yield from _sampled(results)
        yield from (_watched(demand, results) for demand in _WATCHED)


def _memory(results: Iterable[Result]) -> Iterator[Finding]:
    """A note on jobs whose tasks reserved more GPU memory than their profile says they need."""
    over: dict[str, str] = {}
    for result in results:
        need_gib = result.task.job.gpu_memory_gib
        peaks = [s.peak_memory.device_reserved_bytes or 0 for s in result.measurement.streams if s.peak_memory]
        peak_gib = max(peaks, default=0) / 2**30
        if need_gib is not None and peak_gib > need_gib:
            over[result.task.job.name] = f"{result.task.job.name} needs {need_gib:g} GiB and reserved {peak_gib:.2f}"
    if over:
        yield note("GPU memory", f"the profile's gpu_memory_gib is too low: {'; '.join(over.values())}")


def _data(results: Iterable[Result]) -> Iterator[Finding]:
    kinds: dict[str, set[str]] = defaultdict(set)
    wrong, unknown = [], []
    for result in results:
        job, data = result.task.job, result.data
        held, limit = (data.cached if data else None), job.page_cache
        if job.data is None:
            kinds["made in memory, as the profile says"].add(job.name)
        elif data is None or data.name != job.data or not data.sha256:
            wrong.append(f"{result.task.id}: {job.data} was asked for, {data.name if data else 'nothing'} is recorded")
        else:
            kind = "real" if data.real else f"synthetic{f', size {data.size}' if data.size else ''}"
            kinds[f"{kind}, version {data.version}"].add(job.name)
            if held is None:
                unknown += [result.task.id] if limit != "any" else []
            elif (limit == "cold" and held > COLD) or (limit == "warm" and held < WARM):
                wrong.append(f"{result.task.id}: page cache {limit} was asked for, {held:.0%} of the data were in it")
    lines = [f"{kind}: {some(sorted(jobs), 30)}" for kind, jobs in sorted(kinds.items())]
    if wrong:
        text = f"{count(len(wrong), 'task')} without the data that was asked for"
        remedy = "bring the data sets with benchsuite prepare, on a file system whose cache can be dropped"
        yield unmet("data", text, remedy, [*wrong, *lines])
    elif any(kind.startswith("synthetic") for kind in kinds):
        yield unmet("data", "synthetic, complete", "benchsuite prepare --profile NAME brings the real data sets", lines)
    else:
        yield ok("data", "; ".join(lines))
    if unknown:
        yield note("page cache", f"unknown for {count(len(unknown), 'task')}", None, unknown)


def _precision(results: Iterable[Result]) -> Finding:
    found = [(result.task, stream.precision) for result in results for stream in result.measurement.streams]
    checked = [(task, check) for task, check in found if check]
    off = [
        (exact, f"{task.id}: {asked} was asked for, {said}")
        for task, check in checked
        for asked in [task.job.training.precision]
        for said, exact in _off(asked, check)
    ]
    if less := [said for exact, said in off if not exact]:
        remedy = "unset what overrides precision, such as NVIDIA_TF32_OVERRIDE, and leave parameters in float32"
        return unmet("precision", f"{count(len(less), 'stream')} less exact than was asked for", remedy, less)
    if more := [said for _, said in off]:
        text = f"{count(len(more), 'stream')} more exact than was asked for: slower, but valid"
        return note("precision", text, None, more)
    as_asked = f"as asked in {count(len(checked), 'stream')}"
    if unchecked := sorted({task.job.name for task, check in found if not check}):
        return note("precision", f"{as_asked}; not checked in {some(unchecked, 30)}")
    if unknown := [task.id for task, check in checked if check.parameters is None]:
        return note("precision", f"{as_asked}; the dtype of parameters is not recorded", None, unknown)
    aside = _unchecked_products(checked) + _declared(check for _, check in checked)
    return ok("precision", f"in force as asked in all {count(len(checked), 'stream')}, parameters in float32{aside}")


# A format that a model declares -> torch's dtype.
_DTYPES = {"bf16": "bfloat16"}


def _unchecked_products(checked: Iterable[tuple[Task, PrecisionCheck]]) -> str:
    """In words, how many streams have no record of their products, as compiled ones and those of earlier versions."""
    compiled = [task.job.training.compile != "none" for task, check in checked if check.products is None]
    if not compiled:
        return ""
    why = "compiled" if all(compiled) else "compiled, or of an earlier version"
    return f"; matrix products are not checked in {count(len(compiled), 'stream')}: {why}"


def _declared(checks: Iterable[PrecisionCheck]) -> str:
    """In words, how many streams compute their products in a format that their models declare."""
    formats = [check.declared for check in checks if check.declared]
    if not formats:
        return ""
    which = " and ".join(sorted(set(formats)))
    return f"; products of {count(len(formats), 'stream')} are in {which}, as the models declare"


def _off(asked: Precision, check: PrecisionCheck) -> Iterator[tuple[str, bool]]:
    """Each way in which a stream computes in another precision, in words, and whether it is more exact."""
    found, wanted = check.in_force, _ASKED[asked]
    if check.asked != asked or found not in _EXACT:
        yield f"{found} was in force, checked as {check.asked}", False
    elif found != wanted:
        yield f"{found} was in force", _EXACT.index(found) < _EXACT.index(wanted)
    dtypes = (check.parameters or {}).keys()
    for others in (dtypes & _SHORT, dtypes & _LONG):
        if others:
            yield f"parameters are {' and '.join(sorted(others))}", others <= _LONG
    cast = (check.products or {}).keys() & _SHORT - {_DTYPES.get(check.declared or "")}
    if cast and asked in ("fp32", "tf32"):
        yield f"products are in {' and '.join(sorted(cast))}", False


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


def _sampled(results: Iterable[Result]) -> Iterator[Finding]:
    """Says nothing if all GPUs were sampled throughout."""
    found = [f"{result.task.id}: {words}" for result in results if (words := unsampled(result))]
    if found:
        text = f"GPUs were not sampled throughout in {count(len(found), 'task')}"
        remedy = "read the kernel's log for why the GPU did not answer, then make a new run"
        yield unmet("telemetry", text, remedy, found)


def _watched(demand: _Watched, results: list[Result]) -> Finding:
    """One demand on the GPUs of all results. A window whose figure is unknown proves nothing."""
    devices = [(result, device) for result in results if result.telemetry for device in result.telemetry.devices]
    partly = [(result, device) for result, device in devices if getattr(device, demand.field) is not None]
    troubles = [
        f"{result.task.id} on {gpu_words(result.task, device)}: {trouble}"
        for result, device in partly
        for trouble in demand.troubles(device)
    ]
    known = [device for _, device in partly if not device.unsampled]
    if troubles:
        return unmet(demand.about, f"{count(len(troubles), demand.noun)} {demand.unmet}", demand.remedy, troubles)
    total = sum(len(result.task.gpus) for result in results)
    if len(known) < total:
        unknown = (d.reasons.get(demand.field) for _, d in devices if getattr(d, demand.field) is None)
        why = next(unknown, None) or next((d.reasons.get("samples") for _, d in devices if d.unsampled), None)
        reason = f": {one_line(why)}" if why else ""
        return note(demand.about, f"known of {len(known)} of {count(total, 'GPU window')}{reason}")
    return ok(demand.about, f"{demand.fine} in {count(len(known), 'GPU window')}")


def _slowed(device: DeviceTelemetry) -> Iterator[str]:
    for event, seconds in (device.clock_events_s or {}).items():
        if event in SLOWING and seconds > 0:
            yield f"{event}, {seconds:.1f} s of {device.clock_events_span_s or 0:.1f} s"


_WATCHED = (
    _Watched(
        "throttling", "clock_events_s", _slowed, "GPU window", "slowed down by heat or hardware",
        "improve cooling or power supply, then measure again", "none by heat or hardware",
    ),
    _Watched(
        "foreign", "foreign", lambda device: (f"process {process.pid}" for process in device.foreign or ()),
        "case", "of another process on a GPU", "stop other work on the machine, then measure again",
        "no other compute process",
    ),
    _Watched(
        "ECC", "ecc_uncorrected", lambda device: [f"{n} uncorrected"] if (n := device.ecc_uncorrected) else [],
        "GPU window", "with memory errors", "have the GPU replaced", "no uncorrected error",
    ),
)  # fmt: skip
