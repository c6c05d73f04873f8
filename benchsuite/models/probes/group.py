"""The group of ranks that a probe measures: how its ranks agree, and how they time work together."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from benchsuite.errors import ModelError
from benchsuite.models import Share
from benchsuite.models.probes.devices import wait_for


def check_group(share: Share, model: str) -> None:
    """Raises ModelError: this process has no group, or is the only one of it."""
    if share.ranks < 2 or not dist.is_initialized():
        raise ModelError(f"{model} needs at least 2 ranks; give placement {{devices: all, at_least: 2}}")


def agreed(number: int) -> int:
    """The number of rank 0, on every rank."""
    said = torch.tensor([number], dtype=torch.int64)
    dist.broadcast(said, 0)
    return int(said)


def slowest(value: float) -> float:
    """The largest value of all ranks, on every rank."""
    said = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(said, dist.ReduceOp.MAX)
    return float(said)


def seconds_together(work: Callable[[], object], device: str, least_s: float) -> float:
    """The time that `work` takes when all ranks call it again and again, in seconds; that of the slowest rank.

    All ranks make the same calls: rank 0 chooses their number by a trial, so that they last about `least_s`.
    """
    work()
    trial_s = _lasting(work, device, 2) / 2
    calls = agreed(max(2, min(int(least_s / max(trial_s, 1e-7)), 20_000)))
    return slowest(_lasting(work, device, calls)) / calls


def _lasting(work: Callable[[], object], device: str, calls: int) -> float:
    wait_for(device)
    dist.all_reduce(torch.zeros(1))  # on the CPU: all ranks begin together
    began = time.perf_counter()
    for _ in range(calls):
        work()
    wait_for(device)
    return time.perf_counter() - began
