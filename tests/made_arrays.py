"""Arrays and the solo models that they must equal: same weights, same batches, and no noise or the same one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from itertools import islice
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.overrides import TorchFunctionMode

from benchsuite.describe.training import Training
from benchsuite.models import Batch, Optimiser, Share, Workload, on_tensors
from benchsuite.worker.step import Step, place
from benchsuite.worker.ways import array, make_step

SOLO = Training()


class SameNoise(TorchFunctionMode):
    """The n-th tensor of noise is a function of n and its shape, so that all models get the same."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.randn_like, torch.rand_like):
            return self._noise(func is torch.randn_like, tuple(args[0].shape), args[0].dtype)
        if func in (torch.randn, torch.rand):
            shape = args[0] if isinstance(args[0], (tuple, torch.Size)) else args
            return self._noise(func is torch.randn, tuple(shape), torch.get_default_dtype())
        return func(*args, **kwargs)

    def _noise(self, normal: bool, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        self.drawn += 1
        draw = np.random.default_rng(self.drawn)
        return torch.from_numpy(draw.normal(size=shape) if normal else draw.uniform(size=shape)).to(dtype)


def params_of(model: ModuleType, **changed: Any) -> Any:
    """The model's SMALL parameters, without dropout where a parameter sets it."""
    known = {one.name for one in fields(model.Params)}
    return model.Params(**{**model.SMALL, **({"dropout": 0.0} if "dropout" in known else {}), **changed})


def made(model: ModuleType, dtype: torch.dtype, **changed: Any) -> Workload:
    """A workload of this dtype, whose weights are a function of the seed; no layer drops anything.

    Adam divides by the gradients' size. Its `eps` is raised, so that it does not turn rounding errors into weights
    where a gradient is 0, as that of a bias before batch norm is.
    """
    params = params_of(model, **changed)
    random.seed(params.seed)
    torch.manual_seed(params.seed)
    workload: Workload = model.build(params)
    place(workload, SOLO, "cpu")
    for net in workload.modules.values():
        net.to(dtype)
        for part in net.modules():
            if isinstance(part, (nn.Dropout, nn.Dropout1d, nn.Dropout2d)):
                part.p = 0.0
    updates = tuple(replace(update, optimiser=calm(update.optimiser)) for update in workload.updates)
    return replace(workload, fill=None, updates=updates)


def calm(optimiser: Optimiser) -> Optimiser:
    adaptive = optimiser.kind in (optim.Adam, optim.AdamW, optim.RMSprop)
    return replace(optimiser, settings={**optimiser.settings, "eps": 1e-3}) if adaptive else optimiser


def as_dtype(batch: Batch, dtype: torch.dtype) -> Batch:
    return on_tensors(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, batch)


@dataclass(frozen=True)
class Difference:
    """The largest differences between an array and its solo models, relative to the largest value of each tensor."""

    losses: float
    weights: float
    notes: tuple[str, ...]


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors, relative to the largest value; infinite if one is not finite."""
    if not one.numel():
        return 0.0
    found = (one.detach() - other).abs().max() / other.abs().max().clamp(min=1e-3)
    return float(found) if torch.isfinite(found) else float("inf")


def states(workload: Workload, by_units: bool) -> list[Tensor]:
    """Weights and buffers of all modules or units, as floats."""
    parts = workload.chain.units() if by_units and workload.chain else workload.modules.values()
    tensors = [t for net in parts for t in (*net.parameters(), *net.buffers())]
    return [tensor.detach().double().clone() for tensor in tensors]


def losses_after(step: Step, batches: Sequence[Batch], noisy: bool) -> list[Tensor]:
    """The losses [updates] or [updates, B] of each step, with the same noise for each way of training."""
    found = []
    with SameNoise() if noisy else nullcontext():
        for batch in batches:
            step.run(batch)
            found.append(torch.stack(list(step.losses)))
    return found


def compare(
    model: ModuleType,
    each: Sequence[dict[str, Any]],
    steps: int,
    training: Training = SOLO,
    *,
    dtype: torch.dtype = torch.float64,
    noisy: bool = True,
) -> Difference:
    """Train models solo, and the same models as an array; `each` holds the parameters in which they differ.

    Args:
        noisy: the loss draws noise, which is then the same for all models; such a loss cannot be compiled here.
    """
    torch.set_default_dtype(dtype)
    try:
        first = made(model, dtype, **each[0])
        batches = [as_dtype(batch, dtype) for batch in islice(first.batches(Share(seed=1)), steps)]
        solo_losses, solo_states = [], []
        for changed in each:
            workload = made(model, dtype, **changed)
            step = make_step(workload, replaced(training, array=1, unfused_units=0))
            solo_losses.append(losses_after(step, batches, noisy))
            solo_states.append(states(workload, bool(training.unfused_units)))
        workloads = [made(model, dtype, **changed) for changed in each]
        step, fused = array.fuse(workloads, replaced(training, array=len(each)), "cpu")
        losses = losses_after(step, batches, noisy)
        step.check()
    finally:
        torch.set_default_dtype(torch.float32)
    of_losses = max(
        apart(losses[at][:, model], solo_losses[model][at]) for model in range(len(each)) for at in range(steps)
    )
    of_states = max(
        apart(mine, other)
        for index, solo in enumerate(solo_states)
        for mine, other in zip(fused.state(index), solo, strict=True)
    )
    return Difference(of_losses, of_states, (*step.notes, *step.found))


def replaced(training: Training, **changed: Any) -> Training:
    return msgspec.structs.replace(training, **changed)
