"""Rates of fused arrays of 1 to 16 models against one model, each eager, compiled, and compiled with CUDA graphs.

    python scripts/bench/arrays.py -o arrays.json                     # all models in fp32, on a GPU
    python scripts/bench/arrays.py --precision bf16 --name dcgan --name cnn
    python scripts/bench/arrays.py --tiny                             # to see that it works: seconds on a CPU

A cell takes steps with one batch, which lies on the device, so that neither input nor lengths of sentences count. All
models of an array have learning rates of their own, as in a search for one. The rate of `serial` is that of one model;
B jobs one after the other have the same. Rates are items of all models a second. The file holds every cell; it is
written after each, so that a run that is cut short leaves what it measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn, optim

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Optimiser, Share, Workload, on_tensors, supervised
from benchsuite.worker.precision import set_precision
from benchsuite.worker.ways import array, make_step

COMPILES = {"eager": "none", "compiled": "default", "graphed": "reduce-overhead"}
WARM_UP_STEPS = {"eager": 3, "compiled": 4, "graphed": 8}
FIRST_SEED = 1


@dataclass(frozen=True)
class Model:
    """A model of the suite with HFTA's sizes, or sizes to try the script with."""

    module: str
    params: dict[str, Any]
    tiny: dict[str, Any]


MODELS = {
    "dcgan": Model("dcgan", {"batch_size": 128}, {"batch_size": 2, "nz": 8, "ngf": 8, "ndf": 8}),
    "resnet18": Model(
        "convnet",
        {"batch_size": 128, "image_size": 32, "classes": 10},
        {"batch_size": 2, "image_size": 32, "classes": 10},
    ),
    "pointnet": Model("pointnet", {"batch_size": 32}, {"batch_size": 2, "points": 32}),
    "transformer": Model(
        "transformer",
        {"batch_size": 1024, "max_length": 31, "vocabulary": 33_278, "nlayers": 2, "width": 128, "heads": 2}
        | {"inner": 128, "tied": False},
        {"batch_size": 30, "max_length": 12, "vocabulary": 60, "nlayers": 1, "width": 16, "heads": 2},
    ),
    "cnn": Model("", {"batch_size": 128}, {"batch_size": 2}),
}


def small_cnn(batch_size: int, lr: float, seed: int) -> Workload:
    """Two convolutions and two linear layers on images of 28x28."""
    torch.manual_seed(seed)
    convolutions = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    net = nn.Sequential(*convolutions, nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))

    def batches(share: Share) -> Iterator[Any]:
        yield torch.randn(batch_size, 1, 28, 28), torch.randint(10, (batch_size,))

    return supervised(
        unit="image",
        batches=batches,
        items=lambda batch: len(batch[1]),
        net=net,
        inputs=lambda batch: (batch[0],),
        loss=lambda output, batch: F.cross_entropy(output, batch[1]),
        optimiser=Optimiser(optim.Adam, {"lr": lr}),
    )


def build(name: str, index: int, *, tiny: bool) -> Workload:
    """The model of this number in an array."""
    model = MODELS[name]
    params = model.tiny if tiny else model.params
    seed, lr = FIRST_SEED + index, 1e-3 / (1 + index)
    if not model.module:
        return small_cnn(**params, lr=lr, seed=seed)
    module = import_module(f"benchsuite.models.{model.module}")
    torch.manual_seed(seed)
    workload: Workload = module.build(module.Params(**params, lr=lr, seed=seed))
    return workload


@dataclass(frozen=True)
class Cell:
    """What is measured: `models` copies, fused, or one model by itself."""

    name: str
    fused: bool
    how: str
    models: int


