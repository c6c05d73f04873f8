"""Image classification: any classifier of torchvision.

Application: image classification. Paper: by `arch`; the default is ResNet-18 of He et al., "Deep Residual Learning for
Image Recognition" (2015). Data set: with `data`, a folder of images for each class (`fake_imagenet`, `imagenet`) or
shards of TFRecord (`imagenet_tfrecord`), of which random parts are taken and flipped, or `cifar10` with an `image_size`
of 32; else generated images of ImageNet's shape and random labels, held in memory. Weights start random. An item is one
image.

The auxiliary classifiers of GoogLeNet and Inception v3 are part of the loss.
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
from benchsuite.models.readers import cifar, image_folder, tfrecord
from benchsuite.models.readers.images import check_workers

READS = ("image_folder", "tfrecord", "cifar")

SMALL: dict[str, object] = {"batch_size": 2, "image_size": 32, "classes": 10, "workers": 0}

# The weight of each auxiliary loss: GoogLeNet's is its paper's, Inception v3's that of torchvision's tutorial.
AUXILIARY = {"googlenet": 0.3, "inception_v3": 0.4}
INCEPTION_SIZE = 299  # the least, and the paper's: smaller features do not fill the auxiliary classifier's kernels


@dataclass(frozen=True)
class Params:
    """`workers`: processes that read a data set; with 0 the training process reads it, as it always reads `cifar10`."""

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
        ModelError: torchvision has no such classifier, or the images are too small for it.
    """
    known = torchvision.models.list_models(module=torchvision.models)
    if params.arch not in known:
        raise ModelError(f"convnet: torchvision has no classifier '{params.arch}'{nearest(params.arch, known)}")
    settings: dict[str, Any] = {}
    if params.arch == "inception_v3" and params.image_size < INCEPTION_SIZE:
        raise ModelError(f"convnet: inception_v3 needs an image_size of {INCEPTION_SIZE} or more")
    if params.arch in AUXILIARY:
        settings = {"aux_logits": True, "init_weights": True}
    elif params.arch.startswith("vit_"):
        settings = {"image_size": params.image_size}
    elif params.arch.startswith("maxvit"):
        settings = {"input_size": (params.image_size, params.image_size)}
    net: nn.Module = torchvision.models.get_model(params.arch, weights=None, num_classes=params.classes, **settings)
    return net


def units_of(net: nn.Module) -> Callable[[], Sequence[nn.Module]] | None:
    """The parts of a ResNet, VGG or AlexNet of torchvision in forward order; None for other nets."""
    if isinstance(net, torchvision.models.ResNet):
        return partial(residual_units, net)
    if isinstance(net, (torchvision.models.VGG, torchvision.models.AlexNet)):
        return partial(plain_units, net)
    return None


def residual_units(net: nn.Module) -> Sequence[nn.Module]:
    """The blocks of a ResNet."""
    stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)
    head = nn.Sequential(net.avgpool, nn.Flatten(), net.fc)
    return [stem, *net.layer1, *net.layer2, *net.layer3, *net.layer4, head]


def plain_units(net: nn.Module) -> Sequence[nn.Module]:
    """The layers of a VGG or an AlexNet. A unit begins with a layer with weights, so its input stays."""
    found: list[list[nn.Module]] = []
    for layer in (*net.features, net.avgpool, nn.Flatten(), *net.classifier):
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            found.append([])
        found[-1].append(layer)
    return [nn.Sequential(*layers) for layers in found]


def loss(output: Tensor | tuple[Tensor, ...], labels: Tensor, auxiliary: float) -> Tensor:
    """The mean loss of logits [images, classes], and the weighted losses of auxiliary ones that follow them."""
    if isinstance(output, Tensor):
        return F.cross_entropy(output, labels)
    first, *others = (F.cross_entropy(logits, labels) for logits in output if logits is not None)
    return first + auxiliary * torch.stack(others).sum() if others else first


def drawn(params: Params, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images [batch_size, 3, size, size] of noise, and their labels [batch_size]."""
    images = torch.randn(params.batch_size, 3, params.image_size, params.image_size, generator=generator)
    return images, torch.randint(params.classes, (params.batch_size,), generator=generator)


def build(params: Params) -> Workload:
    check_workers("convnet", params.workers)

    def batches(share: Share) -> Iterator[tuple[Tensor, Tensor]]:
        if not share.data:
            return forever(partial(drawn, params), share)
        if share.data.reader == "cifar":
            if params.image_size != cifar.SIDE:
                raise ModelError(f"convnet: the images of '{share.data.name}' need an image_size of {cifar.SIDE}")
            return cifar.labelled(share, batch_size=params.batch_size, classes=params.classes)
        read = tfrecord.labelled if share.data.reader == "tfrecord" else image_folder.labelled
        return read(
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
        loss=lambda output, batch: loss(output, batch[1], AUXILIARY.get(params.arch, 0.0)),
        optimiser=Optimiser(optim.SGD, settings),
        units=units_of(net),
    )
