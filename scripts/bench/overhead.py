#!/usr/bin/env python
"""Measure the host time of the timed loop, and the lengths of its slices.

First table: host time of a step that does nothing, in a bare loop, in the timed loop, and in a loop that syncs at every
step. The loops take turns for several rounds. Each number is a median over rounds; "over bare" is the median of the
differences within a round. Second table: host time of a step whose loss and learner do nothing, and of a batch on its
way to the device. Third table: the lengths of slices with steps of about 20 microseconds, on the CPU, on a simulated
device with a deep queue, and on a GPU if there is one.

Run it on a quiet machine: `python scripts/bench/overhead.py --steps 1000000`.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from benchsuite.worker.loop import timed_loop
from benchsuite.worker.timing import NO_LIMIT, Stop, TimedSlice

if TYPE_CHECKING:
    import torch

    from benchsuite.worker.feed import Feed

Sync = Callable[[], None]
Step = Callable[[None], int]


def nothing(batch: None) -> int:
    return 1


def no_sync() -> None:
    pass


def find_sync() -> tuple[str, Sync]:
    """A real sync on a GPU, else a call that does nothing: the least that a sync could cost."""
    try:
        import torch
    except ImportError:
        return "a function that does nothing", no_sync
    if not torch.cuda.is_available():
        return "a function that does nothing", no_sync
    return f"torch.cuda.synchronize, idle {torch.cuda.get_device_name(0)}", torch.cuda.synchronize


# --- cost of a step ---------------------------------------------------------------------------------------------------


def bare(batches: Iterator[None], sync: Sync) -> int:
    items = 0
    for batch in batches:
        items += nothing(batch)
    return items


def timed(batches: Iterator[None], sync: Sync) -> int:
    slices: list[TimedSlice] = []
    timed_loop(nothing, batches, Stop(min_time_ns=NO_LIMIT), slices.append, sync=sync)
    return sum(one.items for one in slices)


def sync_every_step(batches: Iterator[None], sync: Sync) -> int:
    """Count as the timed loop does, but sync at every step."""
    items = 0
    slices = []
    look = time.monotonic_ns() + 500_000_000
    for batch in batches:
        items += nothing(batch)
        sync()
        if time.monotonic_ns() >= look:
            slices.append(items)
            look = time.monotonic_ns() + 500_000_000
    return items


LOOPS = {"bare loop": bare, "timed loop": timed, "sync every step": sync_every_step}


def step_costs(steps: int, rounds: int, sync: Sync) -> dict[str, list[float]]:
    """Nanoseconds of each loop for a step, one value a round."""
    costs: dict[str, list[float]] = {name: [] for name in LOOPS}
    for _ in range(rounds):
        for name, loop in LOOPS.items():
            began = time.perf_counter_ns()
            done = loop(repeat(None, steps), sync)
            costs[name].append((time.perf_counter_ns() - began) / steps)
            assert done == steps
    return costs


def print_costs(costs: dict[str, list[float]]) -> None:
    print(f"{'loop':<18}{'ns a step':>10}{'min':>8}{'max':>8}{'over bare, ns':>15}{'ratio':>8}")
    for name, values in costs.items():
        over = statistics.median(a - b for a, b in zip(values, costs["bare loop"], strict=True))
        ratio = statistics.median(a / b for a, b in zip(values, costs["bare loop"], strict=True))
        median = statistics.median(values)
        print(f"{name:<18}{median:>10.1f}{min(values):>8.1f}{max(values):>8.1f}{over:>15.1f}{ratio:>8.2f}")


# --- cost of a step's frame -------------------------------------------------------------------------------------------


def frames() -> dict[str, Callable[[int], None]]:
    """Functions that take a number of steps whose losses and learners do nothing."""
    try:
        import torch
    except ImportError:
        return {}
    from benchsuite.describe.training import Training
    from benchsuite.worker.feed import LEAST_BYTES, feed
    from benchsuite.worker.learner import Learner
    from benchsuite.worker.step import Part, accumulated, detached, whole

    loss = torch.zeros(())
    part = Part(lambda batch, carry: (loss, None), Learner(no_sync, lambda loss: None, no_sync))
    batch = torch.zeros(4, 1)

    def run_all(run: Callable[[torch.Tensor], int], steps: int) -> None:
        for one in repeat(batch, steps):
            run(one)

    found: dict[str, Callable[[int], None]] = {
        "one update": partial(run_all, whole([part], len, detached, [])),
        "one update of 4 micro-batches": partial(run_all, accumulated([part], len, detached, [], 4)),
    }
    if torch.cuda.is_available():
        sizes = {"a small batch": 1024, "a batch of 1 MiB": LEAST_BYTES // 4}
        for name, size in sizes.items():
            host = torch.zeros(size).pin_memory()
            for prefetch in (False, True):
                fed = feed(Training(prefetch=prefetch), "cuda:0")

                def take(steps: int, fed: Feed = fed, host: torch.Tensor = host) -> None:
                    for _ in fed(repeat(host, steps)):
                        pass

                found[f"{name}, prefetch {'on' if prefetch else 'off'}"] = take
    return found


def print_frames(steps: int, rounds: int, sync: Sync) -> None:
    for name, run in frames().items():
        run(100)
        costs = []
        for _ in range(rounds):
            sync()
            began = time.perf_counter_ns()
            run(steps)
            costs.append((time.perf_counter_ns() - began) / steps / 1000)
        print(f"{name:<34}{statistics.median(costs):>9.2f}{min(costs):>8.2f}{max(costs):>8.2f}")


# --- length of slices -------------------------------------------------------------------------------------------------


class Queue:
    """A simulated device. A step takes `step_ns` on it and no time on the host, which may be `depth` steps ahead."""

    def __init__(self, step_ns: int, depth: int) -> None:
        self.step_ns, self.depth, self.idle_at = step_ns, depth, 0

    def step(self, batch: None) -> int:
        now = time.monotonic_ns()
        self.idle_at = max(self.idle_at, now) + self.step_ns
        if self.idle_at - now > self.depth * self.step_ns:
            wait_until(self.idle_at - self.depth * self.step_ns)
        return 1

    def sync(self) -> None:
        wait_until(self.idle_at)


def wait_until(end_ns: int) -> None:
    while time.monotonic_ns() < end_ns:
        pass


def busy(batch: None) -> int:
    wait_until(time.monotonic_ns() + 20_000)
    return 1


def gpu_steps() -> dict[str, tuple[Step, Sync]]:
    """Tiny kernels, which the host launches only a few ahead, and larger ones, about a thousand ahead."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    small, large = torch.zeros(16, device="cuda"), torch.zeros(4096, 4096, device="cuda")

    def tiny(batch: None) -> int:
        small.add_(1)
        return 1

    def product(batch: None) -> int:
        torch.mm(large, large)
        return 1

    found: dict[str, tuple[Step, Sync]] = {}
    for name, step in {"GPU, tiny kernels": tiny, "GPU, 4096 x 4096 products": product}.items():
        for _ in range(20):
            step(None)
        found[name] = (step, torch.cuda.synchronize)
    return found


