"""The shapes of known language models, and what a shape must satisfy."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from benchsuite.errors import ModelError

Family = Literal["gpt2", "llama"]
Weights = Literal["fp32", "bf16"]
Kernels = Literal["auto", "flash", "cudnn"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder.

    Attributes:
        family: `gpt2` has LayerNorm, GELU (tanh), learned positions and biases; `llama` has RMSNorm, SwiGLU, rotary
            positions and no bias.
        hidden: units of the MLP between its layers, or of each expert.
        head_width: units of one attention head.
        experts: of each layer; with 0 a layer has one MLP, which all tokens use.
        theta: base of the rotary frequencies.
        qk_norm: RMSNorm over the units of each query and key head.
        tied: the output's weight is the embedding's.
        weights: dtype of all parameters but adapters, which are always in fp32.
        attention: the kernels of torch's attention; `auto` leaves the choice to torch.
        documents: packed in each row of a batch.
        fp8: the linear layers of the blocks compute in fp8.
        lora_rank: over 0, only adapters of this rank are trained.
    """

    family: Family = "llama"
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    sequence: int
    batch_size: int
    experts: int = 0
    experts_per_token: int = 0
    theta: float = 500_000.0
    qk_norm: bool = False
    tied: bool = True
    weights: Weights = "fp32"
    attention: Kernels = "auto"
    documents: int = 1
    fp8: bool = False
    lora_rank: int = 0


# GPT-2 of OpenAI, its vocabulary of 50,257 padded to a multiple of 64 as nanoGPT and llm.c do; Llama-3.2-1B and
# Llama-3.1-8B of Meta; 8 of the 48 layers of Qwen3-30B-A3B, whose 5.6 billion weights fit on one GPU in bf16 only.
SIZES = {
    "gpt_124m": Shape(
        family="gpt2", layers=12, width=768, heads=12, kv_heads=12, head_width=64, hidden=3072,
        vocabulary=50_304, sequence=1024, batch_size=64,
    ),
    "gpt_1558m": Shape(
        family="gpt2", layers=48, width=1600, heads=25, kv_heads=25, head_width=64, hidden=6400,
        vocabulary=50_304, sequence=1024, batch_size=16,
    ),
    "llama_1b": Shape(
        layers=16, width=2048, heads=32, kv_heads=8, head_width=64, hidden=8192,
        vocabulary=128_256, sequence=4096, batch_size=4,
    ),
    "llama_8b": Shape(
        layers=32, width=4096, heads=32, kv_heads=8, head_width=128, hidden=14_336,
        vocabulary=128_256, sequence=8192, batch_size=2, tied=False,
    ),
    "moe_small": Shape(
        layers=8, width=2048, heads=32, kv_heads=4, head_width=128, hidden=768,
        vocabulary=151_936, sequence=4096, batch_size=2, experts=128, experts_per_token=8,
        theta=1_000_000.0, qk_norm=True, tied=False, weights="bf16",
    ),
}  # fmt: skip


def shape_of(size: str, params: Any) -> Shape:
    """The shape of a size with those fields of `params` that have the name of a field of the shape and are not None.

    Raises:
        ModelError: the shape cannot be built.
    """
    names = {one.name for one in fields(Shape)}
    given = {one.name: getattr(params, one.name) for one in fields(params) if one.name in names}
    shape = replace(SIZES[size], **{name: value for name, value in given.items() if value is not None})
    for broken, message in _rules(shape):
        if broken:
            raise ModelError(message)
    return shape


def _rules(shape: Shape) -> list[tuple[bool, str]]:
    """For each rule: whether the shape breaks it, and the message that says so."""
    llama = shape.family == "llama"
    columns = (shape.width, shape.heads * shape.head_width, shape.kv_heads * shape.head_width, shape.hidden)
    extras = [name for name, on in (("fp8", shape.fp8), ("lora_rank", shape.lora_rank)) if on]
    return [
        (shape.heads % shape.kv_heads > 0, f"heads {shape.heads} is no multiple of kv_heads {shape.kv_heads}"),
        (llama and shape.head_width % 2 > 0, f"head_width {shape.head_width}: rotary positions need an even one"),
        (min(shape.experts, shape.lora_rank) < 0, "experts and lora_rank are 0 or more"),
        (
            shape.experts > 0 and not 0 < shape.experts_per_token <= shape.experts,
            f"experts_per_token {shape.experts_per_token}: give one from 1 to experts, {shape.experts}",
        ),
        (shape.experts > 0 and not llama, "experts need family llama"),
        (bool(shape.experts and extras), f"{' and '.join(extras)}: experts have none; leave one of them out"),
        (len(extras) == 2, "fp8 and lora_rank: an adapter has no fp8 form; leave one of them out"),
        (
            not 0 < shape.documents <= shape.sequence,
            f"documents {shape.documents}: give one from 1 to sequence, {shape.sequence}",
        ),
        (
            shape.documents > 1 and shape.attention != "auto",
            f"attention {shape.attention}: its kernels have no mask for packed documents; give auto",
        ),
        (
            shape.fp8 and any(size % 16 for size in (*columns, shape.batch_size * shape.sequence)),
            "fp8: width, hidden, the widths of all heads together, and the tokens of a batch are multiples of 16",
        ),
    ]
