"""Probe: the memory of a GPU or of the host, by copying arrays.

Application: how fast memory is read and written by long runs of neighbouring values. Paper: McCalpin, "Memory Bandwidth
and Machine Balance in Current High Performance Computers" (1995), STREAM. Data set: none; fp32 arrays of `megabytes`
each. An item is one GB (10^9 bytes), read or written: a copy (a = b) of n bytes counts 2 n, a triad (a = b + s c) 3 n.

The placement decides whose memory is measured: that of a GPU, or with `cpu` that of the host, by the job's intra-op
threads. The copy is measured; the reading `triad` is timed after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible
from benchsuite.models.probes import GIGA, Amount, workload_of
from benchsuite.models.probes.devices import seconds_per_call
from benchsuite.schema import finite

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"megabytes": 2, "triad_s": 0.01}


@dataclass(frozen=True)
class Params:
    """`megabytes`: of each of three arrays; far more than any cache holds. `triad_s`: seconds of the triad at least."""

    megabytes: Positive = 4000
    triad_s: float = 1.0
    seed: int = fusible(1234)


class Copies:
    """Copies one array to another."""

    def __init__(self, params: Params) -> None:
        self._bytes = 1_000_000 * params.megabytes
        self._triad_s = params.triad_s
        self._amount = Amount(GIGA)

    def begin(self, share: Share) -> None:
        self._device = share.device
        self._a, self._b, self._c = (
            torch.full((self._bytes // 4,), value, device=share.device) for value in (0.0, 1.0, 2.0)
        )

    def step(self) -> int:
        self._a.copy_(self._b)
        return self._amount.items(2 * self._bytes)

    def readings(self) -> Mapping[str, Reading]:
        """The rate of the triad."""
        taken_s = seconds_per_call(
            lambda: torch.add(self._b, self._c, alpha=3.0, out=self._a), self._device, least_s=self._triad_s
        )
        return {"triad": Reading(unit="GB/s", value=finite(3 * self._bytes / taken_s / GIGA))}


def build(params: Params) -> Workload:
    return workload_of(Copies(params), "GB")
