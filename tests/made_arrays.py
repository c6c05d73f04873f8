"""Arrays and the solo models that they must equal: same weights, same batches, and no noise or the same one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchsuite.describe.training import Training
from benchsuite.models import Batch, Share, Workload, on_tensors
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


def made(model: ModuleType, **changed: Any) -> Workload:
    """A workload in fp64, whose weights are a function of the seed; no layer drops anything."""
    params = params_of(model, **changed)
    random.seed(params.seed)
    torch.manual_seed(params.seed)
    workload: Workload = model.build(params)
    place(workload, SOLO, "cpu")
    for net in workload.modules.values():
        net.double()
        for part in net.modules():
            if isinstance(part, (nn.Dropout, nn.Dropout1d, nn.Dropout2d)):
                part.p = 0.0
    return replace(workload, fill=None)


def as_double(batch: Batch) -> Batch:
    return on_tensors(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, batch)


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


def states(workload: Workload) -> list[Tensor]:
    """Weights and buffers of all modules, as floats."""
    tensors = [t for net in workload.modules.values() for t in (*net.parameters(), *net.buffers())]
    return [tensor.detach().double().clone() for tensor in tensors]


def losses_after(step: Step, batches: Sequence[Batch]) -> list[Tensor]:
    """The losses of each step, with the same noise for each way of training."""
    found = []
    with SameNoise() as noise:
        noise.drawn = 0
        for batch in batches:
            step.run(batch)
            found.append(torch.stack(list(step.losses)))
    return found


def compare(model: ModuleType, each: Sequence[dict[str, Any]], steps: int, training: Training = SOLO) -> Difference:
    """Train models solo, and the same models as an array; `each` holds the parameters in which they differ."""
    torch.set_default_dtype(torch.float64)
    try:
        first = made(model, **each[0])
        batches = [as_double(batch) for batch in islice(first.batches(Share(seed=1)), steps)]
        solo_losses, solo_states = [], []
        for changed in each:
            workload = made(model, **changed)
            step = make_step(workload, replaced(training, array=1, unfused_units=0))
            solo_losses.append(losses_after(step, batches))
            solo_states.append(states(workload))
        workloads = [made(model, **changed) for changed in each]
        step, fused = array.fuse(workloads, replaced(training, array=len(each)), "cpu")
        losses = losses_after(step, batches)
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
