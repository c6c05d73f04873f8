"""Probe: matrix products beside an all-reduce.

Application: a training that exchanges gradients while it computes; both want the GPU's processors and memory. Paper:
none. Data set: none; random matrices, and fp32 zeros to exchange. An item is one GFLOP of a rank's products (2 n^3
FLOPs for n x n matrices) that ran while the ranks exchanged.

A step starts an all-reduce of `mebibytes`, and multiplies on another stream about as long as the all-reduce takes
alone. The reading `compute_slowdown` is the time of these products beside the all-reduce over their time alone, and
`communication_slowdown` that of the all-reduce; 1 is no slow-down. Both are of the slowest rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible
from benchsuite.models.probe_matmul import flops_of, product_of
from benchsuite.models.probes import GIGA, Amount, workload_of
from benchsuite.models.probes.devices import wait_for
from benchsuite.models.probes.group import agreed, check_group, seconds_together, slowest
from benchsuite.schema import finite

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"size": 64, "mebibytes": 1, "rounds": 2, "alone_s": 0.01}


@dataclass(frozen=True)
class Params:
    """`size`: of the bf16 matrices. `alone_s`: least seconds of each side alone. `rounds`: of both sides together."""

    size: Positive = 4096
    mebibytes: Positive = 1024
    rounds: Positive = 20
    alone_s: float = 0.5
    seed: int = fusible(1234)


class Overlap:
    """Computes and communicates at once."""

    def __init__(self, params: Params) -> None:
        self._params, self._amount = params, Amount(GIGA)

    def begin(self, share: Share) -> None:
        """Raises ModelError: there is no group of ranks."""
        check_group(share, "probe_overlap")
        params = self._params
        self._device = share.device
        self._exchanged = torch.zeros((params.mebibytes << 20) // 4, device=share.device)
        self._product = product_of("bf16", params.size, share.device, share.seed)
        self._reduce: Callable[..., Any] = partial(dist.all_reduce, self._exchanged)
        self._reduce_s = seconds_together(self._reduce, share.device, params.alone_s)
        self._products = 1
        one_s = seconds_together(self._compute, share.device, params.alone_s)
        self._products = agreed(max(1, round(self._reduce_s / one_s)))
        self._compute_s = seconds_together(self._compute, share.device, params.alone_s)

    def _compute(self) -> None:
        for _ in range(self._products):
            self._product()

    def step(self) -> int:
        exchange = self._reduce(async_op=True)
        self._compute()
        exchange.wait()
        return self._amount.items(self._products * flops_of(self._params.size))

    def readings(self) -> Mapping[str, Reading]:
        """The slow-downs of both sides."""
        computed, communicated = [], []
        for _ in range(self._params.rounds):
            wait_for(self._device)
            dist.all_reduce(torch.zeros(1))  # on the CPU: all ranks begin together
            compute_s, reduce_s = self._both()
            computed.append(compute_s)
            communicated.append(reduce_s)
        rounds = self._params.rounds
        compute, communicate = (slowest(sum(taken) / rounds) for taken in (computed, communicated))
        return {
            "compute_slowdown": Reading(unit="ratio", value=finite(compute / self._compute_s)),
            "communication_slowdown": Reading(unit="ratio", value=finite(communicate / self._reduce_s)),
        }

    def _both(self) -> tuple[float, float]:
        """The seconds of the products and of the all-reduce, which begin together."""
        if not self._device.startswith("cuda"):
            return self._both_on_cpu()
        begin, computed, reduced = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        begin.record()
        exchange = self._reduce(async_op=True)
        self._compute()
        computed.record()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            exchange.wait()  # this stream waits, and not the one that computes
            reduced.record()
        exchange.wait()
        torch.cuda.synchronize()
        return begin.elapsed_time(computed) / 1e3, begin.elapsed_time(reduced) / 1e3

    def _both_on_cpu(self) -> tuple[float, float]:
        began = time.perf_counter()
        exchange = self._reduce(async_op=True)
        ended: list[float] = []
        exchange.get_future().then(lambda _: ended.append(time.perf_counter()))
        self._compute()
        computed_s = time.perf_counter() - began
        exchange.wait()
        wait_for(self._device)
        return computed_s, (ended[0] if ended else time.perf_counter()) - began


def build(params: Params) -> Workload:
    return workload_of(Overlap(params), "GFLOP", by_ranks="meet")
