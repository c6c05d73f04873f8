"""Transformer: translation with attention in place of recurrence.

Application: machine translation. Paper: Vaswani et al., "Attention Is All You Need" (2017), `size` base or big:
normalisation after each residual sum, sinusoidal positions, one embedding for both languages and the output (`tied`),
label smoothing. Data set: with `data`, the pairs of WMT16 English-German in a shared vocabulary, up to `max_length`
units a side; else generated pairs as long and as frequent in their units.

An item is a unit of the target that is trained, with the end of the sentence and without padding, as translation counts
tokens a second. `batch_size` counts these units too. All targets of a batch are equally long, so that their number is
known without a sync and none is padded; sources are padded to the longest of the batch. A pass over a data set leaves
out the pairs of each length that fill no batch. Deviations from the paper: the learning rate is constant, and
linear layers of the attention have a bias.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Optimiser, Positive, Share, Workload, forever, fusible, seeded, supervised, zipf
from benchsuite.models.readers import bpe_ids, pinned
from benchsuite.models.translator import BEGIN, END, PAD, SPECIALS, lengths_of

READS = ("bpe_ids",)
VARIES = True
SMALL: dict[str, object] = {"batch_size": 30, "max_length": 12, "vocabulary": 60, "nlayers": 2, "width": 16, "heads": 2}

BATCHES = 64  # that many batches are generated
SAMPLE = 4096  # pairs from whose lengths those of a generated batch are drawn


@dataclass(frozen=True)
class Dimensions:
    """Layers of each side, width of the residual sums, heads, width inside the dense layers, and dropout."""

    nlayers: int
    width: int
    heads: int
    inner: int
    dropout: float


SIZES = {"base": Dimensions(6, 512, 8, 2048, 0.1), "big": Dimensions(6, 1024, 16, 4096, 0.3)}


@dataclass(frozen=True)
class Params:
    """`batch_size`: units of the target. `nlayers` to `dropout`: those of `size` if they are left out."""

    size: Literal["base", "big"] = "base"
    batch_size: Positive = 2048
    vocabulary: Positive = 37_000
    max_length: Positive = 100
    nlayers: Positive | None = None
    width: Positive | None = None
    heads: Positive | None = None
    inner: Positive | None = None
    dropout: float | None = None
    tied: bool = True
    smoothing: float = 0.1
    lr: float = fusible(1e-4)
    seed: int = fusible(1234)


def dimensions(params: Params) -> Dimensions:
    """Those of the size, with the ones that the parameters give.

    Raises:
        ModelError: the heads do not divide the width, or the width is odd.
    """
    given = {key: value for key in Dimensions.__annotations__ if (value := getattr(params, key)) is not None}
    found = replace(SIZES[params.size], **given)
    if found.width % found.heads or found.width % 2:
        raise ModelError(f"transformer: width {found.width} is not even or not a multiple of heads {found.heads}")
    return found


# --- the forward pass, unit by unit; x is the source, y the target, `seen` is false for padding of the source ---------


def sinusoids(length: int, width: int) -> Tensor:
    """Positions [length, width]: sines of falling frequency in even columns, cosines in odd ones (section 3.5)."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)


class Embed(nn.Module):
    """Units of both languages [pairs, n] and [pairs, m] -> x, seen [pairs, 1, 1, n], y."""

    places: Tensor

    def __init__(self, vocabulary: int, longest: int, size: Dimensions) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size.width)
        self.drop = nn.Dropout(size.dropout)
        self.register_buffer("places", sinusoids(longest, size.width), persistent=False)
        nn.init.normal_(self.embed.weight, std=size.width**-0.5)

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.placed(source), (source != PAD)[:, None, None], self.placed(target)

    def placed(self, units: Tensor) -> Tensor:
        """Scaled embeddings and positions."""
        scale = math.sqrt(self.embed.embedding_dim)
        return self.drop(self.embed(units) * scale + self.places[: units.shape[1]])


class Attention(nn.Module):
    """Queries [pairs, n, width] attend to a memory [pairs, m, width] -> [pairs, n, width].

    `seen` [pairs, 1, 1, m] is false for places that get no weight. With `causal`, place i sees no place after i.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, seen: Tensor | None = None, *, causal: bool = False) -> Tensor:
        keys, values = self.memory(memory).chunk(2, dim=2)
        query, key, value = (
            one.unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (self.query(x), keys, values)
        )
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, is_causal=causal)
        return self.output(found.transpose(1, 2).flatten(2))


class Added(nn.Module):
    """The residual sum of x and a sublayer's output, with dropout before it and normalisation after it."""

    def __init__(self, size: Dimensions) -> None:
        super().__init__()
        self.drop = nn.Dropout(size.dropout)
        self.norm = nn.LayerNorm(size.width)

    def forward(self, x: Tensor, found: Tensor) -> Tensor:
        return self.norm(x + self.drop(found))


def dense(size: Dimensions) -> nn.Sequential:
    """The two dense layers that each place passes by itself."""
    return nn.Sequential(nn.Linear(size.width, size.inner), nn.ReLU(), nn.Linear(size.inner, size.width))


