"""Generative adversarial network: DCGAN draws images of 64x64.

Application: image generation, after the `dcgan` example of PyTorch: a generator of five transposed convolutions and a
discriminator of five convolutions, trained in turn. Paper: Radford, Metz and Chintala, "Unsupervised Representation
Learning with Deep Convolutional Generative Adversarial Networks" (2015). Data set: with `data`, a folder of images for
each class (`fake_imagenet`), made smaller and cut to 64x64; else generated images of that size, held in memory. An item
is one real image; a step draws one image, and makes one update of each net, for it.

The generator learns first and hands its images on to the discriminator (the example does it the other way round). The
discriminator gives logits, so that the loss can be computed in half precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torchvision.transforms import v2

from benchsuite.models import Batch, Carry, Nets, Optimiser, Positive, Share, Update, Workload, forever, fusible
from benchsuite.models.readers import image_folder
from benchsuite.models.readers.images import check_workers, pixels

READS = ("image_folder",)

SMALL: dict[str, object] = {"batch_size": 2, "nz": 8, "ngf": 8, "ndf": 8, "workers": 0}

SIZE, CHANNELS = 64, 3


@dataclass(frozen=True)
class Params:
    """`workers`: processes that read a data set; with 0 the training process reads it."""

    batch_size: Positive = 128
    nz: Positive = 100
    ngf: Positive = 64
    ndf: Positive = 64
    lr: float = fusible(2e-4)
    beta1: float = fusible(0.5)
    workers: int = 8
    seed: int = fusible(1234)


def generator_net(nz: int, width: int) -> nn.Sequential:
    """Noise [images, nz, 1, 1] -> images [images, 3, 64, 64] between -1 and 1."""
    layers: list[nn.Module] = [
        nn.ConvTranspose2d(nz, 8 * width, 4, bias=False),
        nn.BatchNorm2d(8 * width),
        nn.ReLU(inplace=True),
    ]
    for times in (8, 4, 2):
        layers += [
            nn.ConvTranspose2d(times * width, times // 2 * width, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(times // 2 * width),
            nn.ReLU(inplace=True),
        ]
    last = nn.ConvTranspose2d(width, CHANNELS, 4, stride=2, padding=1, bias=False)
    return nn.Sequential(*layers, last, nn.Tanh())


def discriminator_net(width: int) -> nn.Sequential:
    """Images [images, 3, 64, 64] -> logits [images] of being real."""
    layers: list[nn.Module] = [
        nn.Conv2d(CHANNELS, width, 4, stride=2, padding=1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
    ]
    for times in (1, 2, 4):
        layers += [
            nn.Conv2d(times * width, 2 * times * width, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * times * width),
            nn.LeakyReLU(0.2, inplace=True),
        ]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, bias=False), nn.Flatten(0))


def initialise(layer: nn.Module) -> None:
    """The paper's: weights from N(0, 0.02), those of batch norm from N(1, 0.02)."""
    if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(layer.weight, 0.0, 0.02)
    elif isinstance(layer, nn.BatchNorm2d):
        nn.init.normal_(layer.weight, 1.0, 0.02)


def judged(logits: Tensor, real: bool) -> Tensor:
    """The mean loss of a discriminator that should judge these images real, or drawn."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def reduced() -> v2.Compose:
    """A PIL image -> [3, 64, 64] between -1 and 1."""
    return pixels(
        v2.Resize(SIZE, antialias=True),
        v2.CenterCrop(SIZE),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5] * CHANNELS, [0.5] * CHANNELS),
    )


def build(params: Params) -> Workload:
    check_workers("dcgan", params.workers)

    def make(generator: torch.Generator) -> Tensor:
        return 2 * torch.rand(params.batch_size, CHANNELS, SIZE, SIZE, generator=generator) - 1

    def batches(share: Share) -> Iterator[Tensor]:
        if not share.data:
            return forever(make, share)
        return image_folder.pictures(share, reduced(), batch_size=params.batch_size, workers=params.workers)

    def fool(nets: Nets, images: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        drawn = nets["generator"](torch.randn(len(images), params.nz, 1, 1, device=images.device))
        return judged(nets["discriminator"](drawn), real=True), drawn

    def tell(nets: Nets, images: Batch, drawn: Carry) -> tuple[Tensor, Carry]:
        discriminator = nets["discriminator"]  # two calls: real and drawn images have separate batch statistics
        return judged(discriminator(images), real=True) + judged(discriminator(drawn), real=False), None

    adam = Optimiser(optim.Adam, {"lr": params.lr, "betas": (params.beta1, 0.999)})
    return Workload(
        unit="image",
        batches=batches,
        items=len,
        modules={
            "generator": generator_net(params.nz, params.ngf).apply(initialise),
            "discriminator": discriminator_net(params.ndf).apply(initialise),
        },
        updates=(Update("generator", fool, adam), Update("discriminator", tell, adam)),
    )
