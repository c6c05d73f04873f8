"""Probe: one collective operation over all GPUs.

Application: the exchange of gradients and activations between the ranks of a training. Paper: none. Data set: none;
fp32 zeros. An item is one GB (10^9 bytes) on the bus, so that the rate is the bus bandwidth of NVIDIA's nccl-tests: the
size over the time, times 2 (n - 1) / n for an all-reduce of n ranks and (n - 1) / n for the others. It can be compared
with the speed of a link, and between numbers of ranks.

The largest of `mebibytes` is measured. All of these sizes are timed after it, for about `each_s` seconds each, and the
readings `bus_by_size` and `time_by_size` have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchsuite.errors import ModelError
from benchsuite.measurement import Reading
from benchsuite.models import Share, Workload, fusible
from benchsuite.models.probes import GIGA, Amount, workload_of
from benchsuite.models.probes.collectives import Buffers, bus_bytes, rounded
from benchsuite.models.probes.group import check_group, seconds_together
from benchsuite.schema import finite

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"mebibytes": (1,), "each_s": 0.01}
_MIB, _US = 1 << 20, 1e6


@dataclass(frozen=True)
class Params:
    """`mebibytes`: the sizes of the operation, each a whole number of MiB."""

    operation: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"] = "all_reduce"
    mebibytes: tuple[int, ...] = (1, 4, 16, 64, 256, 1024, 4096, 8192)
    each_s: float = 0.3
    seed: int = fusible(1234)


def size_words(mebibytes: int) -> str:
    """A size: "64 MiB", "8 GiB"."""
    whole_gib = mebibytes % 1024 == 0
    return f"{mebibytes // 1024} GiB" if whole_gib else f"{mebibytes} MiB"


class Exchanges:
    """Does the operation at its largest size, then at each."""

    def __init__(self, params: Params) -> None:
        self._params, self._amount = params, Amount(GIGA)

    def begin(self, share: Share) -> None:
        """Raises ModelError: there is no group of ranks."""
        check_group(share, "probe_collective")
        params = self._params
        self._ranks, self._device = share.ranks, share.device
        size_bytes = max(params.mebibytes) * _MIB
        self._buffers = Buffers(params.operation, size_bytes, share.ranks, share.device)
        self._call = self._buffers.call(size_bytes)
        self._work = self._bus_bytes(size_bytes)

    def _bus_bytes(self, size_bytes: int) -> int:
        return bus_bytes(self._params.operation, rounded(size_bytes, self._ranks), self._ranks)

    def step(self) -> int:
        self._call()
        return self._amount.items(self._work)

    def readings(self) -> Mapping[str, Reading]:
        """Bus bandwidth and time of each size; the same number of operations on all ranks."""
        rates: list[float | None] = []
        times: list[float | None] = []
        for mebibytes in self._params.mebibytes:
            size_bytes = mebibytes * _MIB
            taken_s = seconds_together(self._buffers.call(size_bytes), self._device, self._params.each_s)
            rates.append(finite(self._bus_bytes(size_bytes) / taken_s / GIGA))
            times.append(finite(_US * taken_s))
        labels = tuple(map(size_words, self._params.mebibytes))
        return {
            "bus_by_size": Reading(unit="GB/s", values=tuple(rates), labels=labels),
            "time_by_size": Reading(unit="us", values=tuple(times), labels=labels),
        }


def build(params: Params) -> Workload:
    """The operation.

    Raises:
        ModelError: there is no size, or one below 1 MiB.
    """
    if not params.mebibytes or min(params.mebibytes) < 1:
        raise ModelError("probe_collective: mebibytes needs at least one size, each of 1 or more")
    return workload_of(Exchanges(params), "GB", by_ranks="meet")
