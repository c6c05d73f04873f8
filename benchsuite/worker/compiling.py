"""torch.compile: the loss with the modules that it calls, as one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from benchsuite.describe.training import Compile, Training
from benchsuite.measurement import Compiled
from benchsuite.models import Batch, Carry, Loss, Nets
from benchsuite.worker.precision import device_type

if TYPE_CHECKING:
    from torch import Tensor

GRAPHED: frozenset[Compile] = frozenset({"reduce-overhead", "max-autotune"})


def settings(training: Training) -> dict[str, str]:
    """Arguments of torch.compile."""
    return {"backend": training.compile} if training.compile == "aot_eager" else {"mode": training.compile}


def compiled(loss: Loss, nets: Nets, training: Training) -> Callable[[Batch, Carry], tuple[Tensor, Carry]]:
    """An update's loss as a function of batch and carry, which calls `nets`; compiled as one with them."""
    if training.compile != "none":
        import torch

        loss = torch.compile(loss, **settings(training))
    return partial(loss, nets)


def graphed(training: Training, device: str) -> bool:
    """Whether the outputs of compiled code lie in memory that a CUDA graph writes again in the next step."""
    return training.compile in GRAPHED and device_type(device) == "cuda"


def begin_graphed() -> None:
    """Mark the begin of a step, from which on CUDA graphs may write to the outputs of the last one."""
    import torch

    torch.compiler.cudagraph_mark_step_begin()


def read_compiled() -> Compiled:
    """What Dynamo has made in this process so far; a break in a module counts again in each function that calls it.

    Its counters are no public interface, so see `test_step`.
    """
    from torch._dynamo.utils import counters

    return Compiled(graphs=counters["stats"]["unique_graphs"], breaks=sum(counters["graph_break"].values()))


def compiled_in(training: Training, losses: list[Any]) -> Compiled | None:
    """`read_compiled` where something was to be compiled; None for a model without losses."""
    return read_compiled() if training.compile != "none" and losses else None
