"""BERT: a transformer encoder predicts masked words.

Application: pre-training of a language model by masked words. Paper: Devlin et al., "BERT: Pre-training of Deep
Bidirectional Transformers for Language Understanding" (2018), `size` base or large: GELU, learned positions, the output
tied to the embedding. Data set: with `data`, the training text of WikiText-2 as words, cut into sequences; else
generated text as frequent in its words (Zipf). A sequence is CLS, `length` - 2 words and SEP, without padding. 15 % of
its places (`masked`), rounded, are predicted: of these 80 % are masked, 10 % hold a random word, 10 % their own. Text
of a data set gets other masks in each pass. An item is one sequence.

Each sequence has the same number of predicted places, and logits are computed for these places only, so that all shapes
are known. Deviations from the paper: no next-sentence prediction, so that there are neither segments nor a pooler;
words of the text in place of wordpieces; weight decay for all parameters; the learning rate is constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Optimiser, Positive, Share, Workload, forever, fusible, seeded, supervised, zipf
from benchsuite.models.readers import check_room, pinned, rows, tokens

READS = ("tokens",)
SMALL: dict[str, object] = {"batch_size": 3, "length": 12, "vocabulary": 60, "nlayers": 2, "width": 16, "heads": 2}

MASK, CLS, SEP = range(3)
SPECIALS = 3
BATCHES = 16  # that many batches are generated


@dataclass(frozen=True)
class Dimensions:
    """Layers, width of the residual sums, heads, and width inside the dense layers."""

    nlayers: int
    width: int
    heads: int
    inner: int


SIZES = {"base": Dimensions(12, 768, 12, 3072), "large": Dimensions(24, 1024, 16, 4096)}


@dataclass(frozen=True)
class Params:
    """`positions`: the longest sequence that the model has positions for. `nlayers` to `inner`: see `size`."""

    size: Literal["base", "large"] = "base"
    batch_size: Positive = 64
    length: Positive = 128
    masked: float = 0.15
    vocabulary: Positive = 30_522
    positions: Positive = 512
    nlayers: Positive | None = None
    width: Positive | None = None
    heads: Positive | None = None
    inner: Positive | None = None
    dropout: float = 0.1
    tied: bool = True
    lr: float = fusible(1e-4)
    seed: int = fusible(1234)


def dimensions(params: Params) -> Dimensions:
    """Those of the size, with the ones that the parameters give.

    Raises:
        ModelError: the heads do not divide the width.
    """
    given = {key: value for key in Dimensions.__annotations__ if (value := getattr(params, key)) is not None}
    found = replace(SIZES[params.size], **given)
    if found.width % found.heads:
        raise ModelError(f"bert: width {found.width} is not a multiple of heads {found.heads}")
    return found


# --- the forward pass, unit by unit; x is [sequences, length, width], `places` the predicted ones [sequences, k] ------


class Embed(nn.Module):
    """Words [sequences, length] -> their embeddings and positions, normalised."""

    def __init__(self, params: Params, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(params.vocabulary, width)
        self.positions = nn.Parameter(torch.empty(params.positions, width))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.drop = nn.Dropout(params.dropout)

    def forward(self, words: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        return self.drop(self.norm(self.words(words) + self.positions[: words.shape[1]])), places


class Layer(nn.Module):
    """Attention of all places to all, then two dense layers; each adds to x, and the sum is normalised."""

    def __init__(self, size: Dimensions, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = size.heads, dropout
        self.project = nn.Linear(size.width, 3 * size.width)
        self.output = nn.Linear(size.width, size.width)
        self.attended = nn.LayerNorm(size.width, eps=1e-12)
        self.inner = nn.Linear(size.width, size.inner)
        self.outer = nn.Linear(size.inner, size.width)
        self.transformed = nn.LayerNorm(size.width, eps=1e-12)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self.project(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout).transpose(1, 2).flatten(2)
        x = self.attended(x + self.drop(self.output(found)))
        return self.transformed(x + self.drop(self.outer(F.gelu(self.inner(x))))), places


class Predict(nn.Module):
    """The predicted places of x -> logits of their words [sequences, k, vocabulary]."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        chosen = x.gather(1, places[:, :, None].expand(-1, -1, x.shape[2]))
        return self.output(self.norm(F.gelu(self.dense(chosen))))


