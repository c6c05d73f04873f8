"""Polynomial regression (toy): a linear layer fits a random polynomial.

Application: the smallest regression, after the `regression` example of PyTorch; it measures the host more than the
device. Paper: none. Data set: generated; x is drawn from N(0, 1) and raised to the powers 1 to `poly_degree` on the
CPU in each step, and that is part of what is timed. An item is one example (x, y).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.models import Optimiser, Positive, Share, Workload, fusible, seeded, supervised

SMALL: dict[str, object] = {"batch_size": 8}


@dataclass(frozen=True)
class Params:
    batch_size: Positive = 64
    poly_degree: Positive = 4
    lr: float = fusible(0.1)
    seed: int = fusible(1234)


def build(params: Params) -> Workload:
    def batches(share: Share) -> Iterator[tuple[Tensor, Tensor]]:
        """Features [batch, degree] and values [batch, 1] of one polynomial, which all ranks share."""
        target = seeded(share.seed)
        weights = 5 * torch.randn(params.poly_degree, 1, generator=target)
        constant = 5 * torch.randn(1, generator=target)
        powers = torch.arange(1, params.poly_degree + 1)
        examples = seeded(share.seed, 1 + share.rank)
        while True:
            features = torch.randn(params.batch_size, 1, generator=examples) ** powers
            yield features, features @ weights + constant

    return supervised(
        unit="example",
        batches=batches,
        items=lambda batch: len(batch[1]),
        net=nn.Linear(params.poly_degree, 1),
        inputs=lambda batch: (batch[0],),
        loss=lambda output, batch: F.smooth_l1_loss(output, batch[1]),
        optimiser=Optimiser(optim.SGD, {"lr": params.lr}),
    )
