"""Recurrent layers as products and sums, for which vmap has rules. It has none for torch's own LSTM, GRU and RNN.

The input's product with the weights is computed for all time steps at once; the rest is a loop over time. Arguments and
results are those of torch's functions of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

State: TypeAlias = tuple[Tensor, ...]
Cell: TypeAlias = Callable[[Tensor, State, Tensor, "Tensor | None"], State]


def lstm_step(x: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """One step of an LSTM. `x` is the input's part of the gates, [samples, 4 units]."""
    hidden, memory = state
    update, forget, new, output = (x + F.linear(hidden, weight, bias)).chunk(4, dim=-1)
    memory = forget.sigmoid() * memory + update.sigmoid() * new.tanh()
    return output.sigmoid() * memory.tanh(), memory


def gru_step(x: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """One step of a GRU. `x` is the input's part of the gates, [samples, 3 units]."""
    (hidden,) = state
    of_input, of_state = x.chunk(3, dim=-1), F.linear(hidden, weight, bias).chunk(3, dim=-1)
    reset = (of_input[0] + of_state[0]).sigmoid()
    update = (of_input[1] + of_state[1]).sigmoid()
    new = (of_input[2] + reset * of_state[2]).tanh()
    return (new + update * (hidden - new),)


def tanh_step(x: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """One step of Elman's net."""
    return ((x + F.linear(state[0], weight, bias)).tanh(),)


def relu_step(x: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """One step of Elman's net with a rectifier."""
    return ((x + F.linear(state[0], weight, bias)).relu(),)


def layer(x: Tensor, state: State, weights: Sequence[Tensor], cell: Cell, reverse: bool) -> tuple[Tensor, State]:
    """One layer in one direction: x [time, samples, inputs] -> outputs [time, samples, units] and the last state."""
    into, again, *biases = weights
    first, second = biases if biases else (None, None)
    steps = F.linear(x, into, first).unbind(0)
    outputs = []
    for step in reversed(steps) if reverse else steps:
        state = cell(step, state, again, second)
        outputs.append(state[0])
    if reverse:
        outputs.reverse()
    return torch.stack(outputs), state


def layers(
    cell: Cell,
    x: Tensor,
    states: State,
    weights: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, State]:
    """Stacked layers, in one direction or in both; `states` are tensors [layers x directions, samples, units]."""
    each = 4 if has_biases else 2
    directions = 2 if bidirectional else 1
    x = x.transpose(0, 1) if batch_first else x
    ends: list[State] = []
    for index in range(num_layers):
        outputs = []
        for direction in range(directions):
            row = index * directions + direction
            state = tuple(part[row] for part in states)
            out, state = layer(x, state, weights[row * each : (row + 1) * each], cell, reverse=direction == 1)
            outputs.append(out)
            ends.append(state)
        x = torch.cat(outputs, dim=-1) if bidirectional else outputs[0]
        if dropout and train and index < num_layers - 1:
            x = F.dropout(x, dropout)
    return x.transpose(0, 1) if batch_first else x, tuple(torch.stack(parts) for parts in zip(*ends, strict=True))


def lstm(x: Tensor, states: State, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    """As torch.lstm, without packed sequences and projections."""
    outputs, (hidden, memory) = layers(lstm_step, x, tuple(states), *settings)
    return outputs, hidden, memory


def simple(cell: Cell) -> Callable[..., tuple[Tensor, Tensor]]:
    """As torch.gru, torch.rnn_tanh and torch.rnn_relu, by the cell."""

    def computed(x: Tensor, states: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
        outputs, (hidden,) = layers(cell, x, (states,), *settings)
        return outputs, hidden

    return computed


def lstm_cell(x: Tensor, state: State, into: Tensor, again: Tensor, *biases: Tensor | None) -> State:
    """As torch.lstm_cell."""
    first, second = biases or (None, None)
    return lstm_step(F.linear(x, into, first), tuple(state), again, second)


def simple_cell(cell: Cell) -> Callable[..., Tensor]:
    """As torch.gru_cell, torch.rnn_tanh_cell and torch.rnn_relu_cell, by the cell."""

    def computed(x: Tensor, hidden: Tensor, into: Tensor, again: Tensor, *biases: Tensor | None) -> Tensor:
        first, second = biases or (None, None)
        return cell(F.linear(x, into, first), (hidden,), again, second)[0]

    return computed


# torch's function -> the function that computes the same.
RULES: dict[Any, Callable[..., Any]] = {
    torch.lstm: lstm,
    torch.gru: simple(gru_step),
    torch.rnn_tanh: simple(tanh_step),
    torch.rnn_relu: simple(relu_step),
    torch.lstm_cell: lstm_cell,
    torch.gru_cell: simple_cell(gru_step),
    torch.rnn_tanh_cell: simple_cell(tanh_step),
    torch.rnn_relu_cell: simple_cell(relu_step),
}
