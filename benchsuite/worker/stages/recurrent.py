"""Recurrent layers on the meta device, without their loops over time.

torch computes an LSTM there step by step and in Python, which takes seconds for a deep model. Shapes and FLOPs need no
loop: each matrix is multiplied once, with the inputs of all steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def without_loops(modules: Iterable[nn.Module]) -> None:
    """Replace the forward passes of all LSTMs, GRUs and plain recurrent layers, in place. Their outputs have no values.

    Args:
        modules: copies on the meta device.
    """
    for module in modules:
        for layer in module.modules():
            if isinstance(layer, nn.RNNBase) and not layer.proj_size:
                layer.forward = partial(_at_once, layer, layer.forward)


def _at_once(layer: nn.RNNBase, steps: Any, inputs: Any, state: Any = None) -> Any:
    """The outputs and the last state.

    Args:
        steps: the layer's own forward pass, for packed sequences.
        inputs: [rows, steps, width], or with steps first.
    """
    if not isinstance(inputs, Tensor) or inputs.dim() != 3:
        return steps(inputs, state)
    flow, ways = inputs, ("", "_reverse") if layer.bidirectional else ("",)
    for number in range(layer.num_layers):
        found = []
        for way in ways:
            F.linear(flow, getattr(layer, f"weight_ih_l{number}{way}"))
            hidden = flow.new_empty((*flow.shape[:-1], layer.hidden_size))
            F.linear(hidden, getattr(layer, f"weight_hh_l{number}{way}"))
            found.append(hidden)
        flow = torch.cat(found, dim=-1)
    rows = inputs.shape[0 if layer.batch_first else 1]
    last = inputs.new_empty((layer.num_layers * len(ways), rows, layer.hidden_size))
    return flow, (last, last) if isinstance(layer, nn.LSTM) else last
