#!/usr/bin/env python
"""Measure ResNet-50 on one GPU, with batches from host memory (with and without prefetch) and from device memory.

Each row is trained as in a worker: the model's file, `make_step`, warm-up, and the timed loop. A round measures every
row once. The first number is the median over rounds; "of device" is its ratio to the row with batches in device memory.

Run it on a GPU that nothing else uses: `python scripts/bench/resnet50.py --rounds 3 --seconds 5`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from typing import Any

import torch

from benchsuite.describe.training import Training
from benchsuite.models import Share, Workload, convnet, scaling
from benchsuite.worker.compiling import compiled_in
from benchsuite.worker.device import Device, open_device
from benchsuite.worker.loop import timed_loop
from benchsuite.worker.precision import set_precision
from benchsuite.worker.step import Step
from benchsuite.worker.timing import Stop, TimedSlice
from benchsuite.worker.warmup import warm_up
from benchsuite.worker.ways import make_step


def workload(batch_size: int, *, on_device: bool) -> Workload:
    """ResNet-50 with batches in pinned host memory, or on the device."""
    torch.manual_seed(1234)
    if on_device:
        return scaling.build(scaling.Params(network="resnet50", batch_size=batch_size))
    return convnet.build(convnet.Params(arch="resnet50", batch_size=batch_size))


class Row:
    """A warmed-up model with one way of feeding it.

    Attributes:
        rates: images/s, one value a round.
    """

    def __init__(self, name: str, training: Training, device: Device, batch_size: int, *, on_device: bool) -> None:
        self.name, self.device = name, device
        self.rates: list[float] = []
        made = workload(batch_size, on_device=on_device)
        self.step: Step = make_step(made, training, device.name)
        self.batches: Iterator[Any] = self.step.feed(iter(made.batches(Share(device=device.name))))
        warm_up(self.step, self.batches, device)
        self.compiled = compiled_in(training, self.step.losses)

    def measure(self, seconds: float) -> None:
        """Measure for this time and add the rate over all slices but the first."""
        slices: list[TimedSlice] = []
        stop = Stop(min_time_ns=round(seconds * 1e9))
        timed_loop(self.step.run, self.batches, stop, slices.append, sync=self.device.sync)
        counted = slices[1:] or slices
        self.rates.append(sum(s.items for s in counted) * 1e9 / sum(s.end_ns - s.start_ns for s in counted))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batch-size", type=int, default=256, help="images a step (default: %(default)s)")
    parser.add_argument("--compile", default="default", help="mode of torch.compile, or none (default: %(default)s)")
    parser.add_argument("--precision", default="bf16", help="number format (default: %(default)s)")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches a step (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each row and round (default: %(default)s)")
    chosen = parser.parse_args()

    device = open_device("cuda")
    set_precision(chosen.precision, device.name)

    def row(name: str, *, prefetch: bool, on_device: bool) -> Row:
        training = Training(
            precision=chosen.precision,
            compile=chosen.compile,
            channels_last=True,
            accumulate=chosen.accumulate,
            prefetch=prefetch,
        )
        return Row(name, training, device, chosen.batch_size, on_device=on_device)

    rows = [
        row("host memory, prefetch off", prefetch=False, on_device=False),
        row("host memory, prefetch on", prefetch=True, on_device=False),
        row("on the device", prefetch=True, on_device=True),
    ]
    for _ in range(chosen.rounds):
        for one in rows:
            one.measure(chosen.seconds)

    what = f"batch {chosen.batch_size}, {chosen.precision}, channels last, compile {chosen.compile}"
    print(f"ResNet-50, {what}, torch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    print(f"{'batches':<28}{'images/s':>10}{'min':>8}{'max':>8}{'of device':>11}  graphs, breaks")
    best = statistics.median(rows[-1].rates)
    for one in rows:
        median = statistics.median(one.rates)
        graphs = f"{one.compiled.graphs}, {one.compiled.breaks}" if one.compiled else "-"
        rates = f"{median:>10,.0f}{min(one.rates):>8,.0f}{max(one.rates):>8,.0f}"
        print(f"{one.name:<28}{rates}{median / best:>11.4f}  {graphs}")
    print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB (all three models)")


if __name__ == "__main__":
    main()
