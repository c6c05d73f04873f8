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
# An fp32 product takes about this many times as long as one in bf16 (H200, 8192: 51.2 and 654 TFLOP/s).
_FP32_TAKES = 12


@dataclass(frozen=True)
class Sizes:
    """How large the works are.

    Attributes:
        matrix: rows and columns of the matrices.
        products: bf16 products in a row, of which the last is the result; they load the device.
        sequence: positions of the attention, which has 16 heads of width 64.
        images: images in the batch of the training, each of 32 x 32.
    """

    matrix: int
    products: int
    sequence: int
    images: int

    @property
    def fp32_products(self) -> int:
        """The fp32 products in a row: on recent GPUs they take about as long together as those in bf16."""
        return max(1, self.products // _FP32_TAKES)


@dataclass(frozen=True)
class Inputs:
    """The inputs of all works, drawn once on the CPU, so that they are the same for each device."""

    matrices: tuple[Tensor, Tensor]
    attention: tuple[Tensor, Tensor, Tensor]
    images: Tensor
    labels: Tensor
    seed: int


def drawn(sizes: Sizes, seed: int) -> Inputs:
    """Random inputs of these sizes."""
    numbers = [seeded(seed, stream) for stream in range(7)]
    matrix, heads = (sizes.matrix, sizes.matrix), (1, 16, sizes.sequence, 64)
    return Inputs(
        matrices=(torch.randn(matrix, generator=numbers[0]), torch.randn(matrix, generator=numbers[1])),
        attention=(
            torch.randn(heads, generator=numbers[2]),
            torch.randn(heads, generator=numbers[3]),
            torch.randn(heads, generator=numbers[4]),
        ),
        images=torch.randn(sizes.images, 3, 32, 32, generator=numbers[5]),
        labels=torch.randint(10, (sizes.images,), generator=numbers[6]),
        seed=seed,
    )


def works_on(device: torch.device, sizes: Sizes, inputs: Inputs) -> dict[str, Work]:
    """The works by name, with their inputs on the device."""
    return {
        "matmul_bf16": products(device, inputs, torch.bfloat16, sizes.products),
        "matmul_fp32": products(device, inputs, torch.float32, sizes.fp32_products),
        "attention": attention(device, inputs),
        "training": training(device, inputs),
    }


def products(device: torch.device, inputs: Inputs, dtype: torch.dtype, times: int) -> Work:
    """The product of two random matrices in a format, `times` times."""
    a, b = (matrix.to(device, dtype) for matrix in inputs.matrices)
    out = torch.empty_like(a)

    def work() -> Tensor:
        for _ in range(times):
            torch.mm(a, b, out=out)
        return out

    return work


def attention(device: torch.device, inputs: Inputs) -> Work:
    """The forward pass of causal attention in bf16; its backward pass need not be the same twice."""
    query, key, value = (one.to(device, torch.bfloat16) for one in inputs.attention)

    def work() -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).contiguous()

    return work


def network() -> nn.Sequential:
    """A convolutional network for images [3, 32, 32], without an operation whose gradient adds in an open order."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 10))


def training(device: torch.device, inputs: Inputs) -> Work:
    """Ten steps of SGD from the same weights on the same batch; the result holds all weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(inputs.seed)
        net = network()
    net.to(device)
    begin = [weight.detach().clone() for weight in net.state_dict().values()]
    images, labels = inputs.images.to(device), inputs.labels.to(device)

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
