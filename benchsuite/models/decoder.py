"""Language model: a decoder of GPT-2's or Llama's kind.

Application: pretraining of language models, and their adaptation with LoRA. Paper: Radford et al., "Language Models are
Unsupervised Multitask Learners" (2019), and Dubey et al., "The Llama 3 Herd of Models" (2024). Data set: none; random
tokens, all with the same probability. An item is one token.

`size` names a known shape, and each further parameter replaces one of its numbers. Weights start random. The optimiser
is AdamW, the gradients' norm is clipped.

- With `documents` over 1 each row holds that many documents, cut at random places. Positions begin anew with each
  document, and no token sees another document. A GPU uses flex attention if the job compiles, and else a dense mask.
  All tokens count, and the loss is over all of them.
- With `experts` each layer has them in place of its MLP. A token's experts are drawn at random, so that their load is
  balanced.
- With `lora_rank` all weights are frozen, and an adapter of this rank is trained in each linear layer of the blocks.
- With `fp8` the linear layers of the blocks multiply in fp8: their inputs and weights in e4m3, their gradients in e5m2,
  with one scale for each tensor. Embedding, attention, norms and output are not in fp8.
- With `weights` bf16 the parameters are stored in bf16, adapters excepted. The optimiser's state has the same dtype.
- It can be cut into stages if `tied` is false and rows hold one document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, optim

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Optimiser, Positive, Share, Workload, forever, fusible, supervised
from benchsuite.models.language.experts import check_experts
from benchsuite.models.language.fp8 import check_fp8
from benchsuite.models.language.network import filling, on_meta
from benchsuite.models.language.shapes import Shape, shape_of

SMALL: dict[str, object] = {
    "size": "llama_1b",
    "layers": 2,
    "width": 16,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 4,
    "hidden": 24,
    "vocabulary": 40,
    "sequence": 12,
    "batch_size": 2,
    "tied": False,
}


@dataclass(frozen=True)
class Params:
    """A parameter that is null has the value of `size`."""

    size: Literal["gpt_124m", "gpt_1558m", "llama_1b", "llama_8b", "moe_small"] = "gpt_124m"
    family: Literal["gpt2", "llama"] | None = None
    layers: Positive | None = None
    width: Positive | None = None
    heads: Positive | None = None
    kv_heads: Positive | None = None
    head_width: Positive | None = None
    hidden: Positive | None = None
    vocabulary: Positive | None = None
    sequence: Positive | None = None
    batch_size: Positive | None = None
    experts: int | None = None
    experts_per_token: Positive | None = None
    tied: bool | None = None
    weights: Literal["fp32", "bf16"] | None = None
    attention: Literal["auto", "flash", "cudnn"] = "auto"
    documents: Positive = 1
    fp8: bool = False
    lora_rank: int = 0
    clip: float | None = fusible(1.0)
    weight_decay: float = fusible(0.1)
    lr: float = fusible(3e-4)
    seed: int = fusible(1234)


def drawn(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Words and the words that follow them; with several documents also `starts`; each int64 [rows, tokens]."""
    rows, tokens = shape.batch_size, shape.sequence
    words = torch.randint(shape.vocabulary, (rows, tokens + 1), generator=generator)
    both = (words[:, :-1].contiguous(), words[:, 1:].contiguous())
    if shape.documents == 1:
        return both
    begins = torch.zeros(rows, tokens, dtype=torch.bool)
    cuts = torch.rand(rows, tokens - 1, generator=generator).topk(shape.documents - 1, dim=1).indices + 1
    begins.scatter_(1, cuts, True)
    starts = torch.where(begins, torch.arange(tokens), 0).cummax(dim=1).values
    return *both, starts


def batches_of(shape: Shape, share: Share) -> Iterator[tuple[Tensor, ...]]:
    """Endless batches of random words."""
    return forever(partial(drawn, shape), share)


def loss(logits: Tensor, batch: Batch) -> Tensor:
    """Cross entropy in fp32, a mean over the tokens."""
    return F.cross_entropy(logits.flatten(0, 1).float(), batch[1].flatten())


def build(params: Params) -> Workload:
    """The model, its text and its training.

    Raises:
        ModelError: the shape cannot be built, or this machine cannot compute it.
    """
    try:
        shape = shape_of(params.size, params)
        if shape.fp8:
            check_fp8()
        if shape.experts:
            check_experts()
    except ModelError as error:
        raise ModelError(f"decoder: {error}") from None
    net = on_meta(shape)
    settings = {"lr": params.lr, "betas": (0.9, 0.95), "weight_decay": params.weight_decay, "fused": True}
    workload = supervised(
        unit="token",
        batches=partial(batches_of, shape),
        items=lambda batch: batch[0].numel(),
        net=net,
        inputs=lambda batch: (batch[0], *batch[2:]),
        loss=loss,
        optimiser=Optimiser(optim.AdamW, settings, clip_norm=params.clip),
        units=None if shape.tied or shape.documents > 1 else net.units,
    )
    fill = filling(shape, params.seed)
    return replace(workload, fill=fill, blocks=tuple(net.blocks), products="fp8" if shape.fp8 else None)
