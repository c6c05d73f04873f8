"""Why a job is slower or faster than in a base: its time an item, split by what changed in the counters.

The unit of all parts is the base's time an item, so they add up to the change. With T the time an item, u the share of
the time in which a kernel ran, w the share in which the host waited for a batch, and t = T / T(base):

    change        t - 1
    kernels       u t - u(base): the time with a kernel
    waiting       the rest of the change: the time without one
    SM clock      u(base) (f(base) / f - 1), with f the mean SM clock; a part of `kernels`, for jobs that the base's
                  counters show to be limited by compute, power, throttling or latency, whose kernels follow this clock
    memory clock  the same with the clock of the memory, for jobs limited by memory bandwidth
    input         w t - w(base); a part of `waiting`, and no larger than it

What `kernels` holds beyond the clocks, and `waiting` beyond the input, counts only if it is larger than the error of
the split; else it is not explained. The latter counts as copies if a side is limited by copies, and else as the host.
All of the change is not explained if a side did not record u.

The error comes from the mean of u, which NVML samples. In the baselines h200 and h200x2, u scatters by 3.9 points
between tasks of one job on equal GPUs (root mean square). The error is twice the standard error that follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchsuite.report.format import percent, whole
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.use import Use
from benchsuite.report.stats.bottlenecks import LimitedBy, bottlenecks
from benchsuite.report.stats.compare import Comparison
from benchsuite.telemetry import CAPPED, SLOWING

Cause = Literal["SM clock", "memory clock", "kernels", "input", "copies", "host"]
# In the order in which they are shown.
CAUSES: tuple[Cause, ...] = ("SM clock", "memory clock", "kernels", "input", "copies", "host")
# The standard deviation of u between tasks of one job on equal GPUs, see above.
_SCATTER = 0.039
# Jobs whose kernels follow the SM clock.
_AT_SM_CLOCK = ("compute", "power", "throttling", "latency")
# Clocks that differ by less are the same: NVML reports them in steps of 15 MHz.
_SAME_CLOCK = 0.01


@dataclass(frozen=True)
class Explained:
    """A job on both sides.

    Attributes:
        ratio: the speed over the base's.
        change: of the time an item, over the base's.
        parts: cause -> its part of `change`.
        rest: the part of `change` that is not explained.
        error: of the split into kernels and waiting, in the same unit; None if it cannot be made.
        signs: counters that differ, from the base's value to this run's, in words.
        missing: why the split cannot be made, or is incomplete.
    """

    job: str
    ratio: float
    change: float
    parts: Mapping[Cause, float]
    rest: float
    error: float | None = None
    signs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def rest_share(self) -> float:
        """The share of what is not explained in the sizes of all parts: 1 if nothing is explained."""
        every = math.fsum(abs(part) for part in (*self.parts.values(), self.rest))
        return abs(self.rest) / every if every else 0.0


def explain(summary: Summary, comparison: Comparison) -> list[Explained]:
    """Each job of a comparison whose ratio lies outside its margin, the largest change first."""
    here, there = ({job.name: job for job in side.jobs} for side in (summary, comparison.base))
    own, base = ({one.job: one.by for one in bottlenecks(side)} for side in (summary, comparison.base))
    found = [
        _explained(here[of.name], there[of.name], of.ratio, _Limits(own.get(of.name), base.get(of.name)))
        for of in comparison.jobs
        if of.ratio and of.comparable and abs(math.log(of.ratio)) > math.log1p(comparison.margin)
    ]
    return sorted(found, key=lambda one: -abs(math.log(one.ratio)))


@dataclass(frozen=True)
class _Limits:
    """The classes of a job's bottlenecks on both sides."""

    own: LimitedBy | None
    base: LimitedBy | None


def _explained(job: JobSummary, base: JobSummary, ratio: float, limits: _Limits) -> Explained:
    time = 1 / ratio
    change = time - 1
    use, of_base = job.use or Use(), base.use or Use()
    signs = tuple(_signs(use, of_base))
    if use.gpu_percent is None or of_base.gpu_percent is None:
        why = _without_kernels(job, use, of_base)
        return Explained(job.name, ratio, change, {}, change, signs=signs, missing=(why,))
    u, of_u = use.gpu_percent / 100, of_base.gpu_percent / 100
    error = 2 * _SCATTER * math.hypot(time / math.sqrt(use.tasks), 1 / math.sqrt(of_base.tasks))
    kernels = u * time - of_u
    waiting = change - kernels
    clocks = dict(_clocks(use, of_base, of_u, limits.base))
    parts: dict[Cause, float] = {**clocks, **dict(_input(use, of_base, time, waiting))}
    left: dict[Cause, float] = {
        "kernels": kernels - math.fsum(clocks.values()),
        "copies" if "copies" in (limits.own, limits.base) else "host": waiting - parts.get("input", 0.0),
    }
    parts |= {cause: part for cause, part in left.items() if abs(part) > error}
    rest = change - math.fsum(parts.values())
    missing = tuple(_incomplete(job, use, of_base, limits, parts))
    return Explained(job.name, ratio, change, parts, rest, error, signs, missing)


