"""Word language model: a two-layer LSTM or GRU predicts the next word.

Application: language modelling, after the `word_language_model` example of PyTorch. Paper: Mikolov et al., "Recurrent
Neural Network Based Language Model" (2010). Data set: with `data`, the training text of WikiText-2;
else generated text of its vocabulary (33,278 words, as frequent as Zipf and Mandelbrot have it). It is cut into
`batch_size` streams that are read side by side; the hidden state passes from step to step. An item is one sequence of
`bptt` words, of which a step trains `batch_size`. The rest of a stream, shorter than `bptt` words, is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Carry, Nets, Optimiser, Positive, Share, Update, Workload, forever, fusible, zipf
from benchsuite.models.readers import tokens

READS = ("tokens",)
SMALL: dict[str, object] = {"batch_size": 3, "bptt": 5, "vocabulary": 50, "emsize": 8, "nhid": 8}

WINDOWS = 64  # steps until generated text begins anew


@dataclass(frozen=True)
class Params:
    cell: Literal["LSTM", "GRU"] = "LSTM"
    batch_size: Positive = 20
    bptt: Positive = 35
    vocabulary: Positive = 33_278
    emsize: Positive = 200
    nhid: Positive = 200
    nlayers: Positive = 2
    dropout: float = 0.2
    tied: bool = False
    clip: float = fusible(0.25)
    lr: float = fusible(20.0)
    seed: int = fusible(1234)


class WordModel(nn.Module):
    """Words [sequences, length] and a state, or None -> logits [sequences, length, words] and the next state.

    A state is [sequences, layers, units], for an LSTM a pair of them.
    """

    def __init__(self, params: Params) -> None:
        super().__init__()
        between = params.dropout if params.nlayers > 1 else 0.0
        kind = nn.LSTM if params.cell == "LSTM" else nn.GRU
        self.drop = nn.Dropout(params.dropout)
        self.embed = nn.Embedding(params.vocabulary, params.emsize)
        self.memory = kind(params.emsize, params.nhid, params.nlayers, dropout=between, batch_first=True)
        self.decode = nn.Linear(params.nhid, params.vocabulary)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        nn.init.uniform_(self.decode.weight, -0.1, 0.1)
        nn.init.zeros_(self.decode.bias)
        if params.tied:
            self.decode.weight = self.embed.weight

    def forward(self, words: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, state = self.memory(self.drop(self.embed(words)), swapped(state))
        return self.decode(self.drop(hidden)), swapped(state)


def swapped(state: Any) -> Any:
    """Swap the dimensions of samples and layers."""
    if isinstance(state, tuple):
        return tuple(swapped(part) for part in state)
    return None if state is None else state.transpose(0, 1).contiguous()


def loss(nets: Nets, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
    """Cross entropy, a mean over the words; the carry is the state."""
    words, following = batch
    logits, state = nets["net"](words, carry)
    return F.cross_entropy(logits.flatten(0, 1), following.flatten()), state


def windows(streams: Tensor, bptt: int) -> tuple[Tensor, Tensor]:
    """Streams [streams, words] -> words and the words that follow them, each [windows, streams, bptt]."""
    count = (streams.shape[1] - 1) // bptt
    cut = [streams[:, first : first + count * bptt] for first in (0, 1)]
    words, following = (part.unflatten(1, (count, bptt)).transpose(0, 1).contiguous() for part in cut)
    return words, following


def batches_of(params: Params, share: Share) -> Iterator[tuple[Tensor, Tensor]]:
    """Words and the words that follow them, each [batch_size, bptt].

    Each batch continues where the last one ended, until the text begins again.

    Raises:
        ModelError: the data set cannot be read, is too small, or has too many different words.
    """

    def make(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        shape = (params.batch_size, WINDOWS * params.bptt + 1)
        return windows(zipf(shape, params.vocabulary, generator), params.bptt)

    if share.data is not None:
        read = windows(tokens.streams(share, params.batch_size, params.bptt, params.vocabulary), params.bptt)
        return in_order(forever(lambda generator: read, share, distinct=1))
    return in_order(forever(make, share, distinct=1))


def in_order(texts: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The windows of one text after another."""
    for text in texts:
        yield from zip(*text, strict=True)


def build(params: Params) -> Workload:
    """The model, its text and its training.

    Raises:
        ModelError: the embedding cannot be tied to the output.
    """
    if params.tied and params.emsize != params.nhid:
        raise ModelError(f"wlm: tied needs emsize and nhid to be equal, found {params.emsize} and {params.nhid}")
    return Workload(
        unit="sequence",
        batches=lambda share: batches_of(params, share),
        items=lambda batch: len(batch[0]),
        modules={"net": WordModel(params)},
        updates=(Update("net", loss, Optimiser(optim.SGD, {"lr": params.lr}, clip_norm=params.clip)),),
    )
