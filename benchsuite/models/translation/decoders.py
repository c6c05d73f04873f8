"""The translators' decoders, one unit of the target at a time. They call the same modules as the training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchsuite.models import gnmt, transformer, translator
from benchsuite.models.translation.beam import Memory, Next
from benchsuite.models.translator import PAD


@dataclass(frozen=True)
class Decoder:
    """A model that translates.

    Attributes:
        encode: source [sentences, units] -> the memory before the first unit of the target.
        step: computes the next unit, see `beam.Next`.
    """

    encode: Callable[[Tensor], Memory]
    step: Next


def of_lstm(units: Iterable[nn.Module]) -> Decoder:
    """The decoder of `translator` and of `gnmt`.

    Its memory is the encoder's output, its mask, and the state of each LSTM, the hypotheses first.
    """
    row = list(units)
    first = next(place for place, unit in enumerate(row) if isinstance(unit, translator.Attend))
    encoder, attend, above, classify = row[:first], row[first], row[first + 1 : -1], row[-1]
    embeds = (translator.Embed, gnmt.EmbedTarget)
    (embed,) = (unit for unit in encoder if isinstance(unit, embeds))
    layers: list[Any] = [attend, *above]

    def encode(source: Tensor) -> Memory:
        flow: Any = (source, (source != PAD).sum(dim=1), source[:, :1])  # no unit of the encoder reads the target
        for unit in encoder:
            flow = unit(*flow)
        x, lengths, _ = flow
        none = x.new_zeros(len(x), 1, attend.memory.hidden_size)
        return Memory((x, lengths), [(none, none) for _ in layers])

    def step(last: Tensor, memory: Memory) -> tuple[Tensor, Tensor | None, Memory]:
        x, lengths = memory.source
        out, state = _advance(attend.memory, embed.embed(last)[:, None], memory.target[0])
        states = [state]
        context, weights = attend.attention(out, x, lengths)
        for unit, before in zip(above, memory.target[1:], strict=True):
            found, state = _advance(unit.memory, torch.cat((out, context), dim=2), before)
            out = found + out if unit.residual else found
            states.append(state)
        logits = classify(out, context)[:, 0]
        return logits.float().log_softmax(dim=1), weights[:, 0], Memory(memory.source, states)

    return Decoder(encode, step)


def _advance(lstm: nn.LSTM, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One step of an LSTM with one layer: x [rows, 1, units]; its state is [rows, 1, units], twice."""
    before = tuple(one.transpose(0, 1).contiguous() for one in state)
    out, after = lstm(x, before)
    return out, (after[0].transpose(0, 1), after[1].transpose(0, 1))


def of_transformer(units: Iterable[nn.Module]) -> Decoder:
    """The decoder of `transformer`.

    Its memory is the encoder's output, its mask, and the inputs of each layer so far, from which the layer's keys and
    values are made.
    """
    row: list[Any] = list(units)
    embed, classify = row[0], row[-1]
    encoder = [unit for unit in row if isinstance(unit, transformer.Encode)]
    layers = [unit for unit in row if isinstance(unit, transformer.Decode)]

    def encode(source: Tensor) -> Memory:
        flow = embed(source, source[:, :1])
        for unit in encoder:
            flow = unit(*flow)
        x, seen, _ = flow
        nothing = x.new_zeros(len(x), 0, x.shape[2])
        return Memory((x, seen), [nothing for _ in layers])

    def step(last: Tensor, memory: Memory) -> tuple[Tensor, Tensor | None, Memory]:
        (x, seen), inputs = memory.source, []
        place = memory.target[0].shape[1]
        y = embed.placed(last[:, None].expand(-1, place + 1))[:, -1:]
        for unit, before in zip(layers, memory.target, strict=True):
            so_far = torch.cat((before, y), dim=1)
            inputs.append(so_far)
            y = unit.attended(y, unit.attention(y, so_far))
            y = unit.crossed(y, unit.across(y, x, seen))
            y = unit.transformed(y, unit.dense(y))
        logits = classify(x, seen, y)[:, 0]
        return logits.float().log_softmax(dim=1), None, Memory(memory.source, inputs)

    return Decoder(encode, step)
