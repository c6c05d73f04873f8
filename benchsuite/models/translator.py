"""Translation: LSTM encoder and decoder with attention (GNMT).

Application: machine translation, after the GNMT of MLPerf 0.6: `nlayers` layers each, the encoder's first in both
directions, residual sums, normalised additive attention, one embedding for both languages. Paper: Wu et al., "Google's
Neural Machine Translation System" (2016). Data set: with `data`, the pairs of WMT16 English-German in a shared
vocabulary of up to `max_length` units; else generated pairs as long and as frequent in their words. Batches hold pairs
of similar length, and all `batch_size` of them. An item is one pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.nn.utils.rnn import pad_sequence

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Optimiser, Positive, Share, Workload, fusible, seeded, supervised, zipf
from benchsuite.models.readers import bpe_ids, pinned

READS = ("bpe_ids",)
SMALL: dict[str, object] = {"batch_size": 3, "vocabulary": 60, "hidden": 16, "max_length": 12}

PAD, BEGIN, END = range(3)
SPECIALS = 3
BATCHES = 64  # that many batches of pairs are generated
BUCKETS = 5


@dataclass(frozen=True)
class Params:
    batch_size: Positive = 64
    vocabulary: Positive = 32_320
    hidden: Positive = 1024
    nlayers: Positive = 4
    max_length: Positive = 50
    dropout: float = 0.2
    smoothing: float = 0.1
    clip: float = fusible(5.0)
    lr: float = fusible(1e-3)
    seed: int = fusible(1234)


# --- the forward pass, unit by unit; x is the source, y the target, each [pairs, length, units] -----------------------


class Embed(nn.Module):
    """Words of both languages -> their embeddings."""

    def __init__(self, vocabulary: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden, padding_idx=PAD)
        self.drop = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.drop(self.embed(source)), lengths, self.drop(self.embed(target))


class BothWays(nn.Module):
    """The encoder's first layer. Its backward direction starts at the last word of each sentence, not at the padding.

    Packed sequences do the same, but need the lengths on the host.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(hidden, hidden, batch_first=True)
        self.backwards = nn.LSTM(hidden, hidden, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place = torch.arange(x.shape[1], device=x.device)
        mirror = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)[:, :, None]
        turned = self.backwards(x.gather(1, mirror.expand_as(x)))[0]
        ahead = self.forwards(x)[0]
        return torch.cat((ahead, turned.gather(1, mirror.expand_as(turned))), dim=2), lengths, y


