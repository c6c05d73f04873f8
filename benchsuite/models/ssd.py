"""Object detection: SSD300 on the trunk of a ResNet-34.

Application: object detection, after the SSD of MLPerf Training v0.5: ResNet-34 up to its third stage at a stride of 8,
five further blocks, and 8,732 default boxes. Paper: Liu et al., "SSD: Single Shot MultiBox Detector" (2015). Data set:
with `data`, the images of `coco` that have objects (up to 50 each), resized to 300x300 and flipped at random; else
generated images with objects in the number and the sizes of COCO's (7 an image, many of them small), held in memory.
The trunk's weights start random, nothing is downloaded. An item is one image.

Objects are matched to default boxes, and hard negatives are found, on the device in each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
import torchvision.models
from torch import Tensor, nn, optim
from torchvision.ops import box_convert, box_iou

from benchsuite.errors import ModelError
from benchsuite.models import Optimiser, Positive, Share, Workload, forever, fusible, supervised
from benchsuite.models.readers import coco
from benchsuite.models.readers.images import check_workers

READS = ("coco",)

SMALL: dict[str, object] = {"batch_size": 1, "trunk": "resnet18", "classes": 3, "workers": 0}

SIZE = 300
# Of each feature map: cells a side, pixels a cell, the boxes' size and the next map's in pixels, and their proportions.
MAPS = (
    (38, 8, 21, 45, (2,)),
    (19, 16, 45, 99, (2, 3)),
    (10, 32, 99, 153, (2, 3)),
    (5, 64, 153, 207, (2, 3)),
    (3, 100, 207, 261, (2,)),
    (1, 300, 261, 315, (2,)),
)
CHANNELS = (256, 512, 512, 256, 256, 256)
MOST_OBJECTS = 50


@dataclass(frozen=True)
class Params:
    """`classes` counts the background, which is class 0.

    `workers`: processes that read a data set; with 0 the training process reads it.
    """

    trunk: Literal["resnet34", "resnet18"] = "resnet34"
    batch_size: Positive = 32
    classes: Positive = 81
    workers: int = 8
    lr: float = fusible(1e-3)
    momentum: float = fusible(0.9)
    weight_decay: float = fusible(5e-4)
    seed: int = fusible(1234)


def default_boxes() -> Tensor:
    """[8732, 4]: centre and size as parts of the image; by map, then shape, then row, then column."""
    boxes = []
    for cells, step, size, following, proportions in MAPS:
        shapes = [(size, size), ((size * following) ** 0.5,) * 2]
        for proportion in proportions:
            long, short = size * proportion**0.5, size / proportion**0.5
            shapes += [(long, short), (short, long)]
        centres = [(cell + 0.5) * step for cell in range(cells)]
        boxes += [(x, y, width, height) for width, height in shapes for y in centres for x in centres]
    return torch.tensor(boxes).div(SIZE).clamp(0, 1)


def trunk(name: str) -> nn.Sequential:
    """[images, 3, 300, 300] -> [images, 256, 38, 38]: a ResNet whose third stage keeps the second's resolution."""
    net = torchvision.models.get_model(name, weights=None)  # its last stage and classifier are left out
    first = net.layer3[0]
    first.conv1.stride = first.downsample[0].stride = (1, 1)
    return nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1, net.layer2, net.layer3)


def further(channels: int, outputs: int, hidden: int, stride: int) -> nn.Sequential:
    """The next map, with half the cells of each side, or with two fewer."""
    narrow, conv = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, outputs, 3, stride, padding=stride - 1)
    return nn.Sequential(narrow, nn.ReLU(inplace=True), conv, nn.ReLU(inplace=True))


class Ssd(nn.Module):
    """Images -> offsets [images, 4, boxes], logits [images, classes, boxes], and the default boxes [boxes, 4]."""

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        shapes = [2 + 2 * len(proportions) for *_, proportions in MAPS]
        steps = zip(CHANNELS, CHANNELS[1:], (256, 256, 128, 128, 128), (2, 2, 2, 1, 1), strict=False)
        self.further = nn.ModuleList(further(*step) for step in steps)
        self.offsets = nn.ModuleList(nn.Conv2d(c, 4 * n, 3, padding=1) for c, n in zip(CHANNELS, shapes, strict=True))
        self.logits = nn.ModuleList(
            nn.Conv2d(c, classes * n, 3, padding=1) for c, n in zip(CHANNELS, shapes, strict=True)
        )
        for weights in self.parameters():
            if weights.dim() > 1:
                nn.init.xavier_uniform_(weights)
        self.trunk = trunk(name)
        self.classes = classes
        self.register_buffer("boxes", default_boxes())

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        maps = [self.trunk(images)]
        for block in self.further:
            maps.append(block(maps[-1]))
        count = len(images)
        offsets = [head(one).reshape(count, 4, -1) for head, one in zip(self.offsets, maps, strict=True)]
        logits = [head(one).reshape(count, self.classes, -1) for head, one in zip(self.logits, maps, strict=True)]
        return torch.cat(offsets, 2), torch.cat(logits, 2), self.boxes


