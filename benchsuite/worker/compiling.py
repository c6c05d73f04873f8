"""torch.compile: a loss is compiled together with the modules that it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from benchsuite.describe.training import GRAPHED, Training
from benchsuite.measurement import Compiled
from benchsuite.models import Batch, Carry, Loss, Nets
from benchsuite.worker.precision import device_type

if TYPE_CHECKING:
    from torch import Tensor, nn


def settings(training: Training) -> dict[str, str]:
    """The keyword arguments of torch.compile for a training."""
    return {"backend": training.compile} if training.compile == "aot_eager" else {"mode": training.compile}


def compiled(loss: Loss, nets: Nets, training: Training) -> Callable[[Batch, Carry], tuple[Tensor, Carry]]:
    """An update's loss as a function of batch and carry, compiled together with `nets` if the training asks for it."""
    if training.compile != "none":
        import torch

        loss = torch.compile(loss, **settings(training))
    return partial(loss, nets)


def compile_forwards(modules: Iterable[nn.Module], training: Training) -> None:
    """Compile the forward pass of each module on its own, in place, if the training asks for it.

    Hooks of the modules stay outside. Modules that are alike share one compiled graph.
    """
    if training.compile == "none":
        return
    import torch

    for module in modules:
        module.forward = torch.compile(module.forward, **settings(training))


def graphed(training: Training, device: str) -> bool:
    """Are the outputs of compiled code in memory that a CUDA graph overwrites in the next step?"""
    return training.compile in GRAPHED and device_type(device) == "cuda"


def begin_graphed() -> None:
    """Mark the begin of a step: from here on CUDA graphs may overwrite the outputs of the last step."""
    import torch

    torch.compiler.cudagraph_mark_step_begin()


def read_compiled() -> Compiled:
    """The graphs and graph breaks that Dynamo has counted in this process so far.

    A break in a module counts once for each function that calls the module. The counters are private to torch:
    `test_step` notices if they change.
    """
    from torch._dynamo.utils import counters

    return Compiled(graphs=counters["stats"]["unique_graphs"], breaks=sum(counters["graph_break"].values()))


def compiled_in(training: Training, losses: list[Any]) -> Compiled | None:
    """`read_compiled` if the training compiles; None otherwise, and for a model without losses."""
    return read_compiled() if training.compile != "none" and losses else None
