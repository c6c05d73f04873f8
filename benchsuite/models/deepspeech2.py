"""Deep Speech 2: convolutions and recurrent layers spell what is said.

Application: speech recognition. Paper: Amodei et al., "Deep Speech 2: End-to-End Speech Recognition in English and
Mandarin" (2015), in the form with two convolutions over time and frequency and seven recurrent layers of 1280 units in
both directions, normalised over all places of the batch (sequence-wise batch norm), CTC loss over 29 letters. `cell` is
the paper's plain recurrence (RNN) or GRU. Data set: with `data`, the recordings of LibriSpeech up to `max_seconds`,
decoded and turned into spectrograms by `workers` processes; else generated spectrograms and letters of like lengths.

An item is a second of audio. A recording is cut, or filled with silence, to the nearest whole second (at least one). A
batch holds `batch_size` recordings of the same number of seconds, so that the items of a step are `batch_size` times
that number, and no place needs a mask. A pass leaves out the recordings of each length that fill no batch. torch's CTC
loss reads the numbers of letters on the host, so it waits for the GPU in each step. Deviations from the paper: each
direction has input weights of its own, whose inputs are normalised and not their outputs; the recurrence clips nothing;
the order of the recordings is random from the first pass on; the learning rate is constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.models import Batch, Optimiser, Positive, Share, Workload, forever, fusible, supervised, zipf
from benchsuite.models.readers import speech
from benchsuite.models.readers.images import check_workers
from benchsuite.models.readers.speech import BINS, FRAMES, LETTERS, RATE

READS = ("speech",)
SMALL: dict[str, object] = {"batch_size": 2, "layers": 2, "hidden": 8, "channels": 2, "max_seconds": 2, "workers": 0}

BATCHES = 8  # that many batches are generated
USUAL_S, SPREAD_S, SHORTER = 14.2, 1.3, 0.2  # of the generated recordings: as the data set's generator has them
LETTERS_A_SECOND = 14.6


@dataclass(frozen=True)
class Params:
    """`workers`: processes that read a data set; with 0 the training process reads it."""

    cell: Literal["RNN", "GRU"] = "RNN"
    batch_size: Positive = 32
    layers: Positive = 7
    hidden: Positive = 1280
    channels: Positive = 32
    max_seconds: Positive = 17
    workers: int = 8
    clip: float = fusible(400.0)
    lr: float = fusible(1e-4)
    seed: int = fusible(1234)


# --- the forward pass, unit by unit; x is [recordings, places, units] with 50 places a second -------------------------


class Convolve(nn.Module):
    """Spectrograms [recordings, BINS, frames] -> x; the first convolution halves the frames."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, (41, 11), stride=2, padding=(20, 5), bias=False),
            nn.BatchNorm2d(channels),
            nn.Hardtanh(0, 20),
            nn.Conv2d(channels, channels, (21, 11), stride=(2, 1), padding=(10, 5), bias=False),
            nn.BatchNorm2d(channels),
            nn.Hardtanh(0, 20),
        )

    def forward(self, sound: Tensor) -> Tensor:
        return self.layers(sound[:, None]).flatten(1, 2).transpose(1, 2)


class Normalise(nn.Module):
    """Batch norm over the recordings and the places together."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class Recur(nn.Module):
    """A recurrent layer in both directions, whose outputs are added. All but the first normalise their input."""

    def __init__(self, cell: str, width: int, hidden: int, first: bool) -> None:
        super().__init__()
        self.norm = nn.Identity() if first else Normalise(width)
        settings = {"batch_first": True, "bidirectional": True}
        self.memory = (
            nn.GRU(width, hidden, **settings)
            if cell == "GRU"
            else nn.RNN(width, hidden, nonlinearity="relu", **settings)
        )

    def forward(self, x: Tensor) -> Tensor:
        ahead, back = self.memory(self.norm(x))[0].chunk(2, dim=2)
        return ahead + back


class Spell(nn.Module):
    """x -> logits of the blank and the letters [recordings, places, 1 + letters]."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = Normalise(hidden)
        self.output = nn.Linear(hidden, 1 + len(LETTERS), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.norm(x))


def network(params: Params) -> nn.Sequential:
    """Spectrograms [recordings, BINS, frames] -> logits [recordings, frames / 2, 1 + letters]."""
    features = params.channels * -(-BINS // 4)
    widths = [features, *[params.hidden] * (params.layers - 1)]
    layers = (Recur(params.cell, width, params.hidden, first=i == 0) for i, width in enumerate(widths))
    return nn.Sequential(Convolve(params.channels), *layers, Spell(params.hidden))


def loss(logits: Tensor, batch: Batch) -> Tensor:
    """CTC, summed over the letters of a recording: the mean over recordings. All outputs of a recording count."""
    logs = logits.float().log_softmax(dim=2).transpose(0, 1)
    outputs = torch.full_like(batch["lengths"], len(logs))
    total = F.ctc_loss(logs, batch["letters"], outputs, batch["lengths"], reduction="sum", zero_infinity=True)
    return total / len(logits)


# --- the data ---------------------------------------------------------------------------------------------------------


def seconds_of(count: int, max_seconds: int, generator: torch.Generator) -> Tensor:
    """Whole seconds of `count` recordings: most last about as long as LibriSpeech's, some are shorter."""
    usual = USUAL_S + SPREAD_S * torch.randn(count, generator=generator)
    shorter = 1.5 + (USUAL_S - 1.5) * torch.rand(count, generator=generator)
    chosen = torch.where(torch.rand(count, generator=generator) < SHORTER, shorter, usual)
    return chosen.round().long().clamp(1, max_seconds)


def generated(params: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """A batch of spectrograms of noise, and letters, as frequent as by Zipf's law, that fit into the outputs."""
    seconds = int(seconds_of(1, params.max_seconds, generator))
    shape = (params.batch_size, seconds * RATE)
    sound = speech.spectrogram(torch.randn(shape, generator=generator))
    spread = 1 + 0.15 * torch.randn(params.batch_size, generator=generator)
    lengths = (LETTERS_A_SECOND * seconds * spread).round().long().clamp(1, seconds * speech.OUTPUTS // 2)
    letters = 1 + zipf((params.batch_size, int(lengths.max())), len(LETTERS), generator)
    return {
        "sound": sound,
        "letters": letters * (torch.arange(letters.shape[1]) < lengths[:, None]),
        "lengths": lengths,
    }


def batches_of(params: Params, share: Share) -> Iterator[dict[str, Tensor]]:
    """Spectrograms [recordings, BINS, frames], letters [recordings, n] filled with 0, their numbers [recordings].

    Raises:
        ModelError: the data set cannot be read, or no length fills a batch.
    """
    if share.data is None:
        return forever(partial(generated, params), share, distinct=BATCHES)
    read = speech.batches(share, params.batch_size, params.max_seconds, params.workers)
    return (dict(zip(("sound", "letters", "lengths"), batch, strict=True)) for batch in read)


def build(params: Params) -> Workload:
    """The model, its recordings and its training.

    Raises:
        ModelError: an impossible number of workers.
    """
    check_workers("deepspeech2", params.workers)
    net = network(params)
    settings = {"lr": params.lr, "momentum": 0.99, "nesterov": True}
    return supervised(
        unit="second of audio",
        batches=lambda share: batches_of(params, share),
        items=lambda batch: len(batch["sound"]) * (batch["sound"].shape[2] // FRAMES),
        net=net,
        inputs=lambda batch: (batch["sound"],),
        loss=loss,
        optimiser=Optimiser(optim.SGD, settings, clip_norm=params.clip),
        units=lambda: list(net),
    )
