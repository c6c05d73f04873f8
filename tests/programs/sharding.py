"""Groups of ranks that train a small transformer with sharded weights, and with whole ones for comparison.

sharding.py PULSE {cpu | cuda} JSON with a mapping of ranks -> cases, and each case as
{"name": ..., "training": {...}, "against": {...}, "model": {...}}

All ranks of all groups are forks of one process, which has imported torch once. A line of JSON for each group.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch._dynamo  # once for all ranks
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.events import PULSE_BYTES
from benchsuite.models import Optimiser, Share, Workload, seeded, supervised
from benchsuite.models import dcgan as gan
from benchsuite.worker.checks import PrecisionCheck, check_parameters
from benchsuite.worker.compiling import read_compiled
from benchsuite.worker.device import open_device
from benchsuite.worker.ranks import Ranks, join
from benchsuite.worker.step import Step
from benchsuite.worker.ways import fsdp, make_step

STEPS, WORDS, WIDTH, HEADS = 4, 19, 20, 2  # 19 and 20 rows do not divide into equal parts
SEEN: list[torch.dtype] = []


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixes = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.widens, self.narrows = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mixes(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.narrows(F.gelu(self.widens(self.between(x))))


class Net(nn.Module):
    """Next words by three blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        SEEN[:] = [self.head.weight.dtype]
        return self.head(x.flatten(0, 1))


def fill(name: str, tensor: Tensor) -> None:
    values = torch.randn(tensor.shape, generator=seeded(7, sum(map(ord, name)))) * 0.2
    tensor.copy_(values + 1 if "before.weight" in name or "between.weight" in name else values)


def clip_weights(module: nn.Module) -> None:
    for param in module.parameters():
        param.clamp_(-0.25, 0.25)


def batches(share: Share) -> Iterator[Tensor]:
    for number in itertools.count():
        yield torch.randint(WORDS, (4, 9), generator=seeded(share.seed, 1000 * share.rank + number))


def workload_of(meta: bool = True, blocks: bool = True, again: bool = False) -> Workload:
    """The workload, on the meta device or on the CPU; with `again`, two steps a batch, each followed by clipping."""
    torch.manual_seed(3)
    with torch.device("meta" if meta else "cpu"):
        net = Net()
    workload = supervised(
        unit="word",
        batches=batches,
        items=lambda batch: batch[:, 1:].numel(),
        net=net,
        inputs=lambda batch: (batch[:, :-1],),
        loss=lambda output, batch: F.cross_entropy(output, batch[:, 1:].flatten()),
        optimiser=Optimiser(optim.AdamW, {"lr": 0.01}, clip_norm=0.5),
    )
    if again:
        workload = replace(workload, updates=(replace(workload.updates[0], times=2, after=clip_weights),))
    return replace(workload, fill=fill if meta else None, blocks=tuple(net.blocks) if blocks else ())


def trained(
    training: Training, model: dict[str, bool], device: str, ranks: Ranks
) -> tuple[Step, Workload, list[float], dict[str, Tensor]]:
    """The step, the workload, the losses of all ranks and steps, and the whole weights afterwards."""
    workload = workload_of(**model)
    alone = ranks.ranks == 1 and training.parallel.fsdp  # which a run would train without shards
    step = (fsdp.make if alone else make_step)(workload, training, device, ranks)
    losses = []
    for batch in itertools.islice(batches(Share(rank=ranks.rank, ranks=ranks.ranks)), STEPS):
        step.run(batch.to(device))
        losses.append(step.losses[0].double())
    step.check()
    together = torch.stack(losses).cpu()
    torch.distributed.all_reduce(together)
    return step, workload, together.tolist(), {name: whole(p) for name, p in workload.modules["net"].named_parameters()}


