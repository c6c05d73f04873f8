"""The state of B modules as one: each parameter and each buffer gets a first dimension, the models."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchsuite.errors import ModelError
from benchsuite.models import Workload
from benchsuite.worker.step import materialise


@dataclass(frozen=True)
class Stacked:
    """B modules as one.

    Attributes:
        template: the first module. Its code computes for all; its own weights are views of the first model's.
        params: path -> weights of all models [B, ...]. A parameter that the module has under two names (tied weights)
            is here once, and the template's ties tie the stacked weights as well.
        buffers: path -> buffers of all models [B, ...].
    """

    template: nn.Module
    params: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @property
    def trainable(self) -> list[Tensor]:
        """The weights that an optimiser trains."""
        return [param for param in self.params.values() if param.requires_grad]


def stack(name: str, workloads: Sequence[Workload], device: str) -> Stacked:
    """Stack the modules of this name on the device.

    A module is moved or filled, copied, and emptied before the next one, so that the device holds one module beside the
    stacked ones.

    Raises:
        ModelError: the models differ in their parameters or buffers, or in a setting that their text shows.
    """
    modules = [workload.modules[name] for workload in workloads]
    template, count = modules[0], len(modules)
    shapes = [signature(module) for module in modules]
    if any(shape != shapes[0] for shape in shapes):
        raise ModelError(f"the models of an array differ in the parameters of '{name}'; give them the same sizes")
    if any(repr(module) != repr(template) for module in modules[1:]):  # the first one's code computes for all
        raise ModelError(f"the models of an array differ in a setting of '{name}', such as dropout; give them the same")
    stacked: dict[str, Tensor] = {}
    for index, (workload, module) in enumerate(zip(workloads, modules, strict=True)):
        if workload.fill:
            materialise(name, module, workload.fill, device)
        for path, tensor in named_tensors(module):
            if index == 0:
                stacked[path] = torch.empty((count, *tensor.shape), dtype=tensor.dtype, device=device)
            stacked[path][index].copy_(tensor.detach())
        if index:
            module.to_empty(device="meta")
    params: dict[str, Tensor] = {}
    for path, param in template.named_parameters():
        params[path] = nn.Parameter(stacked[path], requires_grad=param.requires_grad)
        param.requires_grad_(False)  # a loss that captured the module, instead of calling its nets, fails
        param.data = stacked[path][0]
    buffers = {path: stacked[path] for path, _ in template.named_buffers()}
    for path, buffer in template.named_buffers():
        buffer.data = buffers[path][0]
    return Stacked(template, params, buffers)


def named_tensors(module: nn.Module) -> itertools.chain[tuple[str, Tensor]]:
    """The parameters and buffers of a module with their paths, each once."""
    return itertools.chain(module.named_parameters(), module.named_buffers())


def signature(module: nn.Module) -> list[tuple[str, torch.Size, torch.dtype]]:
    """What modules that can be stacked have in common."""
    return [(path, tensor.shape, tensor.dtype) for path, tensor in named_tensors(module)]
