#!/usr/bin/env python
"""Measure plain training loops of torch beside `benchsuite run` of the same shapes, on one machine in one run.

Each loop is written from a public recipe, which `public_nets.py` names beside the net. It trains on one batch, which
stays on the device. Loop and benchsuite take turns, each time in a process of its own, which also compiles. A number is
the median over rounds, in items/s, with the distance of the farthest round; "ratio" is benchsuite's over the loop's.
"H100" is a published number of one GPU of eight, or our own measurement of the loop (BERT, ResNet-50).

Run it on a GPU that nothing else uses: `python scripts/bench/loops.py --seconds 15 --rounds 3`. To try it on a CPU:
`python scripts/bench/loops.py --tiny --compile none --seconds 6 --rounds 1`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from public_nets import Bert, Gpt, Llama, ResNet
from torch import Tensor, nn, optim

# --- the loop ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A shape for both sides.

    Attributes:
        numbers: of the net; `tiny` replaces some of them.
        model: benchsuite's, with `words`, its parameters and job fields beyond `numbers`.
        published: items/s on an H100.
    """

    net: Callable[..., nn.Module]
    unit: str
    batch_size: int
    numbers: dict[str, Any]
    tiny: dict[str, Any]
    model: str
    words: tuple[str, ...]
    published: int


def adamw(net: nn.Module) -> optim.Optimizer:
    return optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def sgd(net: nn.Module) -> optim.Optimizer:
    return optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)


SMALL_TEXT = {"layers": 2, "width": 64, "heads": 4, "vocabulary": 256, "sequence": 64}
JOBS = {
    "gpt_124m": Job(
        Gpt, "token", 64, {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50_304, "sequence": 1024},
        SMALL_TEXT, "decoder", ("--size", "gpt_124m"), 462_000,
    ),
    "gpt_1558m": Job(
        Gpt, "token", 16, {"layers": 48, "width": 1600, "heads": 25, "vocabulary": 50_304, "sequence": 1024},
        SMALL_TEXT, "decoder", ("--size", "gpt_1558m"), 46_800,
    ),
    "llama_1b": Job(
        Llama, "token", 4,
        {"layers": 16, "width": 2048, "heads": 32, "kv_heads": 8, "hidden": 8192, "vocabulary": 128_256,
         "sequence": 4096},
        {**SMALL_TEXT, "kv_heads": 2, "hidden": 128}, "decoder", ("--size", "llama_1b"), 55_000,
    ),
    "bert": Job(
        Bert, "sequence", 64, {"layers": 12, "width": 768, "heads": 12, "vocabulary": 30_522, "sequence": 128},
        SMALL_TEXT, "bert", (), 2_140,
    ),
    "resnet50": Job(
        ResNet, "image", 256, {"arch": "resnet50"}, {"arch": "resnet18"}, "convnet", ("--channels-last",), 5_600,
    ),
}  # fmt: skip


def batch_of(job: Job, numbers: dict[str, Any], rows: int, tiny: bool) -> tuple[Tensor, Tensor]:
    """One random batch of this many rows."""
    if job.net is ResNet:
        side = 32 if tiny else 224
        images = torch.randn(rows, 3, side, side).contiguous(memory_format=torch.channels_last)
        return images, torch.randint(1000, (rows,))
    words, following = torch.randint(numbers["vocabulary"], (2, rows, numbers["sequence"]))
    if job.net is Bert:
        return words, following.where(torch.rand(words.shape) < 0.15, -100)
    return words, following


