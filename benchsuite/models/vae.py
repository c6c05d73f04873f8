"""Variational auto-encoder of digits: two small fully connected nets.

Application: generative modelling, after the `vae` example of PyTorch: 784 pixels to 400 units to 20 latent dimensions
and back. Paper: Kingma and Welling, "Auto-Encoding Variational Bayes" (2013). Data set: with `data`, MNIST's training
images; else generated ones of their shape. Either is held in memory. An item is one image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.models import Optimiser, Positive, Share, Workload, forever, fusible, supervised
from benchsuite.models.readers import idx, pinned, rows

READS = ("idx",)
SMALL: dict[str, object] = {"batch_size": 4}

SIDE, HIDDEN, LATENT = 28, 400, 20
PIXELS = SIDE * SIDE


@dataclass(frozen=True)
class Params:
    batch_size: Positive = 128
    lr: float = fusible(1e-3)
    seed: int = fusible(1234)


class Vae(nn.Module):
    """[images, 1, 28, 28] -> logits of the pixels [images, 784], mean and log variance [images, 20] of the latent."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(PIXELS, HIDDEN)
        self.mean = nn.Linear(HIDDEN, LATENT)
        self.log_variance = nn.Linear(HIDDEN, LATENT)
        self.decode = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = F.relu(self.encode(images.flatten(1)))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        latent = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decode(latent), mean, log_variance


def loss(outputs: tuple[Tensor, Tensor, Tensor], images: Tensor) -> Tensor:
    """The negative evidence lower bound, a mean over the images; its second term is the paper's appendix B."""
    logits, mean, log_variance = outputs
    reconstruction = F.binary_cross_entropy_with_logits(logits, images.flatten(1), reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.square() - log_variance.exp())
    return (reconstruction + divergence) / len(images)


def batches_of(params: Params, share: Share) -> Iterator[Tensor]:
    """Images [batch_size, 1, 28, 28], from 0 to 1; the last batch of a pass over a data set may be short.

    Raises:
        ModelError: the data set cannot be read, or is smaller than a batch.
    """

    def make(generator: torch.Generator) -> Tensor:
        return torch.rand(params.batch_size, 1, SIDE, SIDE, generator=generator)

    if share.data is None:
        return forever(make, share)
    images = idx.images(share.data, SIDE, SIDE).unsqueeze(1)
    return pinned(images[of].float() / 255 for of in rows(len(images), params.batch_size, share, "image"))


def build(params: Params) -> Workload:
    return supervised(
        unit="image",
        batches=lambda share: batches_of(params, share),
        items=len,
        net=Vae(),
        inputs=lambda images: (images,),
        loss=loss,
        optimiser=Optimiser(optim.Adam, {"lr": params.lr}),
    )
