"""The linear layers of a decoder's blocks: plain, in fp8, or frozen with a trained adapter."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchsuite.models.language.fp8 import Fp8Linear
from benchsuite.models.language.mixed import computes
from benchsuite.models.language.shapes import Shape

SCALE = 2.0  # alpha / rank: what an adapter adds is multiplied by it


def linear(shape: Shape, inputs: int, outputs: int, *, bias: bool) -> nn.Module:
    """The layer that the shape asks for."""
    if shape.fp8:
        return Fp8Linear(inputs, outputs, bias=bias)
    if shape.lora_rank:
        return LoraLinear(inputs, outputs, shape.lora_rank, bias=bias)
    return nn.Linear(inputs, outputs, bias=bias)


class LoraLinear(nn.Linear):
    """A frozen layer, plus `SCALE` times a trained product of low rank (Hu et al., 2021).

    The product begins at 0, so that the layer begins as its base.
    """

    def __init__(self, inputs: int, outputs: int, rank: int, *, bias: bool) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.lora_a = nn.Parameter(torch.empty(rank, inputs))
        self.lora_b = nn.Parameter(torch.empty(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.lora_a, self.lora_b
        if not computes(x.device.type):  # there is no autocast, which would bring both to the dtype of the base
            a, b = a.to(x.dtype), b.to(x.dtype)
        return super().forward(x) + F.linear(F.linear(x, a), b) * SCALE


def freeze_base(net: nn.Module) -> None:
    """Freeze all parameters but those of adapters."""
    for path, parameter in net.named_parameters():
        parameter.requires_grad_(is_adapter(path))


def is_adapter(path: str) -> bool:
    """Is this the name of an adapter's parameter?"""
    return path.rpartition(".")[2] in ("lora_a", "lora_b")