class Encode(nn.Module):
    """A further layer of the encoder."""

    def __init__(self, width: int, hidden: int, dropout: float, residual: bool) -> None:
        super().__init__()
        self.memory = nn.LSTM(width, hidden, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.residual = residual

    def forward(self, x: Tensor, lengths: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = self.memory(self.drop(x))[0]
        return (out + x if self.residual else out), lengths, y


class Attention(nn.Module):
    """Queries [pairs, n, units], keys [pairs, m, units], lengths [pairs] -> contexts [pairs, n, units], weights.

    Additive attention (Bahdanau) whose scoring vector is normalised and has a learned length (Salimans and Kingma).
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden)
        self.score = nn.Parameter(torch.empty(hidden))
        self.scale = nn.Parameter(torch.tensor(hidden**-0.5))

    def forward(self, queries: Tensor, keys: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        sums = self.query(queries)[:, :, None] + self.key(keys)[:, None]
        scores = torch.tanh(sums) @ (self.scale * self.score / self.score.norm())
        padding = torch.arange(keys.shape[1], device=keys.device) >= lengths[:, None]
        weights = scores.masked_fill(padding[:, None], float("-inf")).softmax(dim=2)
        return weights @ keys, weights


class Attend(nn.Module):
    """The decoder's first layer, which attends to the encoder -> its outputs and their contexts."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.memory = nn.LSTM(hidden, hidden, batch_first=True)
        self.attention = Attention(hidden)

    def forward(self, x: Tensor, lengths: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = self.memory(y)[0]
        return out, self.attention(out, x, lengths)[0]


class Decode(nn.Module):
    """A further layer of the decoder, which also receives the contexts."""

    def __init__(self, hidden: int, dropout: float, residual: bool) -> None:
        super().__init__()
        self.memory = nn.LSTM(2 * hidden, hidden, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.residual = residual

    def forward(self, y: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        out = self.memory(self.drop(torch.cat((y, context), dim=2)))[0]
        return (out + y if self.residual else out), context


class Classify(nn.Module):
    """Outputs of the decoder -> logits of the words."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, y: Tensor, _context: Tensor) -> Tensor:
        return self.output(y)


class Gnmt(nn.Module):
    """Source [pairs, n], its lengths [pairs], target [pairs, m] -> logits of the next words [pairs, m, words]."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        hidden, dropout, above = params.hidden, params.dropout, range(1, params.nlayers)
        self.units = nn.ModuleList(
            [
                Embed(params.vocabulary, hidden, dropout),
                BothWays(hidden),
                *(Encode(hidden if layer > 1 else 2 * hidden, hidden, dropout, residual=layer > 1) for layer in above),
                Attend(hidden),
                *(Decode(hidden, dropout, residual=layer > 1) for layer in above),
                Classify(hidden, params.vocabulary),
            ]
        )
        for name, value in self.named_parameters():
            if not name.endswith("scale"):
                nn.init.uniform_(value, -0.1, 0.1)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        flow: Any = (source, lengths, target)
        for unit in self.units:
            flow = unit(*flow)
        return flow


# --- the data ---------------------------------------------------------------------------------------------------------


def lengths_of(count: int, max_length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Units of the sources and of the targets of `count` pairs. Most have under half of `max_length`; few reach it."""
    noise = torch.randn(2, 2 * count, generator=generator)
    source = (max_length * 0.45 * torch.exp(0.6 * noise[0])).round().long()
    target = (source * torch.exp(0.05 + 0.18 * noise[1])).round().long()
    fits = (torch.minimum(source, target) >= 1) & (torch.maximum(source, target) <= max_length)
    return source[fits][:count], target[fits][:count]


def sentences(params: Params, generator: torch.Generator) -> tuple[list[Tensor], list[Tensor]]:
    """Sources and targets for BATCHES batches."""
    lengths = lengths_of(BATCHES * params.batch_size, params.max_length, generator)
    sides = [side.tolist() for side in lengths]
    begin, end = torch.tensor([BEGIN]), torch.tensor([END])
    ordinary = params.vocabulary - SPECIALS
    words = [(SPECIALS + zipf((sum(side),), ordinary, generator)).split(side) for side in sides]
    return [torch.cat((s, end)) for s in words[0]], [torch.cat((begin, t, end)) for t in words[1]]


def pairs_of(
    params: Params, share: Share, generator: torch.Generator
) -> tuple[Sequence[Tensor], Sequence[Tensor], Tensor]:
    """Sources with END, targets between BEGIN and END, and the words of each pair's longer side with END [pairs].

    Units of a data set keep their numbers, except its special units, which become SPECIALS, an ordinary word.
    """
    if share.data is None:
        sources, targets = sentences(params, generator)
        return sources, targets, torch.tensor([max(len(s), len(t) - 1) for s, t in zip(sources, targets, strict=True)])
    known = bpe_ids.pairs(share, params.max_length, params.vocabulary, unknown=SPECIALS)
    longest = torch.from_numpy(np.maximum(known[0].lengths, known[1].lengths) + 1)
    return replace(known[0], after=(END,)), replace(known[1], before=(BEGIN,), after=(END,)), longest


def buckets(lengths: Tensor) -> Tensor:
    """The range, of BUCKETS, in which each length lies."""
    return (lengths - 1) * BUCKETS // int(lengths.max())


def bucketed(lengths: Tensor, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """The rows of each batch of one pass, in random order. The lengths of one batch lie in one of BUCKETS ranges.

    The rest of a bucket, smaller than a batch, is left out of this pass.
    """
    shuffled = torch.randperm(len(lengths), generator=generator)
    bucket = buckets(lengths[shuffled])
    batches = [rows for b in range(BUCKETS) for rows in shuffled[bucket == b].split(batch_size)]
    whole = [rows for rows in batches if len(rows) == batch_size]
    return [whole[i] for i in torch.randperm(len(whole), generator=generator).tolist()]


def batches_of(params: Params, share: Share) -> Iterator[dict[str, Tensor]]:
    """Source and target [pairs, words], padded to the longest of the batch, and the source's lengths [pairs].

    Raises:
        ModelError: the data set cannot be read, or has fewer than `batch_size` pairs of similar length.
    """
    generator = seeded(share.seed, share.rank)
    sources, targets, longest = pairs_of(params, share, generator)
    most = int(buckets(longest).bincount().max())
    if share.data and most < params.batch_size:
        few = f"has up to {most:,} pairs of similar length for a batch of {params.batch_size:,}"
        remedy = f"give batch_size of at most {most}, or bring a larger data set"
        raise ModelError(f"data set '{share.data.name}' {few}; {remedy}")

    def endless() -> Iterator[dict[str, Tensor]]:
        while True:
            for rows in bucketed(longest, params.batch_size, generator):
                source, target = ([side[row] for row in rows.tolist()] for side in (sources, targets))
                yield {
                    "source": pad_sequence(source, batch_first=True, padding_value=PAD),
                    "lengths": torch.tensor([len(sentence) for sentence in source]),
                    "target": pad_sequence(target, batch_first=True, padding_value=PAD),
                }

    return pinned(endless())


def smoothed(logits: Tensor, batch: Batch, smoothing: float) -> Tensor:
    """Smoothed cross entropy, summed over the words of a pair: the mean over pairs, as in GNMT."""
    words, labels = logits.flatten(0, 1), batch["target"][:, 1:].flatten()
    total = F.cross_entropy(words, labels, ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
    return total / len(logits)


def build(params: Params) -> Workload:
    """The model, its pairs and its training.

    Raises:
        ModelError: too few layers or words.
    """
    if params.nlayers < 2 or params.vocabulary <= SPECIALS:
        raise ModelError(f"translator: nlayers is at least 2 and vocabulary over {SPECIALS}")

    net = Gnmt(params)
    return supervised(
        unit="sentence",
        batches=lambda share: batches_of(params, share),
        items=lambda batch: len(batch["lengths"]),
        net=net,
        inputs=lambda batch: (batch["source"], batch["lengths"], batch["target"][:, :-1]),
        loss=lambda logits, batch: smoothed(logits, batch, params.smoothing),
        optimiser=Optimiser(optim.Adam, {"lr": params.lr}, clip_norm=params.clip),
        units=lambda: list(net.units),
    )
