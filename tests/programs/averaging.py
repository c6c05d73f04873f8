"""One rank of a group that trains models as the worker would, and compares with ranks played by one process.

RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment; averaging.py PULSE MODEL... [TRAINING as JSON]
"""

from __future__ import annotations

import copy
import importlib
import itertools
import json
import os
import sys
from typing import Any

import msgspec
import torch
from torch import Tensor

from benchsuite.describe.training import Training
from benchsuite.models import Share, Workload, on_tensors
from benchsuite.worker.compiling import read_compiled
from benchsuite.worker.microbatches import Splitter
from benchsuite.worker.ranks import join
from benchsuite.worker.step import place
from benchsuite.worker.ways import make_step

STEPS = 2


def build(name: str) -> Workload:
    model = importlib.import_module(f"benchsuite.models.{name}")
    torch.manual_seed(7)
    workload: Workload = model.build(model.Params(**model.SMALL))
    if workload.fill:
        place(workload, Training(), "cpu")
    return workload


def batches(workload: Workload, rank: int, ranks: int) -> list[Any]:
    return list(itertools.islice(workload.batches(Share(rank=rank, ranks=ranks)), STEPS))


def trained(workload: Workload) -> dict[str, Tensor]:
    names = sorted({update.trains for update in workload.updates})
    return {f"{n}.{k}": p.detach() for n in names for k, p in workload.modules[n].named_parameters()}


def played(name: str, ranks: int) -> dict[str, Tensor]:
    """Each rank's part by hand, one update after the other: gradients are averaged, then each copy learns from them."""
    copies = [build(name) for _ in range(ranks)]
    data = [batches(one, rank, ranks) for rank, one in enumerate(copies)]
    updates = range(len(copies[0].updates))
    optimisers = [
        [u.optimiser.kind(learning(one, i), **u.optimiser.settings) for i, u in enumerate(one.updates)]
        for one in copies
    ]
    carries: list[Any] = [None] * ranks
    for step in range(STEPS):
        states = [seeded_state(step, rank) for rank in range(ranks)]
        for i, part in [(number, part) for number in updates for part in range(copies[0].updates[number].times)]:
            update = copies[0].updates[i]
            for rank, one in enumerate(copies):
                torch.set_rng_state(states[rank])
                optimisers[rank][i].zero_grad()
                batch = Splitter(update.times).split(data[rank][step])[part].batch
                loss, carry = one.updates[i].loss(one.modules, batch, carries[rank])
                loss.backward(inputs=learning(one, i))
                carries[rank] = on_tensors(Tensor.detach, carry)
                states[rank] = torch.get_rng_state()
            for same in zip(*(learning(one, i) for one in copies), strict=True):
                mean = torch.stack([p.grad for p in same]).mean(0)
                for p in same:
                    p.grad = mean.clone()
            for rank, one in enumerate(copies):
                if update.optimiser.clip_norm is not None:
                    torch.nn.utils.clip_grad_norm_(learning(one, i), update.optimiser.clip_norm)
                optimisers[rank][i].step()
                if update.after is not None:
                    with torch.no_grad():
                        update.after(one.modules[update.trains])
    return trained(copies[0])


def learning(workload: Workload, update: int) -> list[Tensor]:
    return [p for p in workload.modules[workload.updates[update].trains].parameters() if p.requires_grad]


def seeded_state(step: int, rank: int) -> Tensor:
    torch.manual_seed(1000 * step + rank)
    return torch.get_rng_state()


def main(pulse: str, names: list[str]) -> None:
    training = Training()
    if names[-1].startswith("{"):
        training = msgspec.json.decode(names.pop(), type=Training)
    torch.set_num_threads(1)
    ranks = join("cpu", 60.0, pulse)
    found = {}
    for name in names:
        workload = build(name)
        step = make_step(workload, training, ranks=ranks)
        for number, batch in enumerate(batches(workload, ranks.rank, ranks.ranks)):
            torch.manual_seed(1000 * number + ranks.rank)
            step.run(copy.deepcopy(batch))
        step.check()
        if ranks.rank == 0:
            mine, theirs = trained(workload), played(name, ranks.ranks)
            found[name] = max(float((mine[k] - theirs[k]).abs().max()) for k in theirs)
        ranks.barrier()
    if ranks.rank == 0:
        print(json.dumps({"apart": found, "beats": list(ranks.pulse), "breaks": read_compiled().breaks}), flush=True)
    ranks.leave()
    os._exit(0)  # as the worker does


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1], sys.argv[2:])
