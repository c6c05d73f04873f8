"""Likely causes why a GPU is slower than the others: the telemetry that differs, with the figures."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchsuite.report.measure.intervals import mean
from benchsuite.report.read.use import Use
from benchsuite.telemetry import CAPPED, SLOWING

# The uses of a job's tasks on one GPU.
_Uses = Sequence[Use]
NO_TELEMETRY = "no telemetry shows why"
NOTHING_DIFFERS = "nothing in its telemetry differs from the others'"


def _event(name: str, use: Use) -> float | None:
    return None if use.clock_events is None else use.clock_events.get(name, 0.0)


def _above(by: float, own: float, others: float) -> bool:
    return own >= others + by


def _below(share: float, own: float, others: float) -> bool:
    return own <= others * share


@dataclass(frozen=True)
class _Sign:
    """A figure of telemetry that may explain a slower GPU.

    Attributes:
        read: the figure of a task.
        differs: whether the GPU's own figure (first) differs enough from the others' (second).
        words: the sign in words; `{}` takes the figure.
        figure: the format of the figure.
    """

    read: Callable[[Use], float | None]
    differs: Callable[[float, float], bool]
    words: str
    figure: str

    def text(self, own: float, others: float) -> str:
        mine, theirs = (self.figure.format(value).replace("%", " %") for value in (own, others))
        return f"{self.words.format(mine)} (others {theirs})"


_get = operator.attrgetter
# Figures that slow a GPU by themselves, the most direct first.
_SIGNS = (
    *(
        _Sign(partial(_event, name), partial(_above, 0.05), f"{name} slow-down for {{}} of the time", "{:.0%}")
        for name in SLOWING
    ),
    _Sign(_get("temperature_c"), partial(_above, 10), "it is at {}", "{:.0f} °C"),
    _Sign(_get("power_limit_w"), partial(_below, 0.98), "its power limit is {}", "{:,.0f} W"),
    _Sign(partial(_event, CAPPED), partial(_above, 0.1), "at its power cap for {} of the time", "{:.0%}"),
    _Sign(_get("sm_clock_mhz"), partial(_below, 0.98), "its SM clock is {}", "{:,.0f} MHz"),
    _Sign(_get("cpu_waiting"), partial(_above, 0.05), "its processes wait for a CPU for {} of the time", "{:.0%}"),
    _Sign(_get("cpu_throttled"), partial(_above, 0.05), "the CPU quota holds it back for {} of the time", "{:.0%}"),
    _Sign(_get("cpu_stolen"), partial(_above, 0.02), "a hypervisor withholds {} of its processors' time", "{:.0%}"),
)
# Any slower GPU moves less data and may be less busy: these count only if nothing above differs.
_RATE_MIB_S = 100.0


def _slower_link(own: float, others: float) -> bool:
    return others >= _RATE_MIB_S and own <= 0.95 * others


_BY_ELIMINATION = (
    _Sign(_get("pcie_rx_mib_s"), _slower_link, "its clocks are as the others', PCIe brings in {}", "{:,.0f} MiB/s"),
    _Sign(_get("pcie_tx_mib_s"), _slower_link, "its clocks are as the others', PCIe takes out {}", "{:,.0f} MiB/s"),
    _Sign(_get("sm_percent"), lambda own, others: own <= others - 5, "its SMs are busy for {}", "{:.0f}%"),
    _Sign(_get("gpu_percent"), lambda own, others: own <= others - 5, "a kernel runs for {} of the time", "{:.0f}%"),
)


def likely_cause(own: Sequence[_Uses], others: Sequence[Sequence[_Uses]]) -> tuple[str, ...]:
    """All signs that differ, in words.

    Args:
        own: for each job, the uses on the GPU concerned.
        others: for each of the same jobs, the uses on each other GPU.
    """
    any_known = False
    for signs in (_SIGNS, _BY_ELIMINATION):
        known = [(sign, both) for sign in signs if (both := _compared(sign, own, others))]
        if found := tuple(sign.text(*both) for sign, both in known if sign.differs(*both)):
            return found
        any_known = any_known or bool(known)
    return (NOTHING_DIFFERS if any_known else NO_TELEMETRY,)


def _compared(sign: _Sign, own: Sequence[_Uses], others: Sequence[Sequence[_Uses]]) -> tuple[float, float] | None:
    """The GPU's figure and the median of the others', each averaged over the jobs that have both."""
    pairs = []
    for mine, theirs in zip(own, others, strict=True):
        figure = mean(map(sign.read, mine))
        known = [value for uses in theirs if (value := mean(map(sign.read, uses))) is not None]
        if figure is not None and known:
            pairs.append((figure, statistics.median(known)))
    if not pairs:
        return None
    return statistics.fmean(a for a, _ in pairs), statistics.fmean(b for _, b in pairs)