def matched(objects: Tensor, labels: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """The object that each default box is to find [images, boxes, 4], and its label [images, boxes]; 0: no object.

    A box is matched to the object that overlaps it most, if the overlap is over one half. In addition each object is
    matched to the box that it overlaps most; of two objects with the same box the one with the larger overlap wins.
    """
    corners = box_convert(objects, "cxcywh", "xyxy").flatten(0, 1)
    overlap = box_iou(corners, box_convert(boxes, "cxcywh", "xyxy")).unflatten(0, labels.shape)
    best = overlap.argmax(2, keepdim=True) == torch.arange(len(boxes), device=boxes.device)
    overlap, owner = (overlap + 2 * (best & (labels > 0).unsqueeze(2))).max(1)
    found = objects.gather(1, owner.unsqueeze(2).expand(-1, -1, 4))
    return found, labels.gather(1, owner) * (overlap > 0.5)


def encoded(objects: Tensor, boxes: Tensor) -> Tensor:
    """The offsets [images, 4, boxes] that lead from the default boxes to the objects, with the paper's variances."""
    centres = (objects[..., :2] - boxes[:, :2]) / boxes[:, 2:] / 0.1
    sizes = (objects[..., 2:] / boxes[:, 2:]).log() / 0.2
    return torch.cat([centres, sizes], 2).transpose(1, 2)


def hardest(losses: Tensor, positive: Tensor) -> Tensor:
    """[images]: the sum of the greatest losses of negative boxes, three for each positive one."""
    negative = losses.masked_fill(positive, 0).sort(dim=1, descending=True).values
    ranks = torch.arange(losses.shape[1], device=losses.device)
    return (negative * (ranks < 3 * positive.sum(1, keepdim=True))).sum(1)


def loss(outputs: tuple[Tensor, Tensor, Tensor], batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """The loss of each image, divided by its positive boxes: error of the offsets, and classification of these and the
    hardest negative boxes."""
    offsets, logits, boxes = outputs
    objects, labels = matched(*batch[1:], boxes)
    positive = labels > 0
    targets = encoded(torch.where(positive.unsqueeze(2), objects, boxes), boxes)
    away = (F.smooth_l1_loss(offsets.to(boxes.dtype), targets, reduction="none").sum(1) * positive).sum(1)
    wrong = F.cross_entropy(logits.to(boxes.dtype), labels, reduction="none")
    total = away + (wrong * positive).sum(1) + hardest(wrong, positive)
    return (total / positive.sum(1).clamp(min=1)).mean()


def drawn_objects(count: int, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Objects (centre and size) [count, most, 4] and their labels [count, most]; padding is labelled 0."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, MOST_OBJECTS, generator=generator)

    number = 1 - 6.8 * torch.rand(count, 1, generator=generator).clamp(min=1e-6).log()
    real = torch.arange(MOST_OBJECTS) < number.floor()
    side, proportion = torch.exp(uniform(-4.0, -0.2)), torch.exp(uniform(-0.35, 0.35))
    width, height = (side * proportion).clamp(max=1), (side / proportion).clamp(max=1)
    x, y = (size / 2 + (1 - size) * uniform(0, 1) for size in (width, height))
    objects = torch.stack([x, y, width, height], 2) * real.unsqueeze(2)
    return objects, torch.randint(1, classes, (count, MOST_OBJECTS), generator=generator) * real


def build(params: Params) -> Workload:
    check_workers("ssd", params.workers)
    if params.classes < 2:
        raise ModelError("ssd: classes counts the background, so it must be 2 or more")

    def make(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        images = torch.randn(params.batch_size, 3, SIZE, SIZE, generator=generator)
        return images, *drawn_objects(params.batch_size, params.classes, generator)

    def batches(share: Share) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        if not share.data:
            return forever(make, share)
        return coco.detections(
            share,
            size=SIZE,
            most=MOST_OBJECTS,
            classes=params.classes,
            batch_size=params.batch_size,
            workers=params.workers,
        )

    settings = {"lr": params.lr, "momentum": params.momentum, "weight_decay": params.weight_decay}
    return supervised(
        unit="image",
        batches=batches,
        items=lambda batch: len(batch[0]),
        net=Ssd(params.trunk, params.classes),
        inputs=lambda batch: (batch[0],),
        loss=loss,
        optimiser=Optimiser(optim.SGD, settings),
    )