def _without_kernels(job: JobSummary, use: Use, base: Use) -> str:
    if job.devices == "none":
        return "it runs on the CPU, where nothing splits the time"
    sides = [name for name, of in (("this run", use), ("the baseline", base)) if of.gpu_percent is None]
    return f"{' and '.join(sides)} did not record how long kernels run"


def _clocks(use: Use, base: Use, kernels: float, by: LimitedBy | None) -> Iterator[tuple[Cause, float]]:
    if by in _AT_SM_CLOCK:
        yield from _clock("SM clock", use.sm_clock_mhz, base.sm_clock_mhz, kernels)
    if by == "memory bandwidth":
        yield from _clock("memory clock", use.memory_clock_mhz, base.memory_clock_mhz, kernels)


def _clock(cause: Cause, own: float | None, base: float | None, kernels: float) -> Iterator[tuple[Cause, float]]:
    if own and base and abs(own / base - 1) > _SAME_CLOCK:
        yield cause, kernels * (base / own - 1)


def _input(use: Use, base: Use, time: float, waiting: float) -> Iterator[tuple[Cause, float]]:
    """The part of the input: it has the sign of `waiting`, and is no larger."""
    if use.input_waiting is None or base.input_waiting is None:
        return
    part = use.input_waiting * time - base.input_waiting
    if part * waiting > 0:
        yield "input", math.copysign(min(abs(part), abs(waiting)), waiting)


def _incomplete(job: JobSummary, use: Use, base: Use, limits: _Limits, parts: Mapping[Cause, float]) -> Iterator[str]:
    """What is missing for a finer split."""
    if "host" in parts and (use.input_waiting is None or base.input_waiting is None):
        yield "host may be input, whose wait a side did not record"
    if "kernels" in parts and job.ranks > 1:
        yield "kernels include those of communication"
    other_clock = use.sm_clock_mhz and base.sm_clock_mhz and abs(use.sm_clock_mhz / base.sm_clock_mhz - 1) > _SAME_CLOCK
    if other_clock and limits.base in ("GPU", "not known", None):
        yield "the effect of the other SM clock is not known, since the counters do not name the limiting unit"


@dataclass(frozen=True)
class _Sign:
    """A counter that may differ between both sides."""

    name: str
    of: Callable[[Use], float | None]
    words: Callable[[float], str]
    differs: Callable[[float, float], bool]


def _relative(part: float) -> Callable[[float, float], bool]:
    return lambda own, base: abs(own - base) > part * max(own, base)


def _points(share: float) -> Callable[[float, float], bool]:
    return lambda own, base: abs(own - base) >= share


def _event(name: str) -> Callable[[Use], float | None]:
    return lambda use: None if use.clock_events is None else use.clock_events.get(name, 0.0)


def _share(value: float) -> str:
    return percent(value, 0)


def _whole(unit: str) -> Callable[[float], str]:
    return lambda value: f"{whole(value)} {unit}"


_SIGNS: Sequence[_Sign] = (
    _Sign("SM clock", lambda use: use.sm_clock_mhz, _whole("MHz"), _relative(_SAME_CLOCK)),
    _Sign("memory clock", lambda use: use.memory_clock_mhz, _whole("MHz"), _relative(_SAME_CLOCK)),
    _Sign("power limit", lambda use: use.power_limit_w, _whole("W"), _relative(0.02)),
    _Sign("at the power limit", _event(CAPPED), _share, _points(0.1)),
    *(_Sign(name, _event(name), _share, _points(0.05)) for name in SLOWING),
    _Sign("a kernel runs", lambda use: use.gpu_percent, _whole("%"), _points(5)),
    _Sign("SMs", lambda use: use.sm_percent, _whole("%"), _points(5)),
    _Sign("tensor cores", lambda use: use.tensor_percent, _whole("%"), _points(5)),
    _Sign("memory bandwidth", lambda use: use.dram_percent, _whole("%"), _points(5)),
    _Sign("wait for batches", lambda use: use.input_waiting, _share, _points(0.05)),
    _Sign("CPUs busy", lambda use: use.cpus_busy, lambda value: f"{value:.1f}", _relative(0.2)),
    _Sign("a process waits for a CPU", lambda use: use.cpu_waiting, _share, _points(0.05)),
    _Sign("held back by the CPU quota", lambda use: use.cpu_throttled, _share, _points(0.05)),
    _Sign("withheld by a hypervisor", lambda use: use.cpu_stolen, _share, _points(0.02)),
)


def _signs(use: Use, base: Use) -> Iterator[str]:
    for sign in _SIGNS:
        own, others = sign.of(use), sign.of(base)
        if own is not None and others is not None and sign.differs(own, others):
            yield f"{sign.name} {sign.words(others)} -> {sign.words(own)}"
