"""What a step trains, by the names of the whole model: it is read for a checkpoint, and set from one.

A rank may hold a part of a model only, such as one stage of a pipeline. The parts of all ranks join by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from benchsuite.errors import ModelError
from benchsuite.models import Workload
from benchsuite.worker.learner import Learner

if TYPE_CHECKING:
    from torch import Tensor

# Module of the workload -> name of a parameter or buffer in the whole module -> tensor.
Tensors: TypeAlias = "Mapping[str, Mapping[str, Tensor]]"
# Plain dicts, tensors in host memory, numbers and texts.
Content: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class State:
    """The weights, optimisers and loss scales of this rank.

    Attributes:
        tensors: returns the parameters and buffers that this rank holds.
        learners: name of an update -> what trains its parameters.
        stage: the part of the model that this rank holds; ranks of one stage hold the same.
        stages: the number of these parts.
        writes: this rank writes its stage; None: rank 0 does.
    """

    tensors: Callable[[], Tensors]
    learners: Mapping[str, Learner]
    stage: int = 0
    stages: int = 1
    writes: bool | None = None

    def read(self) -> Content:
        """A copy in host memory. All ranks call it, since a tensor that is split among ranks is gathered."""
        tensors = self.tensors()
        names = _names(tensors)
        return {
            "modules": {module: {name: _whole(t) for name, t in of.items()} for module, of in tensors.items()},
            "optimisers": {update: _read(learner.optimiser, names) for update, learner in self.learners.items()},
            "scalers": {
                update: dict(learner.scaler.state_dict())
                for update, learner in self.learners.items()
                if learner.scaler is not None
            },
            "schedules": {
                update: {"steps": learner.scheduled.steps}
                for update, learner in self.learners.items()
                if learner.scheduled is not None
            },
        }

    def set(self, content: Content) -> None:
        """Set all that this rank holds. Names of other ranks are ignored.

        Raises:
            ModelError: a tensor is missing, or has another shape.
        """
        import torch

        tensors = self.tensors()
        with torch.no_grad():
            for module, of in tensors.items():
                known = content["modules"].get(module, {})
                for name, tensor in of.items():
                    tensor.copy_(_like(tensor, known.get(name), f"{module}.{name}"))
        names = _names(tensors)
        for update, learner in self.learners.items():
            _set(learner.optimiser, names, content["optimisers"].get(update, {}))
            if learner.scaler is not None and content["scalers"].get(update):
                learner.scaler.load_state_dict(content["scalers"][update])
            if learner.scheduled is not None:
                learner.scheduled.set(content["schedules"].get(update, {}).get("steps", 0))


def state_of(workload: Workload, learners: Sequence[Learner]) -> State:
    """The state of a rank that holds the whole modules of a workload, or a shard of each of their tensors.

    Args:
        learners: one for each update, in order.
    """
    named = {
        f"{n}.{update.trains}": one for n, (update, one) in enumerate(zip(workload.updates, learners, strict=True))
    }
    return State(lambda: tensors_of(workload), named)


def tensors_of(workload: Workload) -> Tensors:
    """The parameters and the persistent buffers of all modules."""
    import torch

    return {
        module: {name: t for name, t in net.state_dict(keep_vars=True).items() if isinstance(t, torch.Tensor)}
        for module, net in workload.modules.items()
    }


def _names(tensors: Tensors) -> dict[int, str]:
    """The name of each tensor, by its identity. A tensor with two names has the first one."""
    found: dict[int, str] = {}
    for module, of in tensors.items():
        for name, tensor in of.items():
            found.setdefault(id(tensor), f"{module}.{name}")
    return found


def _whole(tensor: Tensor) -> Tensor:
    """A copy in host memory, gathered from all ranks if they share it."""
    tensor = tensor.detach()
    gather = getattr(tensor, "full_tensor", None)
    if gather is not None:
        tensor = gather()
    return tensor.to("cpu", copy=True)


def _like(tensor: Tensor, value: Any, name: str) -> Tensor:
    """The value, split as the tensor is.

    Raises:
        ModelError: there is no value, or it has another shape.
    """
    if value is None:
        raise ModelError(f"the checkpoint holds no '{name}'; continue with the model that wrote it")
    if tuple(value.shape) != tuple(tensor.shape):
        shapes = f"{tuple(value.shape)}, and the model's is {tuple(tensor.shape)}"
        raise ModelError(f"the checkpoint's '{name}' has shape {shapes}; give the parameters of the checkpoint")
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(tensor.device), mesh, tensor.placements, src_data_rank=None)


def _read(optimiser: Any, names: Mapping[int, str]) -> Content:
    """Name of a parameter -> what the optimiser keeps of it."""
    return {
        names[id(param)]: {key: _whole(value) if hasattr(value, "detach") else value for key, value in kept.items()}
        for param, kept in optimiser.state.items()
    }


def _set(optimiser: Any, names: Mapping[int, str], content: Content) -> None:
    """Set what an optimiser keeps of its parameters. Its settings stay those of the job."""
    described = optimiser.state_dict()
    numbers = [number for group in described["param_groups"] for number in group["params"]]
    params = [param for group in optimiser.param_groups for param in group["params"]]
    state = {}
    for number, param in zip(numbers, params, strict=True):
        name = names[id(param)]
        if name in content:
            state[number] = {
                # A single number, such as the count of steps, is split by no way of training.
                key: _like(param, value, f"{name}: {key}") if getattr(value, "ndim", 0) else value
                for key, value in content[name].items()
            }
    optimiser.load_state_dict({"state": state, "param_groups": described["param_groups"]})
