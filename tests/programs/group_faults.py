"""A model whose one rank goes wrong in a chosen way after some steps.

Application: none. An item is an example.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn, optim

from benchsuite.models import Optimiser, Share, Workload, supervised


@dataclass(frozen=True)
class Params:
    kind: Literal["raise", "sigkill", "leave", "hang", "hang_in_data"] = "raise"
    rank: int = 1
    after: int = 300


def build(params: Params) -> Workload:
    seen = 0

    def batches(share: Share) -> Iterator[Tensor]:
        for number in range(1 << 40):
            if params.kind == "hang_in_data" and number > params.after and share.rank == params.rank:
                time.sleep(1000)
            time.sleep(0.005)
            yield torch.ones(4, 2)

    def loss(output: Tensor, batch: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        if seen > params.after and dist.get_rank() == params.rank:
            if params.kind == "raise":
                raise ValueError("no more naps")
            if params.kind == "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)
            if params.kind == "leave":
                os._exit(0)
            if params.kind == "hang":
                time.sleep(1000)
        return output.square().mean()

    return supervised(
        unit="example",
        batches=batches,
        items=len,
        net=nn.Linear(2, 1),
        inputs=lambda batch: (batch,),
        loss=loss,
        optimiser=Optimiser(optim.SGD, {"lr": 0.01}),
    )
