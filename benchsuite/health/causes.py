"""The likely cause of a bad figure: a busy neighbour, heat, lowered clocks or power, a worse link, a busy host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchsuite.describe.tasks import Gpu
from benchsuite.health.measured import Measured, reading_of
from benchsuite.health.rules import Check
from benchsuite.health.state import GpuFacts, low_generation, lowered_limit, trained_down
from benchsuite.report.format import percent
from benchsuite.report.measure.intervals import mean
from benchsuite.report.read.load import Row
from benchsuite.report.read.use import Use
from benchsuite.report.stats.causes import NO_TELEMETRY, NOTHING_DIFFERS, likely_cause
from benchsuite.report.stats.use import task_use
from benchsuite.telemetry import CAPPED, SLOWING, DeviceTelemetry, GpuProcess

MIB = 1 << 20
# A larger share of the time under a clock event that is a fault is a FAIL; a smaller one is a WARN.
SLOWED_SHARE = 0.02
# An SM clock below this share of its maximum, with hardly a power cap, is lowered by someone.
_LOW_CLOCK, _FEW_CAPS = 0.9, 0.1
_MOST = 2


@dataclass(frozen=True)
class Around:
    """What else is known of a run.

    Attributes:
        states: UUID -> the GPU's state after the run.
        cards: name of a GPU by NVML -> its key in the table of cards.
    """

    states: Mapping[str, GpuFacts]
    cards: Mapping[str, str]


def neighbours(rows: Sequence[Row], uuid: str) -> tuple[GpuProcess, ...]:
    """The compute processes on a GPU that do not belong to the run, of all these tasks."""
    found = {process.pid: process for device in _devices(rows, uuid) for process in device.foreign or ()}
    return tuple(found[pid] for pid in sorted(found))


def neighbour_words(found: Sequence[GpuProcess]) -> str:
    """ "another process computes on it: pid 4711 (2,048 MiB)"."""
    shown = []
    for process in found:
        memory = "" if process.memory_bytes is None else f" ({process.memory_bytes / MIB:,.0f} MiB)"
        outside = "" if process.here else ", of another container"
        shown.append(f"pid {process.pid}{memory}{outside}")
    return f"{'another process computes' if len(shown) == 1 else 'other processes compute'} on it: {', '.join(shown)}"


def slowed_shares(rows: Sequence[Row], uuid: str) -> dict[str, float] | None:
    """Clock event that is a fault -> share of the watched time; None if no sample shows clock events."""
    devices = [d for d in _devices(rows, uuid) if d.clock_events_s is not None and d.clock_events_span_s]
    span_s = sum(device.clock_events_span_s or 0.0 for device in devices)
    if not span_s:
        return None
    return {
        name: share
        for name in SLOWING
        if (share := sum((device.clock_events_s or {}).get(name, 0.0) for device in devices) / span_s) > 0
    }


def hottest_c(rows: Sequence[Row], uuid: str) -> float | None:
    """The highest temperature of a GPU in these tasks."""
    spreads = (device.spreads.get("temperature_c") for device in _devices(rows, uuid))
    return max((spread.max for spread in spreads if spread), default=None)


def slowed_words(shares: Mapping[str, float], hottest: float | None) -> str:
    """ "hw_thermal slow-down for 31.0 % of the time, up to 91 °C"."""
    parts = [f"{name} slow-down for {percent(share)} of the time" for name, share in shares.items()]
    return ", ".join(parts) + ("" if hottest is None else f", up to {hottest:.0f} °C")


def cause_of(measured: Measured, check: Check, others: Sequence[Measured], around: Around) -> str | None:
    """The likely causes of a bad figure in words, the most direct first; None if nothing shows one.

    Args:
        others: the same check on the node's other GPUs.
    """
    gpus = measured.place.gpus or tuple({g.uuid: g for row in measured.rows for g in row.task.gpus}.values())
    alone = len(gpus) == 1
    signs = [
        sign if alone else f"GPU {gpu.visible_index}: {sign}"
        for gpu in gpus
        for sign in _own(measured, gpu, check, around)
    ]
    if planted := next((one for row in measured.rows if (one := reading_of(row, "planted"))), None):
        return f"planted {planted.value}"
    if not signs and check.cause:
        return check.cause
    return "; ".join((signs or _compared(measured, others))[:_MOST]) or None


def _own(measured: Measured, gpu: Gpu, check: Check, around: Around) -> Iterator[str]:
    """The signs of one GPU by itself."""
    rows = measured.rows
    if found := neighbours(rows, gpu.uuid):
        yield neighbour_words(found)
    if any(device.ecc_uncorrected for device in _devices(rows, gpu.uuid)):
        yield "uncorrected memory errors during the probe"
    shares = slowed_shares(rows, gpu.uuid) or {}
    if sum(shares.values()) >= SLOWED_SHARE:
        yield slowed_words(shares, hottest_c(rows, gpu.uuid))
    state = around.states.get(gpu.uuid)
    if state and check.part == "pcie" and (narrow := trained_down(state) or low_generation(state)):
        yield narrow
    if check.part in ("chip", "memory"):
        if state and (lowered := lowered_limit(state)):
            yield lowered
        if low := _low_clock(rows, gpu):
            yield low


def _low_clock(rows: Sequence[Row], gpu: Gpu) -> str | None:
    """A clock that is lowered while neither heat nor power asks for it."""
    uses = [use for row in rows if (use := task_use(row)) and len(row.task.gpus) == 1]
    clock = mean(use.sm_clock_mhz for use in uses)
    highest = gpu.max_sm_clock_mhz
    events = [use.clock_events or {} for use in uses]
    capped = max((of.get(CAPPED, 0.0) + sum(of.get(name, 0.0) for name in SLOWING) for of in events), default=0.0)
    if clock is None or not highest or clock >= _LOW_CLOCK * highest or capped >= _FEW_CAPS:
        return None
    return f"its SM clock is {clock:,.0f} of {highest:,} MHz without heat or a power cap: clocks are locked or lowered"


def _compared(measured: Measured, others: Sequence[Measured]) -> list[str]:
    """The telemetry that differs from the others'."""
    if not measured.rows or not others or len(measured.place.gpus) != 1:
        return []
    theirs = [_uses(other.rows) for other in others]
    found = likely_cause([_uses(measured.rows)], [theirs])
    return [words for words in found if words not in (NO_TELEMETRY, NOTHING_DIFFERS)]


def _uses(rows: Sequence[Row]) -> list[Use]:
    return [use for row in rows if len(row.task.gpus) == 1 and (use := task_use(row))]


def _devices(rows: Sequence[Row], uuid: str) -> Iterator[DeviceTelemetry]:
    for row in rows:
        telemetry = row.result.telemetry if row.result else None
        for device in telemetry.devices if telemetry else ():
            if device.uuid == uuid:
                yield device
