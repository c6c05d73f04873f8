"""Object detection in two stages: Faster R-CNN and Mask R-CNN of torchvision.

Application: object detection and, with `arch: maskrcnn_resnet50_fpn`, segmentation of instances; a ResNet-50 with a
feature pyramid, proposals, and a head for each region. Paper: Ren et al., "Faster R-CNN" (2015), and He et al., "Mask
R-CNN" (2017), with the pyramid of Lin et al. (2016). Data set: with `data`, the images of `coco` that have objects (up
to 50 each), flipped at random; else generated images with objects in the number and the sizes of COCO's, held in
memory. An item is one image.

Deviations: every image is resized to `image_size` x `image_size`, so that rates compare; the papers keep proportions,
with 800 pixels or more a side. No weights are downloaded: the batch norms and the first stages, which the papers take
from ImageNet and freeze, learn. Boxes are padded to 50 an image and marked by the label 0. Padding lies far outside the
image, where it matches no anchor; it is background among the 2,000 proposals, of which `regions` train the heads.

torchvision's code syncs many times a step: it selects small and low scored proposals, sampled anchors and positive
regions by masks, whose counts the host must know, and suppresses overlapping proposals image by image. Compiled, it
breaks into several graphs. This file adds no sync of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn, optim
from torchvision.models import detection as zoo
from torchvision.models.detection._utils import Matcher
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import box_convert

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Optimiser, Positive, Share, Workload, forever, fusible, supervised
from benchsuite.models.readers import coco, coco_masks
from benchsuite.models.readers.images import check_workers
from benchsuite.models.ssd import MOST_OBJECTS, drawn_objects

NOT_FUSED = "its boxes are chosen by masks, and vmap has no rule for shapes that depend on values"

READS = ("coco",)

SMALL: dict[str, object] = {"batch_size": 1, "image_size": 64, "regions": 16, "classes": 3, "workers": 0}

# Padding: a box of one pixel, which no anchor reaches.
OUTSIDE = (-1e4, -1e4, -1e4 + 1, -1e4 + 1)


@dataclass(frozen=True)
class Params:
    """`classes` counts the background, which is class 0. The default is torchvision's: COCO's numbers have gaps.

    `regions`: the proposals of an image that train the heads, one in four of them on an object.
    `workers`: processes that read a data set; with 0 the training process reads it.
    """

    arch: Literal["fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn"] = "fasterrcnn_resnet50_fpn"
    batch_size: Positive = 2
    image_size: Positive = 800
    regions: Positive = 512
    classes: Positive = 91
    workers: int = 8
    lr: float = fusible(0.0025)
    momentum: float = fusible(0.9)
    weight_decay: float = fusible(1e-4)
    seed: int = fusible(1234)


class PaddedMatcher(Matcher):
    """torchvision's matcher, for which an object that overlaps no anchor has no best anchor.

    Otherwise all anchors would be the best one of each padding box, with an overlap of 0.
    """

    def set_low_quality_matches_(self, matches: Tensor, all_matches: Tensor, match_quality_matrix: Tensor) -> None:
        reached = match_quality_matrix.amax(1, keepdim=True) > 0
        known = torch.where(reached, match_quality_matrix, torch.nan)  # which equals nothing, not even the greatest
        super().set_low_quality_matches_(matches, all_matches, known)


class Losses(nn.Module):
    """The parts of a detector of torchvision, called so that they give the losses. It is always in training mode."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        matcher = net.rpn.proposal_matcher
        net.rpn.proposal_matcher = PaddedMatcher(
            matcher.high_threshold, matcher.low_threshold, allow_low_quality_matches=True
        )
        self.backbone, self.rpn, self.roi_heads = net.backbone, net.rpn, net.roi_heads

    def train(self, mode: bool = True) -> Losses:
        """Training mode, whatever `mode` is: in evaluation mode torchvision computes detections and no losses."""
        super().train()
        return self

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor, *masks: Tensor) -> dict[str, Tensor]:
        """The losses by name, each a mean over the batch.

        Args:
            images: [images, 3, size, size].
            boxes: centre and size as parts of the image, [images, most, 4].
            labels: [images, most]; 0 is padding.
            masks: nothing, or one tensor of 0 and 1, [images, most, size, size].
        """
        corners = box_convert(boxes.float(), "cxcywh", "xyxy") * images.shape[-1]
        corners = torch.where(labels.unsqueeze(2) > 0, corners, corners.new_tensor(OUTSIDE))
        targets = [{"boxes": box, "labels": label} for box, label in zip(corners, labels, strict=True)]
        for target, mask in zip(targets, *masks, strict=True) if masks else ():
            target["masks"] = mask
        sizes = [(images.shape[2], images.shape[3])] * len(images)
        features = self.backbone(images)
        proposals, first = self.rpn(ImageList(images, sizes), features, targets)
        _, second = self.roi_heads(features, proposals, sizes, targets)
        return {**first, **second}


def detector(params: Params) -> Losses:
    """The net of the job, with random weights."""
    make = getattr(zoo, params.arch)
    settings = {"num_classes": params.classes, "box_batch_size_per_image": params.regions}
    return Losses(make(weights=None, weights_backbone=None, **settings))


def drawn_masks(objects: Tensor, size: int) -> Tensor:
    """The ellipses that fill objects (centre and size) [images, most, 4]: 0 or 1 [images, most, size, size]."""
    along = (torch.arange(size) + 0.5) / size
    centre, half = objects[..., :2, None], objects[..., 2:, None] / 2
    x, y = ((along - centre) / half.clamp(min=1e-6)).square().unbind(2)
    return (x[..., None, :] + y[..., :, None] <= 1).to(torch.uint8)


def build(params: Params) -> Workload:
    check_workers("detection", params.workers)
    if params.classes < 2:
        raise ModelError("detection: classes counts the background, so it must be 2 or more")
    masked, size = params.arch.startswith("mask"), params.image_size

    def make(generator: torch.Generator) -> Batch:
        images = torch.randn(params.batch_size, 3, size, size, generator=generator)
        objects, labels = drawn_objects(params.batch_size, params.classes, generator)
        return (images, objects, labels, drawn_masks(objects, size)) if masked else (images, objects, labels)

    def batches(share: Share) -> Iterator[Batch]:
        if not share.data:
            return forever(make, share)
        read = coco_masks.instances if masked else coco.detections
        return read(
            share,
            size=size,
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
        net=detector(params),
        inputs=tuple,
        loss=lambda losses, batch: torch.stack(list(losses.values())).sum(),
        optimiser=Optimiser(optim.SGD, settings),
    )