class Bert(nn.Module):
    """Words [sequences, length] and places [sequences, k] -> logits of the words there [sequences, k, vocabulary]."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        size = dimensions(params)
        embed, predict = Embed(params, size.width), Predict(size.width, params.vocabulary)
        self.units = nn.ModuleList([embed, *(Layer(size, params.dropout) for _ in range(size.nlayers)), predict])
        for name, value in self.named_parameters():
            if value.dim() > 1:
                nn.init.normal_(value, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(value)
        if params.tied:
            predict.output.weight = embed.words.weight

    def forward(self, words: Tensor, places: Tensor) -> Tensor:
        flow: Any = (words, places)
        for unit in self.units:
            flow = unit(*flow)
        return flow


# --- the data ---------------------------------------------------------------------------------------------------------


def predicted(params: Params) -> int:
    """The places of a sequence whose words are predicted; at least one, and never CLS or SEP."""
    return min(max(1, round(params.masked * params.length)), params.length - 2)


def masked(text: Tensor, params: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """Text [sequences, length - 2] -> words [sequences, length], places and their own words [sequences, k]."""
    words = F.pad(F.pad(text, (1, 0), value=CLS), (0, 1), value=SEP)
    chosen = 1 + torch.rand(text.shape, generator=generator).topk(predicted(params), dim=1).indices
    own = words.gather(1, chosen)
    fate = torch.rand(own.shape, generator=generator)
    other = torch.randint(SPECIALS, params.vocabulary, own.shape, generator=generator)
    shown = torch.where(fate < 0.8, MASK, torch.where(fate < 0.9, other, own))
    return {"words": words.scatter(1, chosen, shown), "places": chosen, "own": own}


def text_of(params: Params, share: Share) -> Tensor:
    """The training text of the data set, int64 [sequences, length - 2]. The rest of the text is left out.

    Raises:
        ModelError: there is no text, or it has more different words than `vocabulary`.
    """
    assert share.data
    text, different = tokens.words(share.data)
    check_room(share.data, different + SPECIALS, "different words and special ones", "vocabulary", params.vocabulary)
    width = params.length - 2
    return (SPECIALS + text[: len(text) // width * width]).view(-1, width)


def batches_of(params: Params, share: Share) -> Iterator[dict[str, Tensor]]:
    """Batches of `batch_size` masked sequences; the rest of a pass is left out.

    Raises:
        ModelError: the data set cannot be read, or is too small.
    """

    def generated(generator: torch.Generator) -> dict[str, Tensor]:
        shape = (params.batch_size, params.length - 2)
        text = SPECIALS + zipf(shape, params.vocabulary - SPECIALS, generator)
        return masked(text, params, generator)

    if share.data is None:
        return forever(generated, share, distinct=BATCHES)
    text, generator = text_of(params, share), seeded(share.seed, share.rank)
    order = rows(len(text), params.batch_size, share, "sequence")
    return pinned(masked(text[row], params, generator) for row in order if len(row) == params.batch_size)


def build(params: Params) -> Workload:
    """The model, its text and its training.

    Raises:
        ModelError: the sizes do not fit each other, or there are too few words or positions.
    """
    if not 3 <= params.length <= params.positions:
        raise ModelError(f"bert: length is {params.length}; it must be from 3 to positions {params.positions}")
    if not 0 < params.masked < 1 or params.vocabulary <= SPECIALS:
        raise ModelError(f"bert: masked is a share between 0 and 1, and vocabulary is over {SPECIALS}")

    def loss(logits: Tensor, batch: Batch) -> Tensor:
        """Cross entropy, a mean over the predicted words."""
        return F.cross_entropy(logits.flatten(0, 1), batch["own"].flatten())

    net = Bert(params)
    return supervised(
        unit="sequence",
        batches=lambda share: batches_of(params, share),
        items=lambda batch: len(batch["words"]),
        net=net,
        inputs=lambda batch: (batch["words"], batch["places"]),
        loss=loss,
        optimiser=Optimiser(optim.AdamW, {"lr": params.lr, "weight_decay": 0.01}),
        units=lambda: list(net.units),
    )