class Encode(nn.Module):
    """A layer of the encoder; the target passes as it is."""

    def __init__(self, size: Dimensions) -> None:
        super().__init__()
        self.attention, self.attended = Attention(size.width, size.heads), Added(size)
        self.dense, self.transformed = dense(size), Added(size)

    def forward(self, x: Tensor, seen: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.attended(x, self.attention(x, x, seen))
        return self.transformed(x, self.dense(x)), seen, y


class Decode(nn.Module):
    """A layer of the decoder, which attends to the encoder's output x."""

    def __init__(self, size: Dimensions) -> None:
        super().__init__()
        self.attention, self.attended = Attention(size.width, size.heads), Added(size)
        self.across, self.crossed = Attention(size.width, size.heads), Added(size)
        self.dense, self.transformed = dense(size), Added(size)

    def forward(self, x: Tensor, seen: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.attended(y, self.attention(y, y, causal=True))
        y = self.crossed(y, self.across(y, x, seen))
        return x, seen, self.transformed(y, self.dense(y))


class Classify(nn.Module):
    """Outputs of the decoder -> logits of the units [pairs, m, vocabulary]."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, vocabulary, bias=False)

    def forward(self, _x: Tensor, _seen: Tensor, y: Tensor) -> Tensor:
        return self.output(y)


class Transformer(nn.Module):
    """Source [pairs, n] and target [pairs, m] -> logits of the units that follow those of the target."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        size = dimensions(params)
        embed = Embed(params.vocabulary, params.max_length + 1, size)
        layers = [*(Encode(size) for _ in range(size.nlayers)), *(Decode(size) for _ in range(size.nlayers))]
        classify = Classify(size.width, params.vocabulary)
        self.units = nn.ModuleList([embed, *layers, classify])
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
        if params.tied:
            classify.output.weight = embed.embed.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        flow: Any = (source, target)
        for unit in self.units:
            flow = unit(*flow)
        return flow


# --- the data ---------------------------------------------------------------------------------------------------------


def pairs_of(params: Params, length: int) -> int:
    """The pairs of a batch whose targets have `length` units and the end of the sentence."""
    return max(1, params.batch_size // (length + 1))


def generated(params: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """A batch of generated pairs. The share of a target's length is that of its units, as in a pass over a data set."""
    sources, targets = lengths_of(SAMPLE, params.max_length, generator)
    length = int(targets[torch.multinomial(targets + 1.0, 1, generator=generator)])
    count = pairs_of(params, length)
    like = sources[targets == length]
    ends = like[torch.randint(len(like), (count,), generator=generator)][:, None]
    width = int(ends.max()) + 1
    units = SPECIALS + zipf((count, width + length + 2), params.vocabulary - SPECIALS, generator)
    place = torch.arange(width)
    source, target = units[:, :width], units[:, width:].contiguous()
    target[:, 0], target[:, -1] = BEGIN, END
    source = torch.where(place < ends, source, torch.where(place == ends, END, PAD))
    return {"source": source, "target": target}


def prepared(params: Params, share: Share) -> Iterator[dict[str, Tensor]]:
    """Batches of the data set's pairs, in a new order each pass.

    Raises:
        ModelError: the data set cannot be read, or no length of the target fills a batch.
    """
    assert share.data
    sources, targets = bpe_ids.pairs(share, params.max_length, params.vocabulary, unknown=SPECIALS)
    lengths, generator = targets.lengths, seeded(share.seed, share.rank)
    counts = np.bincount(lengths)
    if all(count < pairs_of(params, length) for length, count in enumerate(counts)):
        most = int((counts * (np.arange(len(counts)) + 1)).max())
        few = f"has up to {most:,} units in targets of one length for a batch of {params.batch_size:,}"
        remedy = f"give batch_size of at most {most}, or bring a larger data set"
        raise ModelError(f"data set '{share.data.name}' {few}; {remedy}")
    sources, targets = replace(sources, after=(END,)), replace(targets, before=(BEGIN,), after=(END,))
    chosen = bpe_ids.equally_long(lengths, partial(pairs_of, params), generator)
    return pinned({"source": sources.padded(rows, PAD), "target": targets.padded(rows, PAD)} for rows in chosen)


def batches_of(params: Params, share: Share) -> Iterator[dict[str, Tensor]]:
    """Source [pairs, n] with END and padding, target [pairs, m] between BEGIN and END."""
    if share.data:
        return prepared(params, share)
    return forever(partial(generated, params), share, distinct=BATCHES)


def build(params: Params) -> Workload:
    """The model, its pairs and its training.

    Raises:
        ModelError: the sizes do not fit each other, or there are too few words.
    """
    if params.vocabulary <= SPECIALS:
        raise ModelError(f"transformer: vocabulary is {params.vocabulary}; it must be over {SPECIALS}")

    def loss(logits: Tensor, batch: Batch) -> Tensor:
        """Smoothed cross entropy, a mean over the units of the targets."""
        labels = batch["target"][:, 1:].flatten()
        return F.cross_entropy(logits.flatten(0, 1), labels, label_smoothing=params.smoothing)

    net = Transformer(params)
    workload = supervised(
        unit="token",
        batches=lambda share: batches_of(params, share),
        items=lambda batch: batch["target"][:, 1:].numel(),
        net=net,
        inputs=lambda batch: (batch["source"], batch["target"][:, :-1]),
        loss=loss,
        optimiser=Optimiser(optim.Adam, {"lr": params.lr, "betas": (0.9, 0.98), "eps": 1e-9}),
        units=lambda: list(net.units),
    )
    assert workload.chain
    return replace(workload, chain=replace(workload.chain, varies=VARIES))
