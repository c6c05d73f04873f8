"""The decoder as a module: embedding, blocks, output; and the first values of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchsuite.errors import ModelError
from benchsuite.models import seeded_for
from benchsuite.models.language.attention import Attention, Cache, HeadNorm, Packed, packed, rotary_table
from benchsuite.models.language.experts import Experts
from benchsuite.models.language.linears import freeze_base, is_adapter, linear
from benchsuite.models.language.mixed import autocast_dtype, computes
from benchsuite.models.language.shapes import Shape

STD = 0.02  # of first weights, as in GPT-2


def norm(shape: Shape) -> nn.Module:
    """The normalisation of the family."""
    return nn.LayerNorm(shape.width) if shape.family == "gpt2" else HeadNorm(shape.width)


class GeluMlp(nn.Module):
    """[..., width] -> [..., width] with one hidden layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = linear(shape, shape.width, shape.hidden, bias=True)
        self.down = linear(shape, shape.hidden, shape.width, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class SwigluMlp(nn.Module):
    """[..., width] -> [..., width]; the gate and the values that it multiplies come from one layer (Shazeer, 2020)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_up = linear(shape, shape.width, 2 * shape.hidden, bias=False)
        self.down = linear(shape, shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """One layer: attention, then an MLP or experts, each added to its normalised input's origin."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm, self.attention = norm(shape), Attention(shape)
        self.mlp_norm = norm(shape)
        if shape.experts:
            self.mlp: nn.Module = Experts(shape)
        else:
            self.mlp = GeluMlp(shape) if shape.family == "gpt2" else SwigluMlp(shape)

    def forward(self, x: Tensor, packing: Packed | None = None, cache: Cache | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), packing, cache)
        return x + self.mlp(self.mlp_norm(x))


def table(rows: int, width: int) -> nn.Embedding:
    """An embedding without values: to draw them on the meta device, torch would import modules for seconds."""
    return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)


class Embed(nn.Module):
    """Words int64 [rows, tokens] -> [rows, tokens, width], in bf16 under autocast: so are the sums of all blocks."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.words = table(shape.vocabulary, shape.width)
        self.places = table(shape.sequence, shape.width) if shape.family == "gpt2" else None
        self.needs_mixed = "fp8" if shape.fp8 else "weights bf16" if shape.weights == "bf16" else ""

    def forward(self, words: Tensor, positions: Tensor | None = None) -> Tensor:
        device = words.device.type
        dtype = autocast_dtype(device)
        if self.needs_mixed and dtype is None and computes(device):
            raise ModelError(f"decoder: {self.needs_mixed} needs the precision bf16; give it to the job")
        x: Tensor = self.words(words)
        if self.places is not None:
            if positions is None:
                positions = torch.arange(words.shape[1], device=words.device)
            x = x + self.places(positions)
        return x if dtype is None else x.to(dtype)


class Head(nn.Module):
    """[rows, tokens, width] -> logits [rows, tokens, vocabulary]; with a tied weight it receives the embedding's."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = norm(shape)
        self.output = None if shape.tied else nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        x = self.norm(x)
        if self.output is not None:
            return self.output(x)
        assert tied is not None
        return F.linear(x, tied)


class Decoder(nn.Module):
    """Words int64 [rows, tokens] -> logits [rows, tokens, vocabulary].

    With packed documents it also receives `starts` int64 [rows, tokens]: where in its row a token's document begins.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed = Embed(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.head = Head(shape)

    def forward(self, words: Tensor, starts: Tensor | None = None) -> Tensor:
        return self.logits(self.hidden(words, starts))

    def hidden(self, words: Tensor, starts: Tensor | None = None) -> Tensor:
        """The last block's output, [rows, tokens, width]."""
        packing = None
        if starts is not None:
            # Flex attention is fast only if it is compiled.
            packing = packed(starts, blocks=starts.is_cuda and torch.compiler.is_compiling())
        x = self.embed(words, packing.positions if packing else None)
        for block in self.blocks:
            x = block(x, packing)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """What the head makes of the last block's output."""
        return self.head(x, self.embed.words.weight if self.head.output is None else None)

    def units(self) -> Sequence[nn.Module]:
        """The modules in the order of the forward pass; for an output that is not tied, and rows of one document."""
        return [self.embed, *self.blocks, self.head]


def on_meta(shape: Shape) -> Decoder:
    """The decoder without values. With adapters all other parameters are frozen."""
    with torch.device("meta"):
        net = Decoder(shape)
    if shape.lora_rank:
        freeze_base(net)
    if shape.weights == "bf16":
        for path, parameter in net.named_parameters():
            if not is_adapter(path):
                parameter.data = parameter.data.bfloat16()
    return net


def filling(shape: Shape, seed: int) -> Callable[[str, Tensor], None]:
    """The `fill` of a workload whose module is a decoder of this shape.

    Weights are normal with standard deviation 0.02, divided by sqrt(2 layers) where a layer's output is added to the
    residual stream (GPT-2). Norms begin at 1, biases and the second matrix of each adapter at 0. The values depend on
    the seed, the name, and the type of device.
    """

    def fill(name: str, tensor: Tensor) -> None:
        *_, owner, last = name.split(".")
        if last == "rotary":
            tensor.copy_(rotary_table(tensor.shape[1], shape.head_width, shape.theta, tensor.device))
        elif "norm" in owner and last == "weight":
            tensor.fill_(1)
        elif last in ("bias", "lora_b"):
            tensor.zero_()
        else:
            adds = (owner in ("out", "down") and last == "weight") or last == "down"
            std = shape.width**-0.5 if last == "lora_a" else STD / (2 * shape.layers) ** 0.5 if adds else STD
            tensor.normal_(0, std, generator=seeded_for(name, seed, tensor.device))

    return fill
