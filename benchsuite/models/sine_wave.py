"""Sine waves (toy): two LSTM cells predict the next value of a series.

Application: time series, after the `time_sequence_prediction` example of PyTorch: two cells of 51 units and a linear
layer, stepped one by one over the series. Paper: Hochreiter and Schmidhuber, "Long Short-Term Memory" (1997). Data set:
with `data`, the first `length` points of the series of time_series, `samples` of them a batch; else `samples` sines of
period 40 pi with random phases, all of them in every batch. An item is one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.models import Optimiser, Positive, Share, Workload, forever, fusible, supervised
from benchsuite.models.readers import pinned, rows, series

READS = ("series",)
SMALL: dict[str, object] = {"samples": 3, "length": 8}

HIDDEN = 51
STRETCH = 20


@dataclass(frozen=True)
class Params:
    samples: Positive = 100
    length: Positive = 1000
    lr: float = fusible(0.01)
    seed: int = fusible(1234)


class Sequence(nn.Module):
    """[sequences, steps] -> [sequences, steps]: at each step the value that comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTMCell(1, HIDDEN)
        self.second = nn.LSTMCell(HIDDEN, HIDDEN)
        self.output = nn.Linear(HIDDEN, 1)

    def forward(self, waves: Tensor) -> Tensor:
        first = second = (waves.new_zeros(len(waves), HIDDEN), waves.new_zeros(len(waves), HIDDEN))
        outputs = []
        for value in waves.split(1, dim=1):
            first = self.first(value, first)
            second = self.second(first[0], second)
            outputs.append(self.output(second[0]))
        return torch.cat(outputs, dim=1)


def shifted(waves: Tensor) -> tuple[Tensor, Tensor]:
    """Waves [waves, length] -> inputs and targets, each [waves, length - 1]: a wave, and the same one step later."""
    return waves[:, :-1].contiguous(), waves[:, 1:].contiguous()


def batches_of(params: Params, share: Share) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets, each [samples, length - 1]; the last batch of a pass over a data set may be short.

    Raises:
        ModelError: the data set cannot be read, or its series are too few or too short.
    """

    def make(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        phase = torch.randint(-4 * STRETCH, 4 * STRETCH, (params.samples, 1), generator=generator)
        return shifted(torch.sin((torch.arange(params.length) + phase) / STRETCH))

    if share.data is None:
        return forever(make, share, distinct=1)
    waves = series.waves(share.data, params.length)
    return pinned(shifted(waves[of]) for of in rows(len(waves), params.samples, share, "wave", "samples"))


def build(params: Params) -> Workload:
    return supervised(
        unit="sequence",
        batches=lambda share: batches_of(params, share),
        items=lambda batch: len(batch[0]),
        net=Sequence(),
        inputs=lambda batch: (batch[0],),
        loss=lambda output, batch: F.mse_loss(output, batch[1]),
        optimiser=Optimiser(optim.SGD, {"lr": params.lr}),
    )