def bare(name: str, chosen: argparse.Namespace) -> float:
    """Items/s of the plain loop."""
    job = JOBS[name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    numbers, rows = (job.tiny, 4) if chosen.tiny else (job.numbers, job.batch_size)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    torch.manual_seed(1234)
    net = job.net(**numbers).to(device)
    optimiser = sgd(net) if job.net is ResNet else adamw(net)
    batch = [tensor.to(device) for tensor in batch_of(job, numbers, rows, chosen.tiny)]
    forward = net if chosen.compile == "none" else torch.compile(net, mode=chosen.compile)
    clips = job.net in (Gpt, Llama)

    def steps(count: int) -> float:
        """Seconds for these steps."""
        wait(device)
        began = time.perf_counter()
        for _ in range(count):
            with torch.autocast(device, torch.bfloat16):
                loss = forward(*batch)
            loss.backward()
            if clips:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        wait(device)
        return time.perf_counter() - began

    steps(10)
    count = max(10, round(chosen.seconds * 10 / steps(10)))
    items = rows * numbers["sequence"] if job.unit == "token" else rows
    return items * count / steps(count)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# --- both sides in turn -----------------------------------------------------------------------------------------------


def run_bare(name: str, chosen: argparse.Namespace) -> float | str:
    """The loop in a process of its own; a text if it failed."""
    given = ["--seconds", str(chosen.seconds), "--compile", chosen.compile, *(["--tiny"] if chosen.tiny else [])]
    done = subprocess.run([sys.executable, __file__, "--bare", name, *given], capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else last_line(done.stderr)


# The parameters of benchsuite's bert that have other names.
_OF_BERT = {"layers": "nlayers", "sequence": "length"}


def run_benchsuite(name: str, chosen: argparse.Namespace) -> float | str:
    """`benchsuite run` of the same shape; a text if it failed."""
    job = JOBS[name]
    given = ["--precision", "bf16", "--compile", chosen.compile, "--min-time-s", str(chosen.seconds), *job.words]
    if chosen.tiny and job.model == "convnet":
        given += ["--arch", "resnet18", "--image-size", "32", "--batch-size", "4"]
    elif chosen.tiny:
        if job.model == "decoder":
            sizes = {"kv_heads": 4, "hidden": 256, "head_width": 16, **job.tiny}
        else:
            sizes = {_OF_BERT.get(key, key): value for key, value in {**job.tiny, "inner": 256}.items()}
        given += [word for key, value in sizes.items() for word in (f"--{key.replace('_', '-')}", str(value))]
        given += ["--batch-size", "4"]
    else:
        given += ["--arch", "resnet50"] if job.model == "convnet" else []
        given += ["--batch-size", str(job.batch_size)]
    command = [sys.executable, "-m", "benchsuite", "run", job.model, "--", *given]
    done = subprocess.run(command, capture_output=True, text=True)
    rate = json.loads(done.stdout)["rate"] if done.returncode == 0 else None
    return rate["value"] if rate and rate["value"] else last_line(done.stderr)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["failed without a word"])[-1]


def shown(found: list[float | str]) -> tuple[str, float | None]:
    """The median with the distance of the farthest round in percent, and the median; or the first failure as text."""
    failed = [one for one in found if isinstance(one, str)]
    if failed:
        return failed[0], None
    rates = [one for one in found if isinstance(one, float)]
    value = statistics.median(rates)
    return f"{value:,.0f} ±{max(abs(rate / value - 1) for rate in rates) * 100:.1f}%", value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=JOBS, default=list(JOBS), help="these jobs (default: all)")
    parser.add_argument("--seconds", type=float, default=15.0, help="time of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default: %(default)s)")
    parser.add_argument("--compile", default="default", help="mode of torch.compile, or none (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="tiny nets, to try this script on a CPU")
    parser.add_argument("--bare", choices=JOBS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.bare:
        print(bare(chosen.bare, chosen))
        return
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
    print(f"torch {torch.__version__}, {device}, bf16, compile {chosen.compile}, {chosen.rounds} rounds")
    print(f"{'job':<12}{'unit':<10}{'loop':>18}{'benchsuite':>18}{'ratio':>9}{'H100':>10}", flush=True)
    for name in chosen.only:
        pairs = [(run_bare(name, chosen), run_benchsuite(name, chosen)) for _ in range(chosen.rounds)]
        (left, loop), (right, ours) = (shown(list(side)) for side in zip(*pairs, strict=True))
        ratio = f"{ours / loop:.4f}" if loop and ours else "-"
        print(f"{name:<12}{JOBS[name].unit:<10}{left:>18}{right:>18}{ratio:>9}{JOBS[name].published:>10,}", flush=True)


if __name__ == "__main__":
    main()
