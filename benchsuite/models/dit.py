"""Image generation: a diffusion transformer (DiT) on latents.

Application: generation of images of a class. Paper: Peebles and Xie, "Scalable Diffusion Models with Transformers"
(2022). Data set: none; random latents [4, 32, 32], as an autoencoder makes of images of 256 x 256 pixels, and random
labels. An item is one image.

The blocks are modulated by time and class (adaLN-Zero). The net predicts the noise that was added to a latent at one of
1,000 steps of a linear schedule (Ho et al., 2020), and the loss is the mean squared error. Not part of it: the
prediction of the variance, the average of the weights, and the autoencoder. A tenth of the labels is replaced by "no
class".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.errors import ModelError
from benchsuite.models import Optimiser, Positive, Workload, forever, fusible, seeded_for, supervised

SMALL: dict[str, object] = {"layers": 2, "width": 16, "heads": 2, "latent": 8, "classes": 5, "batch_size": 2}

CHANNELS = 4
STEPS = 1000
FREQUENCIES = 256  # of the time's embedding
NO_CLASS = 0.1  # the probability with which a label is dropped


class Size(NamedTuple):
    """Layers, width and attention heads."""

    layers: int
    width: int
    heads: int


SIZES = {"s": Size(12, 384, 6), "b": Size(12, 768, 12), "l": Size(24, 1024, 16), "xl": Size(28, 1152, 16)}


@dataclass(frozen=True)
class Params:
    """A parameter that is null has the value of `size`. `latent` is the height and width of the latents."""

    size: Literal["s", "b", "l", "xl"] = "xl"
    layers: Positive | None = None
    width: Positive | None = None
    heads: Positive | None = None
    patch: Positive = 2
    latent: Positive = 32
    classes: Positive = 1000
    batch_size: Positive = 128
    lr: float = fusible(1e-4)
    seed: int = fusible(1234)


def size_of(params: Params) -> Size:
    """The size with the numbers that `params` replaces.

    Raises:
        ModelError: the net cannot be built.
    """
    given = {name: getattr(params, name) for name in Size._fields if getattr(params, name) is not None}
    size = SIZES[params.size]._replace(**given)
    if size.width % 4 or size.width % size.heads:
        raise ModelError(f"dit: width {size.width} is no multiple of both 4 and heads {size.heads}")
    if params.latent % params.patch:
        raise ModelError(f"dit: latent {params.latent} is no multiple of patch {params.patch}")
    return size


def waves(numbers: Tensor, width: int) -> Tensor:
    """Cosines and sines of numbers [n] at `width / 2` frequencies from 1 to nearly 1/10,000 -> fp32 [n, width]."""
    half = width // 2
    frequencies = 10_000.0 ** (-torch.arange(half, device=numbers.device, dtype=torch.float32) / half)
    angles = numbers.float()[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=1)


def places(side: int, width: int, device: Any = None) -> Tensor:
    """The embedding of the places of a square, [1, side * side, width]: half of the width for each coordinate."""
    line = waves(torch.arange(side, device=device), width // 2)
    rows, columns = line.repeat_interleave(side, dim=0), line.repeat(side, 1)
    return torch.cat((columns, rows), dim=1)[None]


class Embed(nn.Module):
    """Noisy latents [images, 4, side, side], times and labels [images] -> patches [images, n, width], conditions."""

    def __init__(self, params: Params, size: Size) -> None:
        super().__init__()
        self.patches = nn.Conv2d(CHANNELS, size.width, params.patch, stride=params.patch)
        self.time = nn.Sequential(nn.Linear(FREQUENCIES, size.width), nn.SiLU(), nn.Linear(size.width, size.width))
        # The last row is "no class". To draw values on the meta device, torch would import modules for seconds.
        self.label = nn.Embedding.from_pretrained(torch.empty(params.classes + 1, size.width), freeze=False)
        self.register_buffer(
            "places", torch.empty(1, (params.latent // params.patch) ** 2, size.width), persistent=False
        )

    def forward(self, latents: Tensor, times: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        patches = self.patches(latents).flatten(2).transpose(1, 2)
        conditions = self.time(waves(times, FREQUENCIES)) + self.label(labels)
        return patches + self.places.to(patches.dtype), F.silu(conditions.to(patches.dtype))


class Block(nn.Module):
    """Patches [images, n, width] and conditions [images, width] -> the same: attention and an MLP, both modulated."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, (width,)
        self.modulation = nn.Linear(width, 6 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, conditions: Tensor) -> tuple[Tensor, Tensor]:
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.modulation(conditions)[:, None].chunk(6, dim=2)
        x = x + gate * self.attention(modulated(x, shift, scale))
        hidden = F.gelu(self.up(modulated(x, mlp_shift, mlp_scale)), approximate="tanh")
        return x + mlp_gate * self.down(hidden), conditions

    def attention(self, x: Tensor) -> Tensor:
        """Attention of every patch to every patch."""
        queries, keys, values = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(queries, keys, values)
        return self.out(mixed.transpose(1, 2).flatten(2))


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """The normalised x, scaled by 1 + scale and shifted, in the dtype of x."""
    return (F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift).to(x.dtype)


