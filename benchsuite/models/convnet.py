"""Image classification: any classifier of torchvision.

Application: image classification. Paper: by `arch`; the default is ResNet-18 of He et al., "Deep Residual Learning for
Image Recognition" (2015). Data set: with `data`, a folder of images for each class (`fake_imagenet`), of which random
parts are taken and flipped; else generated images of ImageNet's shape and random labels, held in memory. Weights start
random. An item is one image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import torchvision.models
from torch import Tensor, nn, optim

from benchsuite.errors import ModelError, nearest
from benchsuite.models import Optimiser, Positive, Share, Workload, forever, fusible, supervised
from benchsuite.models.readers import image_folder
from benchsuite.models.readers.images import check_workers

READS = ("image_folder",)

SMALL: dict[str, object] = {"batch_size": 2, "image_size": 32, "classes": 10, "workers": 0}


@dataclass(frozen=True)
class Params:
    """`workers`: processes that read a data set; with 0 the training process reads it."""

    arch: str = "resnet18"
    batch_size: Positive = 128
    image_size: Positive = 224
    classes: Positive = 1000
    workers: int = 8
    lr: float = fusible(0.1)
    momentum: float = fusible(0.9)
    weight_decay: float = fusible(1e-4)
    seed: int = fusible(1234)


def classifier(params: Params) -> nn.Module:
    """[images, 3, size, size] -> logits [images, classes].

    Raises:
        ModelError: torchvision has no such classifier.
    """
    known = torchvision.models.list_models(module=torchvision.models)
    if params.arch not in known:
        raise ModelError(f"convnet: torchvision has no classifier '{params.arch}'{nearest(params.arch, known)}")
    settings: dict[str, Any] = {}
    if params.arch in ("googlenet", "inception_v3"):
        settings = {"aux_logits": False, "init_weights": True}  # heads that no loss uses would get no gradient
    elif params.arch.startswith("vit_"):
        settings = {"image_size": params.image_size}
    elif params.arch.startswith("maxvit"):
        settings = {"input_size": (params.image_size, params.image_size)}
    net: nn.Module = torchvision.models.get_model(params.arch, weights=None, num_classes=params.classes, **settings)
    return net


def residual_units(net: nn.Module) -> Callable[[], Sequence[nn.Module]] | None:
    """The blocks of torchvision's ResNet in forward order; None for other nets."""
    if not isinstance(net, torchvision.models.ResNet):
        return None

    def units() -> Sequence[nn.Module]:
        stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)
        head = nn.Sequential(net.avgpool, nn.Flatten(), net.fc)
        return [stem, *net.layer1, *net.layer2, *net.layer3, *net.layer4, head]

    return units


def drawn(params: Params, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images [batch_size, 3, size, size] of noise, and their labels [batch_size]."""
    images = torch.randn(params.batch_size, 3, params.image_size, params.image_size, generator=generator)
    return images, torch.randint(params.classes, (params.batch_size,), generator=generator)


def build(params: Params) -> Workload:
    check_workers("convnet", params.workers)

    def batches(share: Share) -> Iterator[tuple[Tensor, Tensor]]:
        if not share.data:
            return forever(partial(drawn, params), share)
        return image_folder.labelled(
            share,
            image_folder.augmentation(params.image_size),
            batch_size=params.batch_size,
            workers=params.workers,
            classes=params.classes,
        )

    net = classifier(params)
    settings = {"lr": params.lr, "momentum": params.momentum, "weight_decay": params.weight_decay}
    return supervised(
        unit="image",
        batches=batches,
        items=lambda batch: len(batch[1]),
        net=net,
        inputs=lambda batch: (batch[0],),
        loss=lambda output, batch: F.cross_entropy(output, batch[1]),
        optimiser=Optimiser(optim.SGD, settings),
        units=residual_units(net),
    )
