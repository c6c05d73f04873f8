"""The devices of a probe: their names, how to wait for them, and how to time work on them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import torch

from benchsuite.models import Share

# Work that is timed by itself lasts at least this long (seconds), so that starting it and waiting for it cost little.
LEAST_S = 0.2


def devices_of(share: Share) -> list[torch.device]:
    """The device of each rank, for the rank that leads. On a CPU all of them are the CPU."""
    if share.device.startswith("cuda"):
        return [torch.device("cuda", index) for index in range(share.ranks)]
    return [torch.device("cpu")] * share.ranks


def wait_for(*devices: torch.device | str) -> None:
    """Wait until the work that was given to these devices is done."""
    for device in map(torch.device, dict.fromkeys(devices)):
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def seconds_per_call(work: Callable[[], object], *devices: torch.device | str, least_s: float = LEAST_S) -> float:
    """The time that `work` takes when it is called again and again, in seconds.

    The first call is not timed. The number of calls is doubled until they last `least_s`.
    """
    work()
    wait_for(*devices)
    calls = 1
    while True:
        began = time.perf_counter()
        for _ in range(calls):
            work()
        wait_for(*devices)
        elapsed_s = time.perf_counter() - began
        if elapsed_s >= least_s:
            return elapsed_s / calls
        calls = max(2 * calls, min(int(1.1 * calls * least_s / max(elapsed_s, 1e-9)), 1000 * calls))


def timed(work: Callable[[], object], *devices: torch.device | str) -> float:
    """The time of one call of `work`, in seconds, its work on these devices included."""
    wait_for(*devices)
    began = time.perf_counter()
    work()
    wait_for(*devices)
    return time.perf_counter() - began


def median(values: Iterable[float]) -> float | None:
    """The median; None if there is no value."""
    kept: Sequence[float] = list(values)
    return statistics.median(kept) if kept else None
