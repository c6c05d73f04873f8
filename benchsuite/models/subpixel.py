"""Super-resolution: ESPCN makes an image larger by sub-pixel convolution.

Application: image super-resolution, after the `super_resolution` example of PyTorch: four convolutions on the small
image, the last of which gives every pixel of the large one. Paper: Shi et al., "Real-Time Single Image and Video
Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural Network" (2016). Data set: with `data`, photographs
(`bsds500`; luma of a `crop` x `crop` centre, and the same made smaller); else generated images of that kind, held in
memory. An item is one image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.errors import ModelError
from benchsuite.models import Optimiser, Positive, Share, Workload, forever, fusible, supervised
from benchsuite.models.readers import bsds
from benchsuite.models.readers.images import check_workers

READS = ("bsds",)
SMALL: dict[str, object] = {"batch_size": 2, "crop": 32, "workers": 0}


@dataclass(frozen=True)
class Params:
    """`workers`: processes that read a data set; with 0 the training process reads it."""

    batch_size: Positive = 64
    upscale_factor: Positive = 2
    crop: Positive = 256
    workers: int = 8
    lr: float = fusible(1e-3)
    seed: int = fusible(1234)


def espcn(upscale_factor: int) -> nn.Sequential:
    """[images, 1, height, width] -> [images, 1, factor * height, factor * width], as a sequence of four parts."""

    def hidden(channels: int, outputs: int, kernel: int) -> nn.Sequential:
        conv = nn.Conv2d(channels, outputs, kernel, padding=kernel // 2)
        nn.init.orthogonal_(conv.weight, nn.init.calculate_gain("relu"))
        return nn.Sequential(conv, nn.ReLU(inplace=True))

    last = nn.Conv2d(32, upscale_factor**2, 3, padding=1)
    nn.init.orthogonal_(last.weight)
    shuffled = nn.Sequential(last, nn.PixelShuffle(upscale_factor))
    return nn.Sequential(hidden(1, 64, 5), hidden(64, 64, 3), hidden(64, 32, 3), shuffled)


def luma(count: int, size: int, generator: torch.Generator) -> Tensor:
    """[count, 1, size, size] between 0 and 1: structure at several scales, as photographs have it."""
    images = torch.full((count, 1, size, size), 0.5)
    for cells in (2, 8, 32, 128):
        noise = torch.randn(count, 1, cells, cells, generator=generator)
        images += 0.3 / cells**0.5 * F.interpolate(noise, size=(size, size), mode="bicubic", align_corners=False)
    return images.clamp_(0, 1)


def build(params: Params) -> Workload:
    check_workers("subpixel", params.workers)
    small = params.crop // params.upscale_factor
    large = small * params.upscale_factor
    if not small:
        raise ModelError(f"subpixel: a crop of {params.crop} is too small for upscale_factor {params.upscale_factor}")

    def make(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Small images and the large ones that they were made from."""
        images = luma(params.batch_size, large, generator)
        return F.interpolate(images, size=(small, small), mode="bilinear", antialias=True), images

    def batches(share: Share) -> Iterator[tuple[Tensor, Tensor]]:
        if not share.data:
            return forever(make, share)
        return bsds.pairs(share, small=small, large=large, batch_size=params.batch_size, workers=params.workers)

    net = espcn(params.upscale_factor)
    return supervised(
        unit="image",
        batches=batches,
        items=lambda batch: len(batch[0]),
        net=net,
        inputs=lambda batch: (batch[0],),
        loss=lambda output, batch: F.mse_loss(output, batch[1]),
        optimiser=Optimiser(optim.Adam, {"lr": params.lr}),
        units=lambda: list(net),
    )
