#!/usr/bin/env python
"""Compare the times that `plan-stages MODEL` predicts for one GPU and for data parallelism with measured runs.

It exits with 1 if a prediction for one GPU differs from the run by over 10 %. With two GPUs or more it also compares
data parallelism on two of them, and prints the bandwidth that was measured between them.

Run it on GPUs that nothing else uses: `python scripts/bench/predicted_steps.py`. Names of rows choose some of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

# Row -> the model and its changes.
ROWS: dict[str, tuple[str, ...]] = {
    "vgg16": ("convnet", "--arch", "vgg16", "--batch-size", "64", "--precision", "tf32"),
    "resnet50": ("convnet", "--arch", "resnet50", "--batch-size", "128", "--precision", "tf32"),
    "alexnet": ("convnet", "--arch", "alexnet", "--batch-size", "256", "--precision", "tf32"),
    "gnmt8": ("gnmt", "--layers", "8", "--batch-size", "64", "--precision", "bf16"),
    "small": ("subpixel", "--batch-size", "2", "--crop", "32", "--workers", "0"),
}
LIMIT = 0.10


def benchsuite(*words: str) -> dict[str, Any]:
    """The JSON that a command prints."""
    done = subprocess.run([sys.executable, "-m", "benchsuite", *words], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def predicted(row: str, gpus: int, *options: str) -> dict[str, Any]:
    model, *changes = ROWS[row]
    return benchsuite("plan-stages", model, "--gpus", str(gpus), *options, "-o", "-", "--", *changes)


def measured_s(row: str, *changes: str) -> float:
    """Seconds between two minibatches: of one rank, since each rank of a group takes one at the same time."""
    model, *own = ROWS[row]
    result = benchsuite("run", model, "--", *own, *changes, "--min-time-s", "15")
    stream = result["measurement"]["streams"][0]
    steps = sum(one[2] for one in stream["slices"][1:])
    return float((stream["slices"][-1][1] - stream["slices"][0][1]) / steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="default: all but small")
    parser.add_argument("--two", action="store_true", help="also data parallelism on two GPUs")
    asked = parser.parse_args()
    apart = False
    print(f"{'model':10} {'GPUs':>4} {'predicted s':>12} {'measured s':>12} {'ratio':>6}")
    for row in asked.rows or [name for name in ROWS if name != "small"]:
        plan, real_s = predicted(row, 1), measured_s(row)
        ratio = plan["one_gpu_s"] / real_s
        apart |= abs(ratio - 1) > LIMIT
        print(f"{row:10} {1:4} {plan['one_gpu_s']:12.5f} {real_s:12.5f} {ratio:6.3f}", flush=True)
        if asked.two:
            plan = predicted(row, 2)
            real_s = measured_s(row, "--placement", "all_gpus", "--parallel", "{dp: 2}") / 2
            level = plan["levels"][0]["bandwidth"] / 1e9
            ratio = plan["data_parallel_s"] / real_s
            print(f"{row:10} {2:4} {plan['data_parallel_s']:12.5f} {real_s:12.5f} {ratio:6.3f}  {level:.0f} GB/s")
    return int(apart)


if __name__ == "__main__":
    sys.exit(main())
