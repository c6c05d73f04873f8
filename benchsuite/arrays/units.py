"""Arrays of which some units stay unfused: the models compute them one after the other, all others as one.

Units leave the array in HFTA's order: those after the first in the order of the forward pass, then the first. For a
ResNet-18 these are its eight blocks, the classifier, and the stem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.utils._pytree import tree_map

from benchsuite.arrays.changes import LearningOfEach
from benchsuite.arrays.learning import learner_of_each
from benchsuite.arrays.losses import called, keep_in_place
from benchsuite.arrays.rules import Rules
from benchsuite.arrays.stacking import Stacked, stack
from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Batch, Carry, Chain, Workload
from benchsuite.worker import compiling
from benchsuite.worker.precision import MIXED
from benchsuite.worker.step import Part, materialise, trainable

# A unit of the array: fused, or a module of each model.
Unit: TypeAlias = "Stacked | list[nn.Module]"


class Held(nn.Module):
    """A module that holds stacked weights and buffers, and computes nothing."""

    def __init__(self, stacked: Stacked) -> None:
        super().__init__()
        for path, param in stacked.params.items():
            self.register_parameter(path.replace(".", "/"), param)
        for path, buffer in stacked.buffers.items():
            self.register_buffer(path.replace(".", "/"), buffer)


@dataclass(frozen=True)
class Fused:
    """An array: its updates, its check, and its modules or units by name, in order."""

    parts: Sequence[Part]
    learning: LearningOfEach
    units: Mapping[str, Unit]

    def modules(self) -> dict[str, nn.Module]:
        """Modules that hold the weights and buffers of all models, for checks and traces."""
        return {
            name: Held(unit) if isinstance(unit, Stacked) else nn.ModuleList(unit) for name, unit in self.units.items()
        }

    def state(self, model: int) -> Iterator[Tensor]:
        """The parameters and buffers of one model, module by module."""
        for unit in self.units.values():
            if isinstance(unit, Stacked):
                yield from (tensor[model] for tensor in (*unit.params.values(), *unit.buffers.values()))
            else:
                yield from (*unit[model].parameters(), *unit[model].buffers())


def make_units(workloads: Sequence[Workload], training: Training, device: str, zeros: Tensor) -> Fused:
    """An array with unfused units.

    Unfused units have their own parameters for each model, which the model's parameter group holds beside its row.

    Raises:
        ModelError: the model has no chain, too few units, or units that share parameters.
    """
    rows = rows_of_units(workloads, device)
    unfused = chosen(len(rows), training.unfused_units)
    units: list[Unit] = []
    for index, row in enumerate(rows):
        if index in unfused:
            units.append([unit.to(device) for unit in row])
        else:
            name = f"unit {index}"
            alike = [
                replace(workload, modules={name: unit}, fill=None)
                for workload, unit in zip(workloads, row, strict=True)
            ]
            units.append(stack(name, alike, device))
    chain, update = workloads[0].chain, workloads[0].updates[0]
    assert chain
    named = {f"unit {index}": unit for index, unit in enumerate(units)}
    fused = {name: unit for name, unit in named.items() if isinstance(unit, Stacked)}
    params = [param for unit in fused.values() for param in unit.trainable]
    alone = [
        [param for unit in units if not isinstance(unit, Stacked) for param in trainable(unit[model])]
        for model in range(len(workloads))
    ]
    learning = LearningOfEach({name: unit.trainable for name, unit in fused.items()}, alone)
    specs = [workload.updates[0].optimiser for workload in workloads]
    learns = learner_of_each(params, specs, training, device, None, alone=alone)
    losses = losses_of_units(units, chain, zeros, training.precision in MIXED)
    if training.compile != "none":
        keep_in_place(fused)
        losses = torch.compile(losses, **compiling.settings(training))
    return Fused([Part(losses, learns, times=update.times)], learning, named)


def rows_of_units(workloads: Sequence[Workload], device: str) -> list[tuple[nn.Module, ...]]:
    """Each unit of the chain as the modules of all models.

    Raises:
        ModelError: the model has no chain, an update that changes weights by itself, or units that share parameters.
    """
    first = workloads[0]
    if first.chain is None or first.updates[0].after:
        raise ModelError("unfused_units: the model is not a chain of units; leave it out")
    for workload in workloads:
        for name, module in workload.modules.items():
            if workload.fill:
                materialise(name, module, workload.fill, device)
    rows = list(zip(*(workload.chain.units() for workload in workloads if workload.chain), strict=True))
    held = [id(param) for row in rows for param in row[0].parameters()]
    if len(set(held)) < len(held):
        raise ModelError("unfused_units: two units share a parameter; leave it out")
    return rows


def chosen(units: int, count: int) -> set[int]:
    """The indices of the units that leave the array.

    Raises:
        ModelError: there are fewer units.
    """
    if count > units:
        raise ModelError(f"unfused_units {count}: the model has {units} units; lower it")
    return set([*range(1, units), 0][:count])


def losses_of_units(units: Sequence[Unit], chain: Chain, zeros: Tensor, mixed: bool) -> Callable[[Batch, Carry], Any]:
    """The loss of each model as a function of the batch."""
    count = len(zeros)

    def one(unit: Stacked, params: Any, buffers: Any, zero: Tensor, flow: Any) -> Any:
        with Rules(zero, mixed):
            return called(unit.template, params, buffers, *arguments(flow))

    def last(zero: Tensor, flow: Any, batch: Batch) -> Tensor:
        with Rules(zero, mixed):
            return chain.loss(flow, batch)

    def apart(flow: Any, stacked: bool) -> list[Any]:
        return [tree_map(lambda tensor, at=model: tensor[at], flow) if stacked else flow for model in range(count)]

    def all_of(batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        flow: Any = chain.inputs(batch)
        each: list[Any] | None = None  # the flow of each model, while it is apart
        stacked = False  # before the first unit, all models have the same
        for unit in units:
            if isinstance(unit, Stacked):
                if each is not None:
                    flow, each, stacked = together(each), None, True
                dims = (0, 0, 0, 0 if stacked else None)
                computed = vmap(partial(one, unit), in_dims=dims, randomness="different")
                flow, stacked = computed(unit.params, unit.buffers, zeros, flow), True
            else:
                each = apart(flow, stacked) if each is None else each
                each = [module(*arguments(x)) for module, x in zip(unit, each, strict=True)]
        if each is not None:
            flow = together(each)
        return vmap(last, in_dims=(0, 0, None), randomness="different")(zeros, flow, batch), None

    return all_of


def arguments(flow: Any) -> tuple[Any, ...]:
    """What a unit receives: the values of a tuple one by one."""
    return flow if isinstance(flow, tuple) else (flow,)


def together(each: Sequence[Any]) -> Any:
    """The flows of all models as one, [B, ...]."""
    return tree_map(lambda *tensors: torch.stack(tensors), *each)
