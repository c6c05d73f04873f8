"""Models with a bottleneck that is known: what limits each of them on a GPU is planted.

Application: none. `input` sleeps for each batch; `host` launches many tiny kernels; `compute` multiplies large
matrices; `memory` streams a vector through the GPU's memory; `copies` copies large batches from host memory. An item is
a row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn, optim

from benchsuite.models import Optimiser, Positive, Share, Workload, forever, supervised


@dataclass(frozen=True)
class Params:
    """`rows` times `width` numbers are a batch; `depth`: layers, or kernels in a row; `sleep_s`: before each batch."""

    kind: Literal["input", "host", "compute", "memory", "copies"] = "input"
    rows: Positive = 64
    width: Positive = 64
    depth: Positive = 1
    sleep_s: float = 0.0
    seed: int = 1234


class Scale(nn.Module):  # type: ignore[misc]
    """Multiplies by one number, `depth` times: as many kernels, each of which reads and writes the whole batch."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))
        self.depth = depth

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.depth):
            x = x * self.factor
        return x


class First(nn.Module):  # type: ignore[misc]
    """A dense layer on the first row alone, so that a step computes next to nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(min(width, 64), 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x[:1, : self.dense.in_features])


def net_of(params: Params) -> nn.Module:
    if params.kind == "compute":
        return nn.Sequential(*(nn.Linear(params.width, params.width, bias=False) for _ in range(params.depth)))
    return First(params.width) if params.kind in ("input", "copies") else Scale(params.depth)


def build(params: Params) -> Workload:
    def make(generator: torch.Generator) -> Tensor:
        return torch.rand(params.rows, params.width, generator=generator)

    def batches(share: Share) -> Iterator[Tensor]:
        for batch in forever(make, share, distinct=1, on_device=params.kind in ("compute", "memory", "host")):
            if params.sleep_s:
                time.sleep(params.sleep_s)
            yield batch

    return supervised(
        unit="row",
        batches=batches,
        items=len,
        net=net_of(params),
        inputs=lambda batch: (batch,),
        loss=lambda output, batch: output.float().mean(),
        optimiser=Optimiser(optim.SGD, {"lr": 1e-6}),
    )
