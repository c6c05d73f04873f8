"""Wasserstein GAN: a generator and a critic with clipped weights, 64x64.

Application: image generation; a critic that takes five steps for each one of the generator, its weights clipped after
each. Paper: Arjovsky, Chintala and Bottou, "Wasserstein GAN" (2017), algorithm 1 with its settings; both nets are those
of `dcgan`, as in the paper. Data set: with `data`, a folder of images for each class (`lsun_bedroom`), made smaller and
cut to 64x64; else generated images of that size, held in memory. An item is one real image: a step takes `critic_steps`
batches of them, for as many updates of the critic and one of the generator.

Deviations: the number of the critic's steps is always `critic_steps`; the authors' program takes 100 for each of the
first 25 steps of the generator, and for every 500th later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn, optim

from benchsuite.models import Batch, Carry, Nets, Optimiser, Positive, Share, Update, Workload, forever, fusible
from benchsuite.models.dcgan import CHANNELS, SIZE, discriminator_net, generator_net, initialise, reduced
from benchsuite.models.readers import image_folder
from benchsuite.models.readers.images import check_workers

READS = ("image_folder",)

SMALL: dict[str, object] = {"batch_size": 2, "critic_steps": 2, "nz": 8, "ngf": 8, "ndf": 8, "workers": 0}


@dataclass(frozen=True)
class Params:
    """`batch_size`: the real images of one of the critic's steps. `clip`: the largest weight of the critic.

    `workers`: processes that read a data set; with 0 the training process reads it.
    """

    batch_size: Positive = 64
    critic_steps: Positive = 5
    clip: float = 0.01
    nz: Positive = 100
    ngf: Positive = 64
    ndf: Positive = 64
    lr: float = fusible(5e-5)
    workers: int = 8
    seed: int = fusible(1234)


def build(params: Params) -> Workload:
    check_workers("wgan", params.workers)
    count = params.batch_size * params.critic_steps

    def make(generator: torch.Generator) -> Tensor:
        return 2 * torch.rand(count, CHANNELS, SIZE, SIZE, generator=generator) - 1

    def batches(share: Share) -> Iterator[Tensor]:
        if not share.data:
            return forever(make, share)
        return image_folder.pictures(share, reduced(), batch_size=count, workers=params.workers)

    def noise(images: int, device: torch.device) -> Tensor:
        return torch.randn(images, params.nz, 1, 1, device=device)

    def distance(nets: Nets, images: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        with torch.no_grad():
            drawn = nets["generator"](noise(len(images), images.device))
        critic = nets["critic"]  # two calls: real and drawn images have separate batch statistics
        return critic(drawn).mean() - critic(images).mean(), None

    def approach(nets: Nets, images: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        drawn = nets["generator"](noise(max(1, len(images) // params.critic_steps), images.device))
        return -nets["critic"](drawn).mean(), None

    def clip(critic: nn.Module) -> None:
        for weights in critic.parameters():
            weights.clamp_(-params.clip, params.clip)

    rmsprop = Optimiser(optim.RMSprop, {"lr": params.lr})
    return Workload(
        unit="image",
        batches=batches,
        items=len,
        modules={
            "generator": generator_net(params.nz, params.ngf).apply(initialise),
            "critic": discriminator_net(params.ndf).apply(initialise),
        },
        updates=(
            Update("critic", distance, rmsprop, times=params.critic_steps, after=clip),
            Update("generator", approach, rmsprop),
        ),
    )
