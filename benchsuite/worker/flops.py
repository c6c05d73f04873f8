"""Model FLOPs: what the losses of a workload and their backward passes compute, counted on torch's meta device.

Tensors of the meta device have shapes and no values. The count uses neither memory nor time of the device that trains,
and it runs after the measurement. torch's flop counter has the formulas, in which a multiply-add is 2 FLOPs. It counts
matrix products and convolutions, and nothing else. On the meta device attention is two plain products, so that the
whole square counts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from benchsuite.errors import encodable, one_line
from benchsuite.measurement import ModelFlops
from benchsuite.models import Batch, Carry, Workload, on_tensors
from benchsuite.worker.microbatches import Splitter

if TYPE_CHECKING:
    from torch import Tensor, nn

T = TypeVar("T")

# The first batches, whose shapes stand for all: those that warm up at least.
BATCHES = 5
LIMIT_S = 15.0


class TooLong(RuntimeError):
    """The time for counting is over."""


@dataclass(frozen=True)
class Shapes:
    """A batch on the meta device, and the number of its items."""

    batch: Batch
    items: int


@dataclass(frozen=True)
class Counted:
    """The FLOPs of one batch, and the part of them that causal masks hide."""

    total: float
    causal: float


class FlopCount:
    """Counts the model FLOPs of a workload.

    Make it before a way of training changes the modules: their copies on the meta device are made here.

    Args:
        limit_s: the time after which counting stops.
    """

    def __init__(self, workload: Workload, limit_s: float = LIMIT_S) -> None:
        self._workload, self._limit_s = workload, limit_s
        self._seen: dict[object, Shapes] = {}
        self._nets: Mapping[str, nn.Module] = {}
        self._reason: str | None = None
        if not workload.updates:
            self._reason = "the model steps by itself" if workload.step else "the model trains nothing"
            return
        nets, self._reason = attempted(lambda: on_meta(workload.modules))
        self._nets = nets or {}

    def seen(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; the shapes of the first `BATCHES` are kept."""
        if self._reason:
            return batches
        return self._watched(batches)

    def _watched(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in itertools.islice(batches, BATCHES):
            if self._reason is None:
                _, self._reason = attempted(partial(self._note, batch))
            yield batch
        batch = None  # it must not stay in memory
        yield from batches

    def _note(self, batch: Batch) -> None:
        shapes = Shapes(on_tensors(emptied, batch), int(self._workload.items(batch)))
        self._seen.setdefault(shape_of(batch), shapes)

    def counted(self) -> ModelFlops:
        """The FLOPs of an item over the batches seen that differ in shape, or the reason why they are not known.

        No error of the model ends the task, whatever its class.
        """
        found: list[tuple[Counted, int]] = []
        until_s = time.monotonic() + self._limit_s
        late = TooLong(f"counting on the meta device takes over {self._limit_s:g} s")
        reason = self._reason or ("no batch was seen" if not self._seen else None)
        for shapes in self._seen.values() if reason is None else ():
            one, reason = attempted(partial(flops_of, self._workload, self._nets, shapes.batch, until_s, late))
            if one is None or not shapes.items:
                break
            found.append((one, shapes.items))
        if not found:
            return ModelFlops(products=self._workload.products, reason=reason or "a batch has no items")
        items = sum(items for _, items in found)
        per_item = sum(one.total for one, _ in found) / items
        each = [one.total / items for one, items in found]
        return ModelFlops(
            per_item=per_item,
            causal_per_item=sum(one.causal for one, _ in found) / items,
            batches=len(found),
            spread=(max(each) - min(each)) / per_item if per_item else 0.0,
            products=self._workload.products,
        )


def attempted(call: Callable[[], T]) -> tuple[T | None, str | None]:
    """The result of a call or, if it raised any error, the reason in one line.

    The call runs in a thread of its own: a future keeps every error, also an exit. Modes of torch that are set for this
    thread do not apply to the call.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(call)
        error = future.exception()
    if error is None:
        return future.result(), None
    if isinstance(error, TooLong):
        return None, str(error)
    return None, f"it cannot run on the meta device: {encodable(one_line(f'{type(error).__name__}: {error}'))[:200]}"


def emptied(tensor: Tensor) -> Tensor:
    """The tensor on the meta device, with its shape, strides and dtype."""
    import torch

    return torch.empty_like(tensor, device="meta")


def shape_of(batch: Batch) -> object:
    """The shapes and dtypes of a batch's tensors, in their order."""
    found: list[object] = []

    def note(tensor: Tensor) -> Tensor:
        found.append((tensor.shape, tensor.dtype))
        return tensor

    on_tensors(note, batch)
    return tuple(found)


def on_meta(modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Copies of the modules whose parameters and buffers are on the meta device. No value is copied."""
    from torch import nn

    known: dict[int, Any] = {}
    for module in modules.values():
        for tensor in itertools.chain(module.parameters(), module.buffers()):
            copy = emptied(tensor.detach())
            if isinstance(tensor, nn.Parameter):
                copy = nn.Parameter(copy, requires_grad=tensor.requires_grad)
            known[id(tensor)] = copy
    return {name: deepcopy(module, known) for name, module in modules.items()}


def flops_of(workload: Workload, nets: Mapping[str, nn.Module], batch: Batch, until_s: float, late: TooLong) -> Counted:
    """The FLOPs of all updates with one batch.

    Args:
        nets: the workload's modules on the meta device.
        until_s: when to stop, on CLOCK_MONOTONIC.
        late: the error to raise then.

    Raises:
        TooLong: `until_s` has passed.
    """
    from torch.utils.flop_counter import FlopCounterMode

    from benchsuite.worker.flop_modes import CausalAttention, Limited, formulas

    causal = CausalAttention()
    with Limited(until_s, late), FlopCounterMode(display=False, custom_mapping=formulas()) as counter, causal:
        carry: Carry = None
        for update in workload.updates:
            trained = [param for param in nets[update.trains].parameters() if param.requires_grad]
            parts = Splitter(update.times, "Update.times").split(batch) if update.times > 1 else None
            for part in [one.batch for one in parts] if parts else [batch]:
                loss, carry = update.loss(nets, part, carry)
                loss.backward(inputs=trained if len(workload.updates) > 1 else None)
                carry = on_tensors(lambda tensor: tensor.detach(), carry)
    return Counted(counter.get_total_flops(), causal.hidden)
