"""Works whose results have the same bits on each healthy device of one model: nothing random, one order of adding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.models import seeded

# Does the work once; the result is a contiguous tensor, which the next call may overwrite.
Work: TypeAlias = Callable[[], Tensor]

STEPS, LR = 10, 0.01


@dataclass(frozen=True)
class Sizes:
    """How large the works are.

    Attributes:
        matrix: rows and columns of the matrices.
        products: products in a row, of which the last is the result; they load the device.
        sequence: positions of the attention, which has 16 heads of width 64.
        images: images in the batch of the training, each of 32 x 32.
    """

    matrix: int
    products: int
    sequence: int
    images: int


def works_on(device: torch.device, sizes: Sizes, seed: int) -> dict[str, Work]:
    """The works by name. Their inputs are drawn on the CPU, so that they are the same for each device."""
    return {
        "matmul_bf16": products(device, sizes, seed, torch.bfloat16),
        "matmul_fp32": products(device, sizes, seed, torch.float32),
        "attention": attention(device, sizes, seed),
        "training": training(device, sizes, seed),
    }


def products(device: torch.device, sizes: Sizes, seed: int, dtype: torch.dtype) -> Work:
    """The product of two random matrices in a format, `sizes.products` times."""
    a, b = (
        torch.randn(sizes.matrix, sizes.matrix, generator=seeded(seed, stream)).to(device, dtype) for stream in (0, 1)
    )
    out = torch.empty_like(a)

    def work() -> Tensor:
        for _ in range(sizes.products):
            torch.mm(a, b, out=out)
        return out

    return work


def attention(device: torch.device, sizes: Sizes, seed: int) -> Work:
    """The forward pass of causal attention in bf16; its backward pass need not be the same twice."""
    shape = (1, 16, sizes.sequence, 64)
    query, key, value = (
        torch.randn(shape, generator=seeded(seed, stream)).to(device, torch.bfloat16) for stream in (2, 3, 4)
    )

    def work() -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).contiguous()

    return work


def network() -> nn.Sequential:
    """A convolutional network for images [3, 32, 32], without an operation whose gradient adds in an open order."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 10))


def training(device: torch.device, sizes: Sizes, seed: int) -> Work:
    """Ten steps of SGD from the same weights on the same batch; the result holds all weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = network()
    net.to(device)
    begin = [weight.detach().clone() for weight in net.state_dict().values()]
    images = torch.randn(sizes.images, 3, 32, 32, generator=seeded(seed, 5)).to(device)
    labels = torch.randint(10, (sizes.images,), generator=seeded(seed, 6)).to(device)

    def work() -> Tensor:
        with torch.no_grad():
            for weight, first in zip(net.state_dict().values(), begin, strict=True):
                weight.copy_(first)
        optimiser = optim.SGD(net.parameters(), lr=LR, momentum=0.9)
        for _ in range(STEPS):
            loss = F.cross_entropy(net(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return torch.cat([weight.detach().flatten() for weight in net.parameters()])

    return work
