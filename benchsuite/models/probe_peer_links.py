"""Probe: copies between all pairs of GPUs, one pair at a time.

Application: the links between GPUs, over NVLink or PCIe. A link that is slow in one direction, while others of both its
GPUs are fast, is itself the cause. Paper: none. Data set: none; buffers of `megabytes` on each GPU. An item is one GB
(10^9 bytes) that was copied; the rate is the mean over all pairs.

One process copies: rank 0, which sees the GPUs of all ranks. The reading `one_way` has the median rate from each GPU to
each other one ("0>1"), `both_ways` the sum of both directions at once ("0<>1"), and `unreachable` the number of pairs
that have no peer access, so that copies pass through the host.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch

from benchsuite.errors import ModelError
from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible
from benchsuite.models.probes import GIGA, Amount, workload_of
from benchsuite.models.probes.devices import devices_of, median, seconds_per_call, timed
from benchsuite.schema import finite

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"megabytes": 5, "times": 1, "both_s": 0.01}


@dataclass(frozen=True)
class Params:
    """`times`: copies of one step. `both_s`: seconds for which both directions of a pair are timed at least."""

    megabytes: Positive = 250
    times: Positive = 16
    both_s: float = 0.1
    seed: int = fusible(1234)


class Pairs:
    """Copies from one GPU to another, then for the next pair. A step is one pair."""

    def __init__(self, params: Params) -> None:
        self._bytes = 1_000_000 * params.megabytes
        self._both_s = params.both_s
        self._amount = Amount(GIGA)
        self._times = params.times
        self._rates: dict[tuple[int, int], list[float]] = defaultdict(list)

    def begin(self, share: Share) -> None:
        """Raises ModelError: there is one device only."""
        self._devices = devices_of(share)
        if len(self._devices) < 2:
            raise ModelError("probe_peer_links needs at least 2 GPUs; give placement {devices: all, at_least: 2}")
        self._sent, self._received = (
            [torch.ones(self._bytes, dtype=torch.uint8, device=device) for device in self._devices] for _ in range(2)
        )
        self._pairs = tuple(itertools.permutations(range(len(self._devices)), 2))
        self._turns = itertools.cycle(self._pairs)

    def step(self) -> int:
        one, other = next(self._turns)
        work = self._times * self._bytes
        elapsed_s = timed(self._copies(one, other), self._devices[one], self._devices[other])
        self._rates[one, other].append(work / elapsed_s / GIGA)
        return self._amount.items(work)

    def _copies(self, one: int, other: int) -> Callable[[], None]:
        source, target = self._sent[one], self._received[other]

        def copies() -> None:
            for _ in range(self._times):
                target.copy_(source, non_blocking=True)

        return copies

    def readings(self) -> Mapping[str, Reading]:
        """The rates of all pairs."""
        ways = {f"{one}>{other}": finite(median(self._rates[one, other])) for one, other in self._pairs}
        both = {f"{one}<>{other}": self._both_ways(one, other) for one, other in self._pairs if one < other}
        return {
            "one_way": Reading(unit="GB/s", values=tuple(ways.values()), labels=tuple(ways)),
            "both_ways": Reading(unit="GB/s", values=tuple(both.values()), labels=tuple(both)),
            "unreachable": Reading(unit="pair", value=float(sum(map(self._unreachable, self._pairs)))),
        }

    def _unreachable(self, pair: tuple[int, int]) -> bool:
        one, other = (self._devices[place] for place in pair)
        return one.type == "cuda" and not torch.cuda.can_device_access_peer(one, other)

    def _both_ways(self, one: int, other: int) -> float | None:
        """GB/s of both directions together. Each direction has CUDA streams of its own on both GPUs."""
        places = self._devices[one], self._devices[other]
        ways = [partial(on_own_streams, self._copies(*pair), places) for pair in ((one, other), (other, one))]
        starts = [start() for start in ways]

        def both() -> None:
            for start in starts:
                start()

        elapsed_s = seconds_per_call(both, *places, least_s=self._both_s)
        return finite(2 * self._times * self._bytes / elapsed_s / GIGA)


def on_own_streams(work: Callable[[], None], devices: tuple[torch.device, ...]) -> Callable[[], None]:
    """`work`, queued on CUDA streams that no other work uses: one for each device."""
    streams = [torch.cuda.Stream(device) for device in devices if device.type == "cuda"]

    def start() -> None:
        with ExitStack() as stack:
            for stream in streams:
                stack.enter_context(torch.cuda.stream(stream))
            work()

    return start


def build(params: Params) -> Workload:
    return workload_of(Pairs(params), "GB", by_ranks="lead")
