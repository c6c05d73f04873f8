"""A model of the tests: an exchange between the ranks of a group, which is slow on one node."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from benchsuite.models import Share, Workload


@dataclass(frozen=True)
class Params:
    slow: str = ""
    seed: int = 1


def build(params: Params) -> Workload:
    own_s = 1.0 if os.environ.get("SLURMD_NODENAME") == params.slow else 0.5

    def batches(share: Share) -> Iterator[None]:
        while True:
            yield None

    def step(_: None) -> int:
        time.sleep(own_s)
        dist.all_reduce(torch.zeros(1))
        return 1000

    return Workload(unit="item", batches=batches, items=lambda _: 0, step=step, by_ranks="meet")
