"""Groups of ranks that train a model in stages, and one process that trains it whole for comparison.

pipelines.py PULSE {cpu | cuda} JSON with a mapping of ranks -> cases, and each case as
{"name": ..., "model": ..., "params": {...}, "training": {...}, "clip": null or a norm, "steps": ...}

All ranks of all groups are forks of one process, which has imported torch once. A line of JSON for each group.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed.pipelining  # once for all ranks
from torch import Tensor, nn, optim

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.events import PULSE_BYTES
from benchsuite.models import Batch, Optimiser, Share, Workload, on_tensors
from benchsuite.worker.precision import set_precision
from benchsuite.worker.ranks import Ranks, join
from benchsuite.worker.stages.cut import checked_chain, cut
from benchsuite.worker.stages.layout import num_microbatches
from benchsuite.worker.stages.prepared import sample
from benchsuite.worker.warmup import loss_of
from benchsuite.worker.ways import make_step


def workload_of(case: dict[str, Any]) -> Workload:
    """The workload of a case, with plain gradient descent, whose steps are the gradients."""
    module = importlib.import_module(f"benchsuite.models.{case['model']}")
    torch.manual_seed(3)
    workload: Workload = module.build(module.Params(**{**module.SMALL, **case.get("params", {})}))
    if case.get("double"):
        workload.modules["net"].double()
    spec = Optimiser(optim.SGD, {"lr": case.get("lr", 0.05)}, clip_norm=case.get("clip"))
    return replace(workload, updates=(replace(workload.updates[0], optimiser=spec),))


def batches_of(workload: Workload, part: int, parts: int, steps: int) -> list[Batch]:
    batches = itertools.islice(workload.batches(Share(rank=part, ranks=parts, seed=5)), steps)
    return [on_tensors(partial(as_weights, workload.modules["net"]), batch) for batch in batches]


def as_weights(net: nn.Module, tensor: Tensor) -> Tensor:
    """Floating-point numbers in the format of the weights."""
    return tensor.to(next(net.parameters()).dtype) if tensor.is_floating_point() else tensor


def joined(batches: list[Batch]) -> Batch:
    """One batch of several."""
    first = batches[0]
    if isinstance(first, dict):
        return {name: torch.cat([batch[name] for batch in batches]) for name in first}
    return tuple(torch.cat(parts) for parts in zip(*batches, strict=True))


def compared(case: dict[str, Any], device: str, ranks: Ranks) -> dict[str, Any]:
    training, steps = msgspec.convert(case["training"], Training), case.get("steps", 2)
    workload = workload_of(case)
    part, parts = training.parallel.share(ranks.rank, ranks.ranks)
    step = make_step(workload, training, device, ranks)
    losses, items = [], 0
    for batch in step.feed(iter(batches_of(workload, part, parts, steps))):
        items += step.run(batch)
        losses.append(loss_of(step))
    used = step.observe(step.feed(workload.batches(Share(rank=part, ranks=parts)))) if case.get("observe") else None
    step.check()
    mine = {name: p.detach().cpu() for name, p in workload.modules["net"].named_parameters() if not p.is_meta}
    all_of: list[Any] = [None] * ranks.ranks
    torch.distributed.all_gather_object(all_of, (mine, items if step.counts_items else 0))
    found: dict[str, Any] = {"notes": list(step.notes), "held": sum(p.numel() for p in mine.values())}
    if used:
        return {**found, "used": msgspec.to_builtins(used)}
    if ranks.rank == 0:
        found |= against_whole(case, training, device, parts, steps, losses, all_of)
    return found


def against_whole(
    case: dict[str, Any],
    training: Training,
    device: str,
    parts: int,
    steps: int,
    losses: list[Any],
    all_of: list[Any],
) -> dict[str, Any]:
    """How far losses and weights are from those of the whole model with as many micro-batches."""
    whole = workload_of(case)
    count = num_microbatches(training.parallel) * parts
    step = make_step(whole, Training(accumulate=count, precision=training.precision), device)
    of_whole, items = [], 0
    for batches in zip(*(batches_of(whole, part, parts, steps) for part in range(parts)), strict=True):
        items += step.run(on_tensors(partial(Tensor.to, device=device), joined(list(batches))))
        of_whole.append(loss_of(step))
    weights = {name: value for mine, _ in all_of for name, value in mine.items()}
    before = dict(workload_of(case).modules["net"].named_parameters())
    plain = {name: p.detach().cpu() for name, p in whole.modules["net"].named_parameters()}
    assert weights.keys() == plain.keys()
    return {
        "loss": max(abs(a - b) / abs(b) for a, b in zip(losses, of_whole, strict=True)) if parts == 1 else 0.0,
        "weights": max(change_apart(weights[name], plain[name], before[name].detach()) for name in plain),
        "items": [sum(items for _, items in all_of), items],
    }


def change_apart(one: Tensor, other: Tensor, before: Tensor) -> float:
    """The difference of two changes of a weight, relative to the change."""
    if before.is_meta:
        return float((one - other).norm() / other.norm())
    change = (other - before).norm()
    return float((one - other).norm() / change) if change > 1e-7 else float((one - other).norm())


def simulated(case: dict[str, Any], training: Training, batches: list[Batch]) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and last weights of PipeDream's training, computed minibatch by minibatch in one process.

    A stage computes a minibatch, forward and backward, with the weights after as many updates as PipeDream's runtime
    has made by then, and steps once all its replicas have their gradients.
    """
    replicas = list(training.parallel.replicas or (1,) * (training.parallel.pp or 0))
    workload = workload_of(case)
    chain, lr = workload.chain, case.get("lr", 0.05)
    assert chain
    units, first = list(chain.units()), 0
    stages = []
    for size in training.parallel.stages or ():
        stages.append(nn.ModuleList(units[first : first + size]))
        first += size
    history = [[{name: p.detach().clone() for name, p in stage.named_parameters()}] for stage in stages]
    sums: list[dict[str, Tensor]] = [{} for _ in stages]
    losses = []
    for number, batch in enumerate(batches):
        flow = chain.inputs(batch)
        used = []
        for place, stage in enumerate(stages):
            old = history[place][max(0, number // replicas[place] - (sum(replicas[place:]) - 1) // replicas[place])]
            weights = {name: value.clone().requires_grad_() for name, value in old.items()}
            used.append(weights)
            for at, unit in enumerate(stage):
                own = {name.partition(".")[2]: p for name, p in weights.items() if name.partition(".")[0] == str(at)}
                found = torch.func.functional_call(unit, own, flow)
                flow = found if isinstance(found, tuple) else (found,)
        loss = chain.loss(flow[0], batch)
        loss.backward()
        losses.append(loss.item())
        for place, weights in enumerate(used):
            for name, value in weights.items():
                assert value.grad is not None
                sums[place][name] = sums[place].get(name, 0.0) + value.grad / replicas[place]
            if (number + 1) % replicas[place] == 0:
                rate = lr * replicas[place] / replicas[0]
                history[place].append({n: v - rate * sums[place][n] for n, v in history[place][-1].items()})
                sums[place] = {}
    for versions, stage in zip(history, stages, strict=True):
        stage.load_state_dict(versions[-1], strict=False)
    return losses, {name: p.detach() for name, p in workload.modules["net"].named_parameters()}


def pipedream(case: dict[str, Any], device: str, ranks: Ranks) -> dict[str, Any]:
    """How far losses and weights are from those of the simulation."""
    training, steps = msgspec.convert(case["training"], Training), case.get("steps", 4)
    workload = workload_of(case)
    count = math.lcm(*(training.parallel.replicas or (1,)))
    batches = batches_of(workload, 0, 1, steps * count)
    step = make_step(workload, training, device, ranks)
    items, losses = 0, []
    for one in step.feed(iter(batches)):
        items += step.run(one)
        losses.append([float(loss) for loss in step.losses])
    step.check()
    mine = {name: p.detach().cpu() for name, p in workload.modules["net"].named_parameters() if not p.is_meta}
    all_of: list[Any] = [None] * ranks.ranks
    torch.distributed.all_gather_object(all_of, (mine, items if step.counts_items else 0, losses))
    if ranks.rank:
        return {}
    of_whole, plain = simulated(case, training, batches)
    before = dict(workload_of(case).modules["net"].named_parameters())
    weights = {name: value for mine, _, _ in all_of for name, value in mine.items()}
    assert weights.keys() == plain.keys()
    last = all_of[-1][2]  # the last replica of the last stage has the last minibatch of each step
    ends = of_whole[count - 1 :: count]
    return {
        "loss": max(abs(a[0] - b) / abs(b) for a, b in zip(last, ends, strict=True)),
        "weights": max(change_apart(weights[name], plain[name], before[name].detach()) for name in plain),
        "items": [sum(items for _, items, _ in all_of), sum(map(workload.items, batches))],
        "notes": list(step.notes),
    }


def refused(case: dict[str, Any], device: str, ranks: Ranks) -> dict[str, Any]:
    try:
        make_step(workload_of(case), msgspec.convert(case["training"], Training), device, ranks)
    except ModelError as error:
        return {"refused": str(error)}
    return {"refused": None}


def kind_of(case: dict[str, Any]) -> Callable[[dict[str, Any], str, Ranks], dict[str, Any]]:
    if case.get("refused"):
        return refused
    without_flush = case["training"]["parallel"].get("schedule") == "pipedream"
    return pipedream if without_flush and not case.get("observe") else compared


def report(cases: list[dict[str, Any]], device: str, pulse: str) -> dict[str, Any]:
    if device == "cuda":
        device = f"cuda:{os.environ['RANK']}"
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    set_precision("fp32", device)
    ranks = join(device, 120, pulse)
    found: dict[str, Any] = {}
    for case in cases:
        began = time.monotonic()
        ranks.counting = ranks.ranks
        found[case["name"]] = kind_of(case)(case, device, ranks)
        found[case["name"]]["s"] = round(time.monotonic() - began, 2)
    found["beats"] = list(ranks.pulse)[: ranks.ranks]
    ranks.leave()
    return found


def run_group(count: int, cases: list[dict[str, Any]], device: str, pulse: str) -> None:
    """Fork the ranks of a group and wait for them. Rank 0 prints."""
    Path(pulse).write_bytes(bytes(2 * count * PULSE_BYTES))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    running = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
                found = report(cases, device, pulse)
                if rank == 0:
                    print(json.dumps(found), flush=True)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        running.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in running]
    if any(codes):
        sys.exit(f"the ranks exited with {codes}")


def loaded() -> None:
    """Import what torch loads at its first count and its first backward pass: once, for all ranks."""
    for model in ("gnmt", "transformer", "bert", "decoder"):
        workload = workload_of({"model": model, "params": {"tied": False} if model in ("transformer", "bert") else {}})
        chain = checked_chain(workload)
        cut(chain, 2, None, sample(workload))
    importlib.import_module("benchsuite.worker.pipedream.way")
    importlib.import_module("benchsuite.worker.ways.stages")


if __name__ == "__main__":
    torch.set_num_threads(1)
    loaded()
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    for size, of_group in json.loads(sys.argv[3]).items():
        run_group(int(size), of_group, sys.argv[2], sys.argv[1])
