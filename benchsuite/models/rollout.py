"""Reinforcement learning of a language model: sampling, then one policy step.

Application: the training of language models with rewards. Paper: Ahmadian et al., "Back to Basics: Revisiting REINFORCE
Style Optimization for Learning from Human Feedback in LLMs" (2024). Data set: none; random prompts. An item is one
sampled token.

A step copies the weights to the decoder that samples, continues `batch_size` prompts of `prompt` tokens by `sampled`
tokens each, and trains once on all of them with REINFORCE. The reward is made up: the share of tokens with an even
number, standardised over the batch. Each sampled token reads the whole cache of keys and values, which has the size of
the full sequence.

`part` is what a step does: both, or only sample (`decode`), or only train, on random tokens (`train`). The items are
the same: sampled tokens, or those that would be sampled. The model steps by itself, so the job's `precision` and
`compile` do not apply. With `bf16` it samples from weights in bf16 and trains with autocast; with `compiled` both are
compiled, and on a GPU the step of one token is a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.errors import ModelError
from benchsuite.models import Positive, Share, Workload, forever, fusible
from benchsuite.models.language.generation import Actor
from benchsuite.models.language.network import Decoder, filling, on_meta
from benchsuite.models.language.shapes import Shape, shape_of

PARALLEL = False
SMALL: dict[str, object] = {
    "layers": 2,
    "width": 16,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 4,
    "hidden": 24,
    "vocabulary": 40,
    "batch_size": 4,
    "prompt": 3,
    "sampled": 5,
}


@dataclass(frozen=True)
class Params:
    """A number of the shape that is null has the value of `size`."""

    size: Literal["llama_1b", "llama_8b"] = "llama_1b"
    layers: Positive | None = None
    width: Positive | None = None
    heads: Positive | None = None
    kv_heads: Positive | None = None
    head_width: Positive | None = None
    hidden: Positive | None = None
    vocabulary: Positive | None = None
    batch_size: Positive = 64
    prompt: Positive = 128
    sampled: Positive = 256
    part: Literal["both", "decode", "train"] = "both"
    bf16: bool = True
    compiled: bool = False
    clip: float = 1.0
    lr: float = fusible(1e-6)
    seed: int = fusible(1234)


def advantages(sampled: Tensor) -> Tensor:
    """The standardised rewards [rows] of the sampled tokens int64 [rows, tokens]."""
    rewards = (sampled % 2 == 0).float().mean(dim=1)
    return (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-6)


def policy_loss(net: Decoder, words: Tensor, gains: Tensor, prompt: int) -> Tensor:
    """The mean over the sampled tokens of: minus log probability, times the gain of its row (REINFORCE)."""
    hidden = net.hidden(words[:, :-1])[:, prompt - 1 :]
    surprise = F.cross_entropy(net.logits(hidden).flatten(0, 1).float(), words[:, prompt:].flatten(), reduction="none")
    return (surprise.unflatten(0, (len(words), -1)) * gains[:, None]).mean()


class Trainer:
    """One policy step: loss, backward pass, clipping, AdamW."""

    def __init__(self, params: Params, net: Decoder) -> None:
        self._net, self._prompt, self._clip = net, params.prompt, params.clip
        self._device = next(net.parameters()).device.type
        self._loss: Callable[..., Tensor] = torch.compile(policy_loss) if params.compiled else policy_loss
        self._optimiser = optim.AdamW(net.parameters(), lr=params.lr, weight_decay=0.0, fused=True)
        self._mixed = params.bf16

    def step(self, words: Tensor) -> Tensor:
        """Train on prompted and sampled words int64 [rows, tokens]; returns the loss."""
        cast: Any = torch.autocast(self._device, torch.bfloat16) if self._mixed else nullcontext()
        gains = advantages(words[:, self._prompt :])
        with cast:
            loss = self._loss(self._net, words, gains, self._prompt)
        self._optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._net.parameters(), self._clip)
        self._optimiser.step()
        return loss.detach()


def steps_of(params: Params, shape: Shape, net: Decoder, losses: list[Tensor]) -> Callable[[Tensor], int]:
    """The step. Sampler and trainer are made at its first call, when the decoder is on its device."""
    items = params.batch_size * params.sampled
    parts: list[Any] = []

    def begin() -> None:
        dtype = torch.bfloat16 if params.bf16 else torch.float32
        parts.append(Trainer(params, net) if params.part != "decode" else None)
        parts.append(Actor(net, shape, dtype, compiled=params.compiled) if params.part != "train" else None)

    def step(batch: Tensor) -> int:
        if not parts:
            begin()
        trainer, actor = parts
        words = batch.to(next(net.parameters()).device, non_blocking=True)
        if actor:
            if trainer:
                actor.refresh(net)
            words = actor.sample(words)
        if trainer:
            losses[:] = [trainer.step(words)]
        return items

    return step


def build(params: Params) -> Workload:
    """The decoder and its step.

    Raises:
        ModelError: the shape cannot be built.
    """
    try:
        shape = replace(shape_of(params.size, params), sequence=params.prompt + params.sampled)
    except ModelError as error:
        raise ModelError(f"rollout: {error}") from None
    net = on_meta(shape)
    net.requires_grad_(params.part != "decode")
    tokens = shape.sequence if params.part == "train" else params.prompt

    def prompts(generator: torch.Generator) -> Tensor:
        return torch.randint(shape.vocabulary, (params.batch_size, tokens), generator=generator)

    def batches(share: Share) -> Iterator[Tensor]:
        return forever(prompts, share)

    losses: list[Tensor] = []
    return Workload(
        unit="sampled token",
        batches=batches,
        items=lambda batch: len(batch) * params.sampled,
        modules={"net": net},
        step=steps_of(params, shape, net, losses),
        losses=losses,
        fill=filling(shape, params.seed),
        blocks=tuple(net.blocks),
        products="bf16" if params.bf16 else None,
    )
