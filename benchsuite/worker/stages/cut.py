"""Cut a model's chain of units into stages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchsuite.errors import ModelError
from benchsuite.models import Batch, Chain, Workload, on_tensors
from benchsuite.pipeline.balance import balanced
from benchsuite.worker.flop_modes import formulas
from benchsuite.worker.flops import attempted, emptied, on_meta
from benchsuite.worker.stages.recurrent import without_loops

Flow = tuple[Any, ...]


@dataclass(frozen=True)
class Cut:
    """The units of each stage, and by what they were divided.

    Attributes:
        by: the job gives the number of units, or they are balanced by FLOPs or, if a model cannot be counted, by
            parameters.
        reason: why FLOPs are not known.
    """

    stages: tuple[tuple[nn.Module, ...], ...]
    by: Literal["given", "flops", "parameters"]
    reason: str | None = None


def applied(units: Sequence[nn.Module], flow: Flow) -> Flow:
    """The flow after some units of a chain: a tuple of what the last of them returns."""
    for unit in units:
        found = unit(*flow)
        flow = found if isinstance(found, tuple) else (found,)
    return flow


def checked_chain(workload: Workload) -> Chain:
    """The chain of a workload that can be cut.

    Raises:
        ModelError: it has none, or the workload is not one module with one update.
    """
    if workload.step:
        raise ModelError("the model steps by itself and cannot be cut into stages; leave parallel.pp out")
    if workload.chain is None or len(workload.updates) != 1:
        raise ModelError("the model gives no chain of units and cannot be cut into stages; leave parallel.pp out")
    update = workload.updates[0]
    if update.times > 1 or update.after:
        raise ModelError("the model changes its weights several times a step; it cannot be cut into stages")
    return workload.chain


def cut(
    chain: Chain, stages: int, given: Sequence[int] | None, batch: Batch, replicas: Sequence[int] | None = None
) -> Cut:
    """The stages of a chain.

    Args:
        given: the number of units of each stage; None: balance them.
        batch: shapes for which FLOPs are counted.
        replicas: of each stage, which share its work; None: equally many.

    Raises:
        ModelError: there are fewer units than stages, `given` has other units, or two stages share a weight.
    """
    units = list(chain.units())
    if len(units) < stages:
        raise ModelError(f"the model has {len(units)} units, fewer than {stages} stages; lower parallel.pp")
    by: Literal["given", "flops", "parameters"] = "given"
    reason = None
    if given is None:
        costs, reason = attempted(partial(unit_flops, units, chain.inputs(batch)))
        by = "flops"
        if not costs or not sum(costs):
            by, costs = "parameters", [float(sum(p.numel() for p in unit.parameters())) for unit in units]
        given = balanced(costs, stages, replicas)
    elif sum(given) != len(units):
        raise ModelError(f"parallel.stages counts {sum(given)} units, and the model has {len(units)}; correct it")
    ends = list(itertools.accumulate(given))
    found = tuple(tuple(units[end - size : end]) for end, size in zip(ends, given, strict=True))
    _check_apart(found)
    return Cut(found, by, reason)


def unit_flops(units: Sequence[nn.Module], inputs: Flow) -> list[float]:
    """The FLOPs of each unit's forward pass, counted on the meta device. Each backward pass has about twice as many."""
    copies = on_meta({str(place): unit for place, unit in enumerate(units)})
    without_loops(copies.values())
    flow: Flow = on_tensors(emptied, inputs)
    found = []
    with torch.no_grad():
        for unit in copies.values():
            with FlopCounterMode(display=False, custom_mapping=formulas()) as counter:
                flow = applied([unit], flow)
            found.append(float(counter.get_total_flops()))
    return found


def _check_apart(stages: Sequence[Sequence[nn.Module]]) -> None:
    """Raises ModelError: two stages share a weight. Each of them would train its own copy."""
    seen: dict[int, int] = {}
    for place, units in enumerate(stages):
        for tensor in (param for unit in units for param in unit.parameters()):
            other = seen.setdefault(id(tensor), place)
            if other != place:
                shape = " x ".join(map(str, tensor.shape))
                raise ModelError(
                    f"stages {other} and {place} share a weight ({shape}), which only one of them could train: untie "
                    "it (parameter 'tied': false), or give parallel.stages so that one stage has both"
                )


def names_of(net: nn.Module, units: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Path in the whole module -> parameter or buffer of these units."""
    own = {id(t) for unit in units for t in itertools.chain(unit.parameters(), unit.buffers())}
    every = itertools.chain(net.named_parameters(), net.named_buffers())
    return {path: tensor for path, tensor in every if id(tensor) in own}
