"""Recommendation: neural collaborative filtering (NeuMF).

Application: recommendation, after the reference of MLPerf 0.5: a product of embeddings beside a perceptron, joined by
one output. Paper: He et al., "Neural Collaborative Filtering" (2017). Data set: with `data`, the interactions of
MovieLens 20M, in a new random order each pass; else generated ones of their size and skew (138,493 users, 26,744
items). Each is followed by `negatives` examples of the same user with items drawn in the step, uniformly from all items
as in the reference. An item is one example, positive or negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.errors import ModelError
from benchsuite.models import Optimiser, Positive, Share, Workload, fusible, seeded, supervised, zipf
from benchsuite.models.readers import pinned, ratings, rows

READS = ("ratings",)
SMALL: dict[str, object] = {"batch_size": 16, "users": 50, "items": 40, "factors": 4, "layers": (8, 4)}

POSITIVES = 1 << 20  # generated interactions


@dataclass(frozen=True)
class Params:
    batch_size: Positive = 2048
    users: Positive = 138_493
    items: Positive = 26_744
    factors: Positive = 64
    layers: tuple[int, ...] = (256, 256, 128, 64)
    negatives: Positive = 4
    lr: float = fusible(5e-4)
    seed: int = fusible(1234)


class NeuMf(nn.Module):
    """Users and items, each [examples] -> logits [examples]."""

    def __init__(self, users: int, items: int, factors: int, layers: tuple[int, ...]) -> None:
        super().__init__()
        half = layers[0] // 2
        self.mf_users, self.mf_items = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.mlp_users, self.mlp_items = nn.Embedding(users, half), nn.Embedding(items, half)
        self.mlp = nn.Sequential()
        for before, after in pairwise(layers):
            self.mlp.extend((nn.Linear(before, after), nn.ReLU()))
        self.output = nn.Linear(factors + layers[-1], 1)
        for table in (self.mf_users, self.mf_items, self.mlp_users, self.mlp_items):
            nn.init.normal_(table.weight, std=0.01)
        for layer in (*self.mlp, self.output):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        product = self.mf_users(users) * self.mf_items(items)
        hidden = self.mlp(torch.cat((self.mlp_users(users), self.mlp_items(items)), dim=1))
        return self.output(torch.cat((product, hidden), dim=1)).squeeze(1)


def interactions(params: Params, share: Share) -> tuple[Tensor, Tensor]:
    """Users and items of this rank, each [POSITIVES]. All ranks have the same active users and popular items.

    MovieLens 20M: the most active user has 9,254 ratings, the median one 68; the most popular item 67,310, the median
    one 18.
    """
    names, draws = seeded(share.seed), seeded(share.seed, 1 + 2 * share.rank)
    users = torch.randperm(params.users, generator=names)[zipf((POSITIVES,), params.users, draws, shift=500)]
    items = zipf((POSITIVES,), params.items, draws, exponent=2, shift=250)
    return users, torch.randperm(params.items, generator=names)[items]


def cycled(batch_size: int) -> Iterator[Tensor]:
    """Endless: the next `batch_size` of the generated interactions, in their order."""
    first = 0
    while True:
        yield torch.arange(first, first + batch_size) % POSITIVES
        first = (first + batch_size) % POSITIVES


def batches_of(params: Params, share: Share) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Users, items and labels, each [batch_size], from a stream with 1 + `negatives` examples for each positive.

    The last batches of a pass over a data set may be short; one of a single example is left out.

    Raises:
        ModelError: the data set cannot be read, is smaller than a batch, or has too many users or items.
    """
    if share.data is None:
        return pinned(examples(params, share, interactions(params, share), cycled(params.batch_size)))
    known = ratings.interactions(share.data, params.users, params.items)
    order = rows(len(known[0]), params.batch_size, share, "interaction")
    return pinned(examples(params, share, known, map(torch.tensor, order)))


def examples(
    params: Params, share: Share, known: tuple[Tensor, Tensor], order: Iterator[Tensor]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The batches of known interactions; `order` gives the rows for `1 + negatives` batches."""
    draws = seeded(share.seed, 2 + 2 * share.rank)
    group = 1 + params.negatives
    for positives in order:
        users, items = (column[positives].long() for column in known)
        for place in torch.arange(group * len(positives)).split(params.batch_size):
            if len(place) == 1 < params.batch_size:
                continue  # as `rows`: no last batch of one
            positive, row = place % group == 0, place // group
            drawn = torch.randint(params.items, (len(place),), generator=draws)
            yield users[row], torch.where(positive, items[row], drawn), positive.float()


def build(params: Params) -> Workload:
    """The model, its examples and its training.

    Raises:
        ModelError: `layers` cannot be built.
    """
    layers = tuple(params.layers)
    if not layers or min(layers) < 1 or layers[0] % 2:
        raise ModelError(f"recommendation: layers are widths over 0, the first of them even, found {list(layers)}")
    return supervised(
        unit="interaction",
        batches=lambda share: batches_of(params, share),
        items=lambda batch: len(batch[0]),
        net=NeuMf(params.users, params.items, params.factors, layers),
        inputs=lambda batch: (batch[0], batch[1]),
        loss=lambda output, batch: F.binary_cross_entropy_with_logits(output, batch[2]),
        optimiser=Optimiser(optim.Adam, {"lr": params.lr}),
    )
