"""A model that asks the GPU for more memory than any has.

Application: none. An item is an attempt.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from benchsuite.models import Workload


@dataclass(frozen=True)
class Params:
    terabytes: int = 4


def build(params: Params) -> Workload:
    def step(_: None) -> int:
        torch.empty(params.terabytes << 40, dtype=torch.uint8, device="cuda")
        return 1

    return Workload(unit="attempt", batches=lambda share: itertools.repeat(None), items=lambda batch: 0, step=step)
