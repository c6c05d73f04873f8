"""Style transfer: a net learns to repaint photographs in one image's style.

Application: fast neural style, after the `fast_neural_style` example of PyTorch: a net of residual blocks is trained,
and a frozen VGG-16 (up to relu4_3) says how near its images are to the photograph and to the style. Paper: Johnson,
Alahi and Fei-Fei, "Perceptual Losses for Real-Time Style Transfer and Super-Resolution" (2016). Data set: with `data`,
a folder of images for each class (`fake_imagenet`), made smaller and cut to a square; else generated images, held in
memory. An item is one image.

The frozen net's weights and the style image are generated from the seed, nothing is downloaded: the work of a step is
the same, but the result is not a useful picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torchvision.transforms import v2

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Carry, Nets, Optimiser, Positive, Share, Update, Workload, forever, fusible
from benchsuite.models.readers import image_folder
from benchsuite.models.readers.images import check_workers, pixels

READS = ("image_folder",)

SMALL: dict[str, object] = {"batch_size": 2, "image_size": 16, "style_size": 16, "workers": 0}


@dataclass(frozen=True)
class Params:
    """`workers`: processes that read a data set; with 0 the training process reads it."""

    batch_size: Positive = 128
    image_size: Positive = 256
    style_size: Positive = 256
    content_weight: float = 1e5
    style_weight: float = 1e10
    workers: int = 8
    lr: float = fusible(1e-3)
    seed: int = fusible(1234)


def conv(channels: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, outputs, kernel, stride, padding=kernel // 2, padding_mode="reflect")


def layer(channels: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    norm = nn.InstanceNorm2d(outputs, affine=True)
    return nn.Sequential(conv(channels, outputs, kernel, stride), norm, nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.change = nn.Sequential(
            layer(channels, channels, 3), conv(channels, channels, 3), nn.InstanceNorm2d(channels, affine=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.change(x)


def transformer_net() -> nn.Sequential:
    """[images, 3, size, size] -> the same shape; pixels from 0 to 255."""
    return nn.Sequential(
        *(layer(3, 32, 9), layer(32, 64, 3, stride=2), layer(64, 128, 3, stride=2)),
        *(Residual(128) for _ in range(5)),
        *(nn.Upsample(scale_factor=2), layer(128, 64, 3), nn.Upsample(scale_factor=2), layer(64, 32, 3)),
        conv(32, 3, 9),
    )


class Vgg(nn.Module):
    """Pixels [images, 3, size, size] -> outputs of VGG-16 at relu1_2, relu2_2, relu3_3 and relu4_3; frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList()
        channels = 3
        for convs, outputs in ((2, 64), (2, 128), (3, 256), (3, 512)):
            part = nn.Sequential(*([nn.MaxPool2d(2)] if self.parts else []))
            for _ in range(convs):
                part.extend((nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU(inplace=True)))
                nn.init.kaiming_normal_(part[-2].weight, nonlinearity="relu")
                nn.init.zeros_(part[-2].bias)
                channels = outputs
            self.parts.append(part)
        self.register_buffer("mean", 255 * torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("deviation", 255 * torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> list[Tensor]:
        features = [(images - self.mean) / self.deviation]
        for part in self.parts:
            features.append(part(features[-1]))
        return features[1:]


class Style(nn.Module):
    """Features of VGG -> distance of their Gram matrices to one style's: mean over images, sum over layers.

    Computed in full precision: the sums are too large for fp16 and, times the style's weight, too fine for bf16.
    """

    def __init__(self, features: Sequence[Tensor]) -> None:
        super().__init__()
        for index, one in enumerate(features):
            self.register_buffer(f"gram{index}", gram(one))

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        targets = list(self.buffers())
        with torch.autocast("cuda" if features[0].is_cuda else "cpu", enabled=False):
            grams = [gram(one.to(target.dtype)) for one, target in zip(features, targets, strict=True)]
        return torch.stack([(one - target).square().mean() for one, target in zip(grams, targets, strict=True)]).sum()


def gram(features: Tensor) -> Tensor:
    """[images, channels, height, width] -> products of channels over their number [images, channels, channels]."""
    flat = features.flatten(2)
    return flat @ flat.transpose(1, 2) / flat[0].numel()


def photographs(count: int, size: int, generator: torch.Generator | None = None) -> Tensor:
    """[count, 3, size, size], pixels from 0 to 255: patches of colour under noise."""
    patches = F.interpolate(torch.rand(count, 3, 8, 8, generator=generator), size=(size, size), mode="bilinear")
    return 200 * patches + 55 * torch.rand(count, 3, size, size, generator=generator)


def squared(size: int) -> v2.Compose:
    """A PIL image -> [3, size, size], pixels from 0 to 255."""
    return pixels(v2.Resize(size, antialias=True), v2.CenterCrop(size), v2.ToDtype(torch.float32))


def build(params: Params) -> Workload:
    check_workers("neural_style", params.workers)
    if params.image_size % 4 or min(params.image_size, params.style_size) < 16:
        sizes = f"image_size {params.image_size}, style_size {params.style_size}"
        raise ModelError(f"neural_style: {sizes}: image_size must be a multiple of 4, and both 16 or more")

    def make(generator: torch.Generator) -> Tensor:
        return photographs(params.batch_size, params.image_size, generator)

    def batches(share: Share) -> Iterator[Tensor]:
        if not share.data:
            return forever(make, share)
        transform = squared(params.image_size)
        return image_folder.pictures(share, transform, batch_size=params.batch_size, workers=params.workers)

    def loss(nets: Nets, images: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        seen = nets["vgg"](nets["net"](images))
        content = F.mse_loss(seen[1], nets["vgg"](images)[1])
        return params.content_weight * content + params.style_weight * nets["style"](seen), None

    net, vgg = transformer_net(), Vgg()
    return Workload(
        unit="image",
        batches=batches,
        items=len,
        modules={"net": net, "vgg": vgg, "style": Style(vgg(photographs(1, params.style_size)))},
        updates=(Update("net", loss, Optimiser(optim.Adam, {"lr": params.lr})),),
    )
