"""PointNet: the class of a cloud of points, or the part of each point.

Application: classification (`task: cls`) and part segmentation (`task: seg`) of 3-D shapes; the same layers for each
point, two small nets that turn points and features, and a maximum over all points. Paper: Qi et al., "PointNet: Deep
Learning on Point Sets for 3D Classification and Segmentation" (2017), the nets of its figure 2 and the regulariser of
its equation 2. Data set: with `data`, the clouds of `shapenet_parts`, of each `points` at random; else generated
clouds, held in memory. Batch size and points are those of HFTA (Wang et al., 2021). An item is one cloud.

Deviations: both tasks learn ShapeNet's 16 categories or 50 parts, while the paper classifies ModelNet's 40 categories
and widens the net for parts; HFTA's nets lack two of the layers for each point, and segment one category only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.models import Optimiser, Positive, Share, Workload, forever, fusible, supervised
from benchsuite.models.readers import shapenet
from benchsuite.models.readers.images import check_workers

READS = ("shapenet",)

SMALL: dict[str, object] = {"batch_size": 2, "points": 32, "workers": 0}

OUTPUTS = {"cls": len(shapenet.CATEGORIES), "seg": shapenet.PARTS}
GLOBAL = 1024


@dataclass(frozen=True)
class Params:
    """`regularise`: the weight of the loss that keeps the turn of features near a rotation.

    `workers`: processes that read a data set; with 0 the training process reads it.
    """

    task: Literal["cls", "seg"] = "cls"
    batch_size: Positive = 32
    points: Positive = 2500
    regularise: float = 0.001
    dropout: float = 0.3
    workers: int = 8
    lr: float = fusible(1e-3)
    seed: int = fusible(1234)


def for_each_point(*widths: int) -> nn.Sequential:
    """[clouds, first width, points] -> [clouds, last width, points]."""
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Conv1d(inner, outer, 1), nn.BatchNorm1d(outer), nn.ReLU()]
    return nn.Sequential(*layers)


def for_each_cloud(*widths: int) -> list[nn.Module]:
    """[clouds, first width] -> [clouds, last width]."""
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.BatchNorm1d(outer), nn.ReLU()]
    return layers


class Turn(nn.Module):
    """A matrix for each cloud: features [clouds, size, points] -> [clouds, size, size]. It starts as the identity."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.points = for_each_point(size, 64, 128, GLOBAL)
        self.cloud = nn.Sequential(*for_each_cloud(GLOBAL, 512, 256))
        self.matrix = nn.Linear(256, size * size)
        nn.init.zeros_(self.matrix.weight)
        with torch.no_grad():
            self.matrix.bias.copy_(torch.eye(size).flatten())

    def forward(self, features: Tensor) -> Tensor:
        whole = self.points(features).amax(2)
        found: Tensor = self.matrix(self.cloud(whole))
        return found.unflatten(1, (self.size, self.size))


class PointNet(nn.Module):
    """Clouds [clouds, 3, points] -> logits, and the matrices that turned the features [clouds, 64, 64].

    Logits are [clouds, categories] or, for parts, [clouds, parts, points].
    """

    def __init__(self, task: Literal["cls", "seg"], dropout: float) -> None:
        super().__init__()
        self.turn_points, self.turn_features = Turn(3), Turn(64)
        self.first = for_each_point(3, 64, 64)
        self.second = for_each_point(64, 64, 128, GLOBAL)
        last: Sequence[nn.Module]
        if task == "cls":
            last = [*for_each_cloud(GLOBAL, 512, 256), nn.Dropout(dropout), nn.Linear(256, OUTPUTS[task])]
        else:
            last = [for_each_point(64 + GLOBAL, 512, 256, 128), nn.Conv1d(128, OUTPUTS[task], 1)]
        self.last = nn.Sequential(*last)
        self.segments = task == "seg"

    def forward(self, clouds: Tensor) -> tuple[Tensor, Tensor]:
        turned = self.turn_points(clouds).transpose(1, 2) @ clouds
        local = self.first(turned)
        matrices = self.turn_features(local)
        local = matrices.transpose(1, 2) @ local
        whole = self.second(local).amax(2)
        if self.segments:
            whole = torch.cat([local, whole.unsqueeze(2).expand(-1, -1, local.shape[2])], 1)
        return self.last(whole), matrices


def away_from_rotation(matrices: Tensor) -> Tensor:
    """The mean over all matrices [n, size, size] of the squared norm of I - A A^T (the paper's equation 2)."""
    identity = torch.eye(matrices.shape[1], device=matrices.device)
    return (identity - matrices @ matrices.transpose(1, 2)).square().sum((1, 2)).mean()


def drawn(params: Params, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Clouds [batch_size, 3, points] within the unit ball, and the labels of clouds or points."""
    clouds = torch.randn(params.batch_size, 3, params.points, generator=generator)
    clouds = clouds / clouds.norm(dim=1, keepdim=True).amax(2, keepdim=True)
    shape = (params.batch_size,) if params.task == "cls" else (params.batch_size, params.points)
    return clouds, torch.randint(OUTPUTS[params.task], shape, generator=generator)


def build(params: Params) -> Workload:
    check_workers("pointnet", params.workers)

    def batches(share: Share) -> Iterator[tuple[Tensor, Tensor]]:
        if not share.data:
            return forever(partial(drawn, params), share)
        return shapenet.clouds(
            share,
            points=params.points,
            of_points=params.task == "seg",
            batch_size=params.batch_size,
            workers=params.workers,
        )

    def loss(output: tuple[Tensor, Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
        logits, matrices = output
        return F.cross_entropy(logits, batch[1]) + params.regularise * away_from_rotation(matrices)

    return supervised(
        unit="cloud",
        batches=batches,
        items=lambda batch: len(batch[1]),
        net=PointNet(params.task, params.dropout),
        inputs=lambda batch: (batch[0],),
        loss=loss,
        optimiser=Optimiser(optim.Adam, {"lr": params.lr}),
    )