def print_slices(name: str, step: Step, sync: Sync, seconds: float) -> None:
    slices: list[TimedSlice] = []
    syncs = 0

    def counted() -> None:
        nonlocal syncs
        syncs += 1
        sync()

    timed_loop(step, repeat(None), Stop(min_time_ns=round(seconds * 1e9)), slices.append, sync=counted)
    lengths = [(one.end_ns - one.start_ns) / 1e6 for one in slices]
    steps = sum(one.steps for one in slices)
    step_us = sum(lengths) * 1000 / steps
    print(
        f"{name:<34}{step_us:>9.1f}{len(slices):>8}{syncs:>7}"
        f"{min(lengths):>9.1f}{statistics.median(lengths):>9.1f}{max(lengths):>9.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps a round and loop (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each row of slices (default: %(default)s)")
    chosen = parser.parse_args()

    name, sync = find_sync()
    print(f"Host cost of a step: {chosen.steps:,} steps that do nothing, {chosen.rounds} rounds; sync: {name}")
    gc.disable()
    print_costs(step_costs(chosen.steps, chosen.rounds, sync))
    gc.enable()

    print(f"\n{'Host cost of the frame of a step':<34}{'us a step':>9}{'min':>8}{'max':>8}")
    print_frames(max(1, chosen.steps // 100), chosen.rounds, sync)

    print(
        f"\n{'Slices (ms) over steps of':<34}{'us a step':>9}{'slices':>8}{'syncs':>7}{'min':>9}{'median':>9}{'max':>9}"
    )
    print_slices("CPU, busy for 20 us", busy, no_sync, chosen.seconds)
    for step_us, depth in ((20, 1000), (200, 1000), (20, 10**9)):
        queue = Queue(step_us * 1000, depth)
        label = f"imagined queue, {'no limit' if depth > 10**6 else f'{depth:,} deep'}"
        print_slices(label, queue.step, queue.sync, chosen.seconds)
    for label, (step, gpu_sync) in gpu_steps().items():
        print_slices(label, step, gpu_sync, chosen.seconds)


if __name__ == "__main__":
    main()
