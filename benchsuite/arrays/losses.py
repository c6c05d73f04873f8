"""The losses of B models, computed as one by vmap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from benchsuite.arrays.rules import Rules
from benchsuite.arrays.stacking import Stacked
from benchsuite.models import Batch, Carry, Loss

LossesOf: TypeAlias = "Callable[[Batch, Carry], tuple[Tensor, Carry]]"
State: TypeAlias = dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]]


def called(
    template: nn.Module, params: dict[str, Tensor], buffers: dict[str, Tensor], *args: Any, **kwargs: Any
) -> Any:
    """The template's output with other weights."""
    return functional_call(template, (params, buffers), args, kwargs)


def losses_of(
    loss: Loss, nets: Mapping[str, Stacked], zeros: Tensor, carry_dim: int = 0, *, mixed: bool = False
) -> Callable[..., Any]:
    """An update's loss as a function of state, batch and carry that computes it for all models.

    The function returns the losses [B], and the carries stacked in dimension `carry_dim`. All models get the same
    batch. Random numbers differ between them.

    Args:
        zeros: int64 [B]; see `Rules`.
        mixed: autocast will be on.
    """
    templates = {name: one.template for name, one in nets.items()}

    def one(state: State, zero: Tensor, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        models = {name: partial(called, template, *state[name]) for name, template in templates.items()}
        with Rules(zero, mixed):
            value, carry = loss(models, batch, carry)
        return value, () if carry is None else carry  # vmap returns tensors only

    def all_of(state: State, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        dims = (0, 0, None, None if carry is None else carry_dim)
        computed = vmap(one, in_dims=dims, out_dims=(0, carry_dim), randomness="different")
        values, carry = computed(state, zeros, batch, carry)
        return values, None if isinstance(carry, tuple) and not carry else carry

    return all_of


def state_of(nets: Mapping[str, Stacked]) -> State:
    """The stacked weights and buffers of all modules."""
    return {name: (one.params, one.buffers) for name, one in nets.items()}


def keep_in_place(nets: Mapping[str, Stacked]) -> None:
    """Let CUDA graphs of compiled code read weights and buffers where they are, instead of copying them each step."""
    for one in nets.values():
        for tensor in (*one.params.values(), *one.buffers.values()):
            torch._dynamo.mark_static_address(tensor)


class Changed(nn.Module):
    """A module whose forward pass is a change of another one's weights in place."""

    def __init__(self, module: nn.Module, change: Callable[[nn.Module], None]) -> None:
        super().__init__()
        self.module, self._change = module, change

    def forward(self, zero: Tensor) -> Tensor:
        self._change(self.module)
        return zero


def change_each(stacked: Stacked, change: Callable[[nn.Module], None], zeros: Tensor) -> None:
    """Change the weights of all models in place, each as `change` changes those of one."""
    module = Changed(stacked.template, change)

    def one(params: dict[str, Tensor], buffers: dict[str, Tensor], zero: Tensor) -> Tensor:
        inner = {f"module.{path}": tensor for path, tensor in (*params.items(), *buffers.items())}
        return functional_call(module, inner, (zero,))

    vmap(one, randomness="different")(stacked.params, stacked.buffers, zeros)
