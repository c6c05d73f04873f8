"""Beam search over all sentences of a batch at once.

Scores are those of Wu et al., "Google's Neural Machine Translation System" (2016), section 7: the log-probability is
divided by a length penalty, and a coverage penalty is added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from benchsuite.models import on_tensors

# Last units [rows], memory -> log-probabilities of the next [rows, units], attention [rows, source] or None, memory.
Next: TypeAlias = "Callable[[Tensor, Memory], tuple[Tensor, Tensor | None, Memory]]"


class Memory(NamedTuple):
    """What a decoder passes from one unit of the target to the next: tensors whose first dimension is the hypotheses.

    `source` is the same for all hypotheses of a sentence. `target` depends on the units so far.
    """

    source: Any
    target: Any


@dataclass(frozen=True)
class Search:
    """The settings of a beam search; the defaults are those of PipeDream's evaluation of GNMT.

    Attributes:
        beam: hypotheses that are kept of each sentence.
        max_length: units of a translation at most, its end included.
        alpha, constant: the length penalty of n units is ((constant + n) / (constant + 1)) ** alpha.
        beta: weight of the coverage penalty, for decoders that report their attention.
    """

    beam: int = 5
    max_length: int = 80
    alpha: float = 0.6
    constant: float = 5.0
    beta: float = 0.1

    def penalty(self, length: int) -> float:
        """The length penalty of a translation of this many units, its end included."""
        return float(((self.constant + length) / (self.constant + 1)) ** self.alpha)


@dataclass(frozen=True)
class Found:
    """The best translation of each sentence.

    Attributes:
        units: [sentences, units], filled with the end.
        lengths: units of each, without the end [sentences].
        scores: [sentences].
    """

    units: Tensor
    lengths: Tensor
    scores: Tensor


@dataclass
class _Beams:
    """The hypotheses of all sentences: those that may grow, and the best that has ended."""

    units: Tensor  # [sentences, beam, length]
    logs: Tensor  # log-probabilities [sentences, beam]
    covered: Tensor | None  # attention that each place of the source got [sentences, beam, source]
    best: Tensor  # units of the best ended one [sentences, max_length]
    best_scores: Tensor  # [sentences]
    best_lengths: Tensor  # [sentences]


def search(decode: Next, memory: Memory, seen: Tensor, begin: int, end: int, how: Search) -> Found:
    """Search the best translation of each sentence. A hypothesis ends if its end is among the best `beam` candidates.

    The search of all sentences stops once no hypothesis that grows can become the best of its sentence.

    Args:
        decode: computes the next unit.
        memory: that of the decoder before its first unit, one row for each sentence.
        seen: the units of the source that are no padding [sentences, source].
        begin, end: the units before and after each sentence.
    """
    count, beam = len(seen), how.beam
    rows = torch.arange(count, device=seen.device).repeat_interleave(beam)
    memory = on_tensors(partial(_rows, rows=rows), memory)
    last = torch.full((count * beam,), begin, device=seen.device)
    beams = _begun(count, how, seen.device, end)
    for length in range(1, how.max_length + 1):
        logs, attention, memory = decode(last, memory)
        if attention is not None:
            gained = attention.view(count, beam, -1)
            beams.covered = gained if beams.covered is None else beams.covered + gained
        source = _grow(beams, logs.view(count, beam, -1), seen, end, length, how)
        memory = memory._replace(target=on_tensors(partial(_rows, rows=source), memory.target))
        last = beams.units[:, :, -1].flatten()
        if _decided(beams, how):
            break
    else:
        _end(beams, beams.logs, beams.units, beams.covered, seen, how.max_length, how, counted=how.max_length)
    return Found(beams.best, beams.best_lengths, beams.best_scores)


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor[rows]


def _begun(count: int, how: Search, device: torch.device, end: int) -> _Beams:
    """One empty hypothesis for each sentence; the others of its beam are impossible."""
    logs = torch.full((count, how.beam), float("-inf"), device=device)
    logs[:, 0] = 0
    return _Beams(
        units=torch.empty((count, how.beam, 0), dtype=torch.long, device=device),
        logs=logs,
        covered=None,
        best=torch.full((count, how.max_length), end, device=device),
        best_scores=torch.full((count,), float("-inf"), device=device),
        best_lengths=torch.zeros(count, dtype=torch.long, device=device),
    )


def _grow(beams: _Beams, logs: Tensor, seen: Tensor, end: int, length: int, how: Search) -> Tensor:
    """Add a unit to each hypothesis, and keep the best; the row from which each comes [sentences * beam].

    Of twice as many candidates as the beam, at least `beam` do not end, since each hypothesis ends in one way only.
    """
    count, beam, words = logs.shape
    every = (beams.logs[:, :, None] + logs).flatten(1)
    best, places = every.topk(min(2 * beam, every.shape[1]), dim=1)
    parents, units = places // words, places % words
    ended = units == end
    covered = beams.covered
    grown = torch.cat((_of(beams.units, parents), units[:, :, None]), dim=2)
    first = slice(0, beam)
    ends = best[:, first].masked_fill(~ended[:, first], float("-inf"))
    cover = None if covered is None else _of(covered, parents[:, first])
    _end(beams, ends, grown[:, first], cover, seen, length, how, counted=length - 1)
    logs_on, kept = best.masked_fill(ended, float("-inf")).topk(beam, dim=1)
    parents = parents.gather(1, kept)
    beams.units, beams.logs = _of(grown, kept), logs_on
    beams.covered = None if covered is None else _of(covered, parents)
    return (parents + torch.arange(count, device=logs.device)[:, None] * beam).flatten()


def _of(tensor: Tensor, places: Tensor) -> Tensor:
    """[sentences, beam, ...] and places in the beam [sentences, n] -> [sentences, n, ...]."""
    return tensor.gather(1, places[:, :, None].expand(-1, -1, tensor.shape[2]))


def _end(
    beams: _Beams,
    logs: Tensor,
    units: Tensor,
    covered: Tensor | None,
    seen: Tensor,
    length: int,
    how: Search,
    *,
    counted: int,
) -> None:
    """Keep the best of the hypotheses that end here [sentences, n], if it is better than the best so far.

    Args:
        length: units of a hypothesis, with its end.
        counted: its units without the end.
    """
    scores = logs / how.penalty(length)
    if covered is not None and how.beta:
        share = covered.clamp(1e-20, 1.0).log().masked_fill(~seen[:, None], 0.0)
        scores = scores + how.beta * share.sum(dim=2)
    score, place = scores.max(dim=1)
    better = score > beams.best_scores
    chosen = units[torch.arange(len(units), device=units.device), place]
    beams.best[:, :length] = torch.where(better[:, None], chosen, beams.best[:, :length])
    beams.best_scores = torch.where(better, score, beams.best_scores)
    beams.best_lengths = torch.where(better, counted, beams.best_lengths)


def _decided(beams: _Beams, how: Search) -> bool:
    """Whether no hypothesis can become better than the best: its log-probability only falls. A sync."""
    bound = beams.logs.max(dim=1).values / how.penalty(how.max_length)
    return bool((beams.best_scores >= bound).all())
