"""Weight versions: each minibatch in flight keeps the weights with which it went forward (PipeDream's stashing)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchsuite.worker.stages.borders import Stage


class Versions:
    """The newest weights of a stage, and copies of them for the minibatches in flight.

    The optimiser changes the newest weights in place. A forward pass computes with a copy, to which its backward pass
    adds gradients. The graph of a minibatch holds its copy, so that it is freed with the graph.

    The weights of each layer lie side by side in memory, in the order of the layer: cuDNN wants those of an LSTM so.

    Attributes:
        newest: the parameters that an optimiser trains.
    """

    def __init__(self, module: Stage) -> None:
        self._module = module
        self._flats: list[Tensor] = []
        self._places: list[tuple[int, str, torch.Size]] = []
        self.newest: list[Tensor] = []
        seen: set[int] = set()
        for prefix, layer in module.named_modules():
            named = layer.named_parameters(recurse=False)
            own = {name: p for name, p in named if p.requires_grad and id(p) not in seen}
            seen |= {id(p) for p in own.values()}
            for dtype in dict.fromkeys(p.dtype for p in own.values()):
                alike = {name: p for name, p in own.items() if p.dtype == dtype}
                self._keep(prefix, alike)
        self.current = self._copied()

    def _keep(self, prefix: str, params: dict[str, nn.Parameter]) -> None:
        flat = torch.cat([param.detach().flatten() for param in params.values()])
        for (name, param), part in zip(params.items(), flat.split([p.numel() for p in params.values()]), strict=True):
            self._places.append((len(self._flats), f"{prefix}.{name}" if prefix else name, param.shape))
            self.newest.append(nn.Parameter(part.view(param.shape)))
            param.data = part.view(param.shape)  # the module has the newest weights, in the same memory
        self._flats.append(flat)

    def trained(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The module's own parameters, each with that of `newest` which an optimiser trains in its place."""
        own = dict(self._module.named_parameters(remove_duplicate=False))
        for (_, name, _), newest in zip(self._places, self.newest, strict=True):
            yield own[name], newest

    def _copied(self) -> dict[str, Tensor]:
        """A copy of the newest weights, by their names in the module."""
        copies = [flat.clone() for flat in self._flats]
        rest = [0] * len(copies)
        found = {}
        for place, name, shape in self._places:
            size = shape.numel()
            part = copies[place][rest[place] : rest[place] + size].view(shape)
            rest[place] += size
            found[name] = part.requires_grad_()
        return found

    def forward(self, flow: Sequence[Tensor]) -> object:
        """The output of the stage with the current version."""
        return functional_call(self._module, self.current, tuple(flow))

    def take(self, version: dict[str, Tensor]) -> None:
        """Give the gradients of a version to the newest weights."""
        for param, (_, name, _) in zip(self.newest, self._places, strict=True):
            param.grad, version[name].grad = version[name].grad, None

    def updated(self) -> None:
        """The optimiser has changed the newest weights: minibatches from here on compute with them."""
        self.current = self._copied()