class Head(nn.Module):
    """Patches [images, n, width] and conditions -> the predicted noise [images, 4, side, side]."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.patch = patch
        self.modulation = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, CHANNELS * patch * patch)

    def forward(self, x: Tensor, conditions: Tensor) -> Tensor:
        shift, scale = self.modulation(conditions)[:, None].chunk(2, dim=2)
        pixels = self.output(modulated(x, shift, scale))
        side = round(pixels.shape[1] ** 0.5)
        squares = pixels.unflatten(2, (CHANNELS, self.patch, self.patch)).unflatten(1, (side, side))
        return squares.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


class Dit(nn.Module):
    """Noisy latents [images, 4, side, side], times and labels int64 [images] -> the noise, as the latents."""

    def __init__(self, params: Params, size: Size) -> None:
        super().__init__()
        self.embed = Embed(params, size)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.head = Head(size.width, params.patch)

    def forward(self, latents: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        x = self.embed(latents, times, labels)
        for block in self.blocks:
            x = block(*x)
        return self.head(*x)

    def units(self) -> Sequence[nn.Module]:
        """The modules in the order of the forward pass."""
        return [self.embed, *self.blocks, self.head]


def filling(params: Params, size: Size) -> Callable[[str, Tensor], None]:
    """The `fill` of the workload, as the paper's code has it.

    Linear layers begin by Glorot, except: modulations and the output begin at 0, so that each block begins as the
    identity, and embeddings are normal with standard deviation 0.02.
    """

    def fill(name: str, tensor: Tensor) -> None:
        *_, owner, last = name.split(".")
        generator = seeded_for(name, params.seed, tensor.device)
        if last == "places":
            tensor.copy_(places(params.latent // params.patch, size.width, tensor.device))
        elif last == "bias" or owner in ("modulation", "output"):
            tensor.zero_()
        elif owner == "label" or ".time." in name:
            tensor.normal_(0, 0.02, generator=generator)
        else:
            matrix = tensor.flatten(1)
            nn.init.xavier_uniform_(matrix, generator=generator)

    return fill


class Noisy(NamedTuple):
    """A batch: latents with noise, the times and labels, and the noise itself."""

    latents: Tensor
    times: Tensor
    labels: Tensor
    noise: Tensor


def drawn(params: Params, generator: torch.Generator) -> Noisy:
    """Random latents with noise of a random step."""
    images, shape = params.batch_size, (params.batch_size, CHANNELS, params.latent, params.latent)
    kept = (1 - torch.linspace(1e-4, 0.02, STEPS, dtype=torch.float64)).cumprod(0).float()
    times = torch.randint(STEPS, (images,), generator=generator)
    clean, noise = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    share = kept[times][:, None, None, None]
    labels = torch.randint(params.classes, (images,), generator=generator)
    dropped = torch.rand(images, generator=generator) < NO_CLASS
    return Noisy(
        share.sqrt() * clean + (1 - share).sqrt() * noise, times, labels.where(~dropped, params.classes), noise
    )


def build(params: Params) -> Workload:
    """The net, its latents and its training.

    Raises:
        ModelError: the net cannot be built.
    """
    size = size_of(params)
    with torch.device("meta"):
        net = Dit(params, size)
    workload = supervised(
        unit="image",
        batches=lambda share: forever(partial(drawn, params), share),
        items=lambda batch: len(batch.labels),
        net=net,
        inputs=lambda batch: batch[:3],
        loss=lambda output, batch: F.mse_loss(output.float(), batch.noise),
        optimiser=Optimiser(optim.AdamW, {"lr": params.lr, "weight_decay": 0.0, "fused": True}),
        units=net.units,
    )
    return replace(workload, fill=filling(params, size), blocks=tuple(net.blocks))