def whole(param: Tensor) -> Tensor:
    value = param.detach()
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def compared(case: dict[str, Any], device: str, ranks: Ranks) -> dict[str, Any]:
    sharded, plain = (msgspec.convert(case[key], Training) for key in ("training", "against"))
    model = case.get("model", {})
    breaks = read_compiled().breaks
    step, workload, losses, weights = trained(sharded, model, device, ranks)
    breaks, graphs, seen = read_compiled().breaks - breaks, read_compiled().graphs, SEEN[0]
    params = [p for p in workload.modules["net"].parameters() if hasattr(p, "to_local")]
    _, _, losses_plain, weights_plain = trained(plain, model, device, ranks)
    probe = PrecisionCheck(asked="fp32", in_force="fp32", dtype="float32", matmul_error=0.0, conv_error=0.0)
    return {
        "loss": max(abs(a - b) / abs(b) for a, b in zip(losses, losses_plain, strict=True)),
        "weights": max(float((weights[name] - other).norm() / other.norm()) for name, other in weights_plain.items()),
        "moved": max(float(whole.abs().max()) for whole in weights.values()),
        "held": sum(p.to_local().numel() for p in params),
        "parameters": check_parameters(probe, workload.modules).parameters,
        "gathered": str(seen),
        "breaks": breaks,
        "graphs": graphs,
        "notes": step.notes,
    }


def refused(action: Callable[[], object]) -> str | None:
    try:
        action()
    except ModelError as error:
        return str(error)
    return None


def faults(training: Training, device: str, ranks: Ranks) -> dict[str, str | None]:
    """What the way of training says of models that it cannot train, and of weights that are wrong."""
    workload = workload_of()
    step = make_step(workload, training, device, ranks)
    found = {"unchanged": refused(step.check)}
    step.run(next(batches(Share())).to(device))
    found["changed"] = refused(step.check)
    if ranks.rank == ranks.ranks - 1:
        with torch.no_grad():
            next(workload.modules["net"].parameters()).to_local().add_(1)
    found["drifted"] = refused(step.check)
    scalar = workload_of(meta=False)
    scalar.modules["net"].scale = nn.Parameter(torch.tensor(1.0))
    found["scalar"] = refused(lambda: make_step(scalar, training, device, ranks))
    found["two updates"] = refused(lambda: make_step(gan.build(gan.Params(**gan.SMALL)), training, device, ranks))
    by_itself = Workload("frame", lambda share: iter(()), len, {"net": nn.Linear(1, 1)}, step=lambda batch: 1)
    found["by itself"] = refused(lambda: make_step(by_itself, training, device, ranks))
    no_blocks = workload_of(blocks=False)
    checkpoint = msgspec.structs.replace(training, checkpoint=True)
    found["no blocks"] = refused(lambda: make_step(no_blocks, checkpoint, device, ranks))
    net = workload.modules["net"]
    next(net.parameters())._local_tensor = torch.zeros(1, WIDTH, device=device)
    found["parts"] = refused(lambda: fsdp.check_shards("net", net, ranks.ranks, training.parallel.shards(ranks.ranks)))
    return found


def group(pulse: str, kind: Any, cases: list[dict[str, Any]]) -> None:
    """Be one rank of a group, by the environment; rank 0 prints what it found."""
    device = open_device(kind, int(os.environ["RANK"])).name
    ranks = join(device, 60.0, pulse)
    found: dict[str, Any] = {case["name"]: compared(case, device, ranks) for case in cases}
    if kind == "cpu" and ranks.ranks > 1:
        found["faults"] = faults(msgspec.convert(cases[0]["training"], Training), device, ranks)
    if ranks.rank == 0:
        print(json.dumps({**found, "beats": list(ranks.pulse)}), flush=True)
    ranks.leave()


def forked(count: int, port: int, run: Callable[[], None]) -> bool:
    """Run in `count` forks as ranks; whether all succeed."""
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            met = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_PORT": port}
            os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in met.items()}})
            try:
                run()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)  # as the worker does
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    return statuses == [0] * count


def main(pulse: str, kind: Any, groups: dict[str, list[dict[str, Any]]]) -> int:
    torch.set_num_threads(1)
    # Dynamo looks at the gradient of each input of a block.
    warnings.filterwarnings("default", message=r"The \.grad attribute of a Tensor that is not a leaf")
    if kind == "cuda":
        warnings.simplefilter("default")
    for count, cases in groups.items():
        Path(pulse).write_bytes(bytes(int(count) * PULSE_BYTES))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if not forked(int(count), port, partial(group, pulse, kind, cases)):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