def measured(cell: Cell, asked: argparse.Namespace, device: str) -> dict[str, Any]:
    """The rate of a cell and its memory, or why there is none."""
    began = time.monotonic()
    found: dict[str, Any] = {**vars(cell), "precision": asked.precision}
    try:
        found |= _measured(cell, asked, device)
    except torch.OutOfMemoryError:
        found["error"] = "out of memory"
    except (ModelError, RuntimeError) as error:
        found["error"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"
    torch._dynamo.reset()
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()
    return {**found, "elapsed_s": round(time.monotonic() - began, 1)}


def _measured(cell: Cell, asked: argparse.Namespace, device: str) -> dict[str, Any]:
    compile_ = COMPILES[cell.how] if device != "cpu" or cell.how == "eager" else "aot_eager"
    training = Training(precision=asked.precision, compile=compile_, array=cell.models)
    workloads = [build(cell.name, index, tiny=asked.tiny) for index in range(cell.models)]
    batch = next(iter(workloads[0].batches(Share(seed=1, device=device))))
    batch = on_tensors(lambda tensor: tensor.to(device), batch)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    step = array.make(workloads, training, device) if cell.fused else make_step(workloads[0], training, device)
    del workloads
    for _ in range(WARM_UP_STEPS[cell.how]):
        step.run(batch)
    one_s = _seconds(step, batch, 3, device) / 3
    steps = max(3, int(asked.seconds / max(one_s, 1e-6)))
    seconds = _seconds(step, batch, steps, device)
    items = step.run(batch) * steps
    losses = [value for loss in step.losses for value in loss.reshape(-1).tolist()]
    if not all(map(torch.isfinite, map(torch.tensor, losses))):
        raise ModelError(f"a loss is not finite: {losses}")
    step.check()
    peak = {} if device == "cpu" else {"peak_bytes": torch.cuda.max_memory_allocated()}
    notes = [*step.notes, *step.found]
    return {"items_per_s": items / seconds, "step_ms": 1e3 * seconds / steps, "steps": steps, **peak, "notes": notes}


def _seconds(step: Any, batch: Any, steps: int, device: str) -> float:
    """The time of some steps, from one sync to the next."""
    sync = (lambda: None) if device == "cpu" else torch.cuda.synchronize
    sync()
    began = time.perf_counter()
    for _ in range(steps):
        step.run(batch)
    sync()
    return time.perf_counter() - began


def cells(asked: argparse.Namespace) -> Iterator[Cell]:
    """All cells, the eager ones of all models first: compiling takes longest."""
    for how, name in product(asked.how, asked.name):
        yield Cell(name, False, how, 1)
        for models in asked.models:
            yield Cell(name, True, how, models)


def table(found: list[dict[str, Any]], counts: list[int]) -> Iterator[str]:
    """A row for each model and way: rates, and the best one over serial eager and over the best serial one."""
    head = "".join(f"{f'B={count}':>11}" for count in counts)
    yield f"{'model':12}{'way':16}{head}{'/ eager':>9}{'/ best':>8}"
    rate = {(one["name"], one["fused"], one["how"], one["models"]): one.get("items_per_s") for one in found}
    for name, fused, how in dict.fromkeys((one["name"], one["fused"], one["how"]) for one in found):
        rates = [rate.get((name, fused, how, count)) for count in (counts if fused else [1])]
        serial = [rate.get((name, False, each, 1)) or 0.0 for each in COMPILES]
        best = max((one for one in rates if one), default=0.0)
        over = [f"{best / of:.2f}" if of and best else "-" for of in (serial[0], max(serial))]
        shown = "".join(f"{one:11,.0f}" if one else f"{'-':>11}" for one in rates)
        way = f"{'fused' if fused else 'serial'} {how}"
        yield f"{name:12}{way:16}{shown:{11 * len(counts)}}{over[0]:>9}{over[1]:>8}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="a file for all cells as JSON")
    parser.add_argument("--name", action="append", choices=[*MODELS], help="a model; default: all")
    parser.add_argument("--how", action="append", choices=[*COMPILES], help="default: all")
    parser.add_argument("--models", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4, 8, 16])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16", "amp-fp16"])
    parser.add_argument("--seconds", type=float, default=2.0, help="that a cell is measured")
    parser.add_argument("--limit-s", type=float, default=540.0, help="after which no further cell begins")
    parser.add_argument("--tiny", action="store_true", help="sizes to try the script with")
    asked = parser.parse_args()
    asked.name, asked.how = asked.name or [*MODELS], asked.how or [*COMPILES]
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    set_precision(asked.precision, device)
    facts = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if device != "cpu" else "CPU"}
    found: list[dict[str, Any]] = []
    began = time.monotonic()
    for cell in cells(asked):
        if time.monotonic() - began > asked.limit_s:
            print(f"{asked.limit_s:g} s are over: the remaining cells are left out", flush=True)
            break
        found.append(measured(cell, asked, device))
        if found[-1].get("error"):
            print(f"{cell}: {found[-1]['error']}", flush=True)
        if asked.output:
            asked.output.write_text(json.dumps({**facts, "cells": found}, indent=1), encoding="utf-8")
    print(f"{facts['device']}, torch {facts['torch']}, {asked.precision}; items a second of all models")
    print("\n".join(table(found, asked.models)))
    for note in dict.fromkeys(f"{one['name']}: {note}" for one in found for note in one.get("notes", ())):
        print(note)


if __name__ == "__main__":
    main()
