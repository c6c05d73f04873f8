"""Translation: the GNMT of PipeDream, with 8 or 16 LSTM layers.

Application: machine translation. Paper: Wu et al., "Google's Neural Machine Translation System" (2016), in the sizes of
Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training" (2019): GNMT-8 and GNMT-16. `layers`
counts the LSTM layers of both sides; half of them encode. Data set: with `data`, the pairs of WMT16 English-German in a
shared vocabulary of up to `max_length` units; else generated pairs as long and as frequent in their words. Batches hold
pairs of similar length, and all `batch_size` of them. An item is one pair.

The layers, the batches and the loss are those of `translator`. Two things differ. Each language has an embedding of its
own, so that no two stages of a pipeline share a weight. The target passes the encoder as numbers of words, which are
fewer bytes between stages than their embeddings. Deviations from the papers: gradients are not clipped, as PipeDream
does not clip them; the learning rate is constant; wordpieces are the BPE units of the data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn, optim

from benchsuite.errors import ModelError
from benchsuite.models import Optimiser, Positive, Workload, fusible, supervised, translator
from benchsuite.models.translator import PAD, SPECIALS, Attend, BothWays, Classify, Decode, Encode

READS = ("bpe_ids",)
SMALL: dict[str, object] = {"batch_size": 3, "layers": 6, "vocabulary": 60, "hidden": 16, "max_length": 12}


@dataclass(frozen=True)
class Params:
    batch_size: Positive = 64
    layers: Positive = 8
    vocabulary: Positive = 32_320
    hidden: Positive = 1024
    max_length: Positive = 50
    dropout: float = 0.2
    smoothing: float = 0.1
    lr: float = fusible(3e-4)
    seed: int = fusible(1234)


class EmbedSource(nn.Module):
    """Words of the source -> their embeddings; the target passes as it is."""

    def __init__(self, vocabulary: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden, padding_idx=PAD)
        self.drop = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.drop(self.embed(source)), lengths, target


class EmbedTarget(nn.Module):
    """Words of the target -> their embeddings; the encoder's output passes as it is."""

    def __init__(self, vocabulary: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden, padding_idx=PAD)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, lengths, self.drop(self.embed(target))


class Gnmt(nn.Module):
    """Source [pairs, n], its lengths [pairs], target [pairs, m] -> logits of the next words [pairs, m, words]."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        hidden, dropout, above = params.hidden, params.dropout, range(1, params.layers // 2)
        self.units = nn.ModuleList(
            [
                EmbedSource(params.vocabulary, hidden, dropout),
                BothWays(hidden),
                *(Encode(hidden if layer > 1 else 2 * hidden, hidden, dropout, residual=layer > 1) for layer in above),
                EmbedTarget(params.vocabulary, hidden, dropout),
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


def build(params: Params) -> Workload:
    """The model, its pairs and its training.

    Raises:
        ModelError: an impossible number of layers, or too few words.
    """
    if params.layers < 4 or params.layers % 2 or params.vocabulary <= SPECIALS:
        raise ModelError(f"gnmt: layers is an even number of at least 4, and vocabulary over {SPECIALS}")
    pairs = translator.Params(
        batch_size=params.batch_size, vocabulary=params.vocabulary, max_length=params.max_length, seed=params.seed
    )
    net = Gnmt(params)
    return supervised(
        unit="sentence",
        batches=lambda share: translator.batches_of(pairs, share),
        items=lambda batch: len(batch["lengths"]),
        net=net,
        inputs=lambda batch: (batch["source"], batch["lengths"], batch["target"][:, :-1]),
        loss=lambda logits, batch: translator.smoothed(logits, batch, params.smoothing),
        optimiser=Optimiser(optim.Adam, {"lr": params.lr}),
        units=lambda: list(net.units),
    )
