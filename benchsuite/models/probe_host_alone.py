"""Probe: copies between host memory and each GPU in turn, both ways.

Application: the link of each GPU by itself, while all others are idle. Paper: none. Data set: none; pinned memory near
the GPU, in buffers of `megabytes`. An item is one GB (10^9 bytes) that was copied; the rate is the mean over all GPUs
and both directions.

One process copies: rank 0, which sees the GPUs of all ranks. The readings `to_device` and `to_host` have the median
rate of each GPU.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible
from benchsuite.models.probes import GIGA, Amount, workload_of
from benchsuite.models.probes.devices import devices_of, median, timed
from benchsuite.models.probes.host_link import Link
from benchsuite.schema import finite

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"megabytes": 5}
_WAYS = ("to_device", "to_host")


@dataclass(frozen=True)
class Params:
    """`megabytes`: of a copy."""

    megabytes: Positive = 1000
    seed: int = fusible(1234)


class Turns:
    """Copies to one GPU, then back, then to the next one. A step is one of these."""

    def __init__(self, params: Params) -> None:
        self._bytes = 1_000_000 * params.megabytes
        self._amount = Amount(GIGA)
        self._rates: dict[tuple[str, int], list[float]] = defaultdict(list)

    def begin(self, share: Share) -> None:
        self._links = [Link(device, self._bytes) for device in devices_of(share)]
        self._turns = itertools.cycle(itertools.product(range(len(self._links)), _WAYS))

    def step(self) -> int:
        place, way = next(self._turns)
        link = self._links[place]
        elapsed_s = timed(link.to_device if way == "to_device" else link.to_host, link.device)
        self._rates[way, place].append(self._bytes / elapsed_s / GIGA)
        return self._amount.items(self._bytes)

    def readings(self) -> Mapping[str, Reading]:
        """The median rate of each GPU, for both directions."""
        places = range(len(self._links))
        labels = tuple(map(str, places))
        return {
            way: Reading(
                unit="GB/s", values=tuple(finite(median(self._rates[way, place])) for place in places), labels=labels
            )
            for way in _WAYS
        }


def build(params: Params) -> Workload:
    return workload_of(Turns(params), "GB", by_ranks="lead")
