"""What a GPU's memory holds during steps, by kind, from the history of torch's allocator."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchsuite.measurement import MEMORY_KINDS, MemoryCurve, MemoryKind
from benchsuite.models import Workload
from benchsuite.schema import to_json

if TYPE_CHECKING:
    from torch import Tensor

# The history holds this many actions, the last ones. A step of a large model has some ten thousand.
_MOST_ACTIONS = 2_000_000
# Points of the curve that is kept; of the actions between two points the one with the most memory is shown.
_POINTS = 1_000
# What the allocator calls the return of memory by its owner.
_FREED = "free_requested"


@dataclass
class Labels:
    """Which kind of tensor was seen at an address, and when (microseconds of the wall clock)."""

    seen: dict[int, list[tuple[float, MemoryKind]]] = field(default_factory=dict)

    def note(self, tensor: Tensor, kind: MemoryKind) -> None:
        """A tensor of this kind exists now."""
        address = tensor.untyped_storage().data_ptr()
        if address:
            self.seen.setdefault(address, []).append((time.time_ns() / 1e3, kind))

    def of(self, address: int, start_us: float, end_us: float) -> MemoryKind:
        """The kind of a block: that of the tensors seen in it during its life, the most lasting kind of them."""
        kinds = {kind for at, kind in self.seen.get(address, ()) if start_us <= at <= end_us}
        return next((kind for kind in MEMORY_KINDS if kind in kinds), "temporary")


@contextmanager
def recorded_memory(path: Path, device: str, workload: Workload) -> Iterator[None]:
    """Record the allocator of a GPU during the block, and write its `MemoryCurve`.

    Weights and the optimiser's state are known by their tensors, gradients by hooks on the parameters, activations by
    the tensors that autograd saves. Whatever else is allocated is temporary.
    """
    import torch

    cuda = torch.cuda
    labels = Labels()
    handles = list(_labelled(labels, workload))
    held = _blocks(cuda.memory.memory_snapshot())
    began_us = time.time_ns() / 1e3
    cuda.reset_peak_memory_stats(device)
    cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=_MOST_ACTIONS)
    try:
        with torch.autograd.graph.saved_tensors_hooks(_saving(labels), lambda tensor: tensor):
            yield
        cuda.synchronize(device)
        actions = cuda.memory._snapshot(device)["device_traces"][cuda.current_device()]
    finally:
        cuda.memory._record_memory_history(enabled=None)
        for handle in handles:
            handle.remove()
    free, total = cuda.mem_get_info(device)
    curve = curve_of(
        held,
        actions,
        labels,
        began_us,
        peak_bytes=cuda.max_memory_allocated(device),
        reserved_bytes=cuda.max_memory_reserved(device),
        device_used_bytes=total - free,
    )
    path.write_bytes(to_json(curve))


def _saving(labels: Labels) -> Any:
    def pack(tensor: Tensor) -> Tensor:
        if tensor.is_cuda:
            labels.note(tensor, "activations")
        return tensor

    return pack


def _labelled(labels: Labels, workload: Workload) -> Iterator[Any]:
    """Note the tensors that there are, and hook those that come: gradients, and the optimisers' state."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    for net in workload.modules.values():
        for tensor in (*net.parameters(), *net.buffers()):
            labels.note(tensor, "weights")
        for param in net.parameters():
            if param.requires_grad:
                yield param.register_post_accumulate_grad_hook(lambda p: labels.note(p.grad, "gradients"))

    def after_step(optimiser: Any, *_: Any) -> None:
        for state in optimiser.state.values():
            for value in state.values():
                if hasattr(value, "untyped_storage") and value.is_cuda:
                    labels.note(value, "optimiser state")

    yield register_optimizer_step_post_hook(after_step)


def _blocks(segments: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Address -> size of what is allocated."""
    found: dict[int, int] = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            at = block.get("address", address)
            if block["state"] == "active_allocated":
                found[at] = block["size"]
            address = at + block["size"]
    return found


@dataclass(frozen=True)
class _Life:
    """A block from its allocation to its return."""

    address: int
    size: int
    start_us: float
    end_us: float


def lives(held: Mapping[int, int], actions: Iterable[Mapping[str, Any]], began_us: float) -> list[_Life]:
    """The blocks that lived during the recording, those that were held before it included."""
    open_at = {address: (size, 0.0) for address, size in held.items()}
    found: list[_Life] = []
    for action in actions:
        address, at_us = action["addr"], max(float(action["time_us"]), began_us)
        if action["action"] == "alloc":
            open_at[address] = (action["size"], at_us)
        elif action["action"] == _FREED and address in open_at:
            size, start_us = open_at.pop(address)
            found.append(_Life(address, size, start_us, at_us))
    found += [_Life(address, size, start_us, float("inf")) for address, (size, start_us) in open_at.items()]
    return found


def curve_of(
    held: Mapping[int, int],
    actions: Sequence[Mapping[str, Any]],
    labels: Labels,
    began_us: float,
    *,
    peak_bytes: int,
    reserved_bytes: int,
    device_used_bytes: int,
) -> MemoryCurve:
    """Memory by kind over the recorded time.

    Args:
        held: address -> size of the blocks that were allocated before.
        actions: the allocator's history, in order; times in microseconds of the wall clock.
        peak_bytes, reserved_bytes: torch's own peaks of what is allocated and reserved.
        device_used_bytes: what the driver counts as used on the device, other processes included.
    """
    changes: list[tuple[float, int, MemoryKind]] = []
    now = dict.fromkeys(MEMORY_KINDS, 0)
    for life in lives(held, actions, began_us):
        kind = labels.of(life.address, life.start_us, life.end_us)
        if life.start_us < began_us:
            kind = "other" if kind == "temporary" else kind
            now[kind] += life.size
        else:
            changes.append((life.start_us, life.size, kind))
        if life.end_us != float("inf"):
            changes.append((life.end_us, -life.size, kind))
    changes.sort(key=lambda change: change[0])
    points: list[tuple[float, ...]] = [(0.0, *now.values())]
    for at_us, size, kind in changes:
        now[kind] += size
        points.append(((at_us - began_us) / 1e6, *now.values()))
    peak = max(points, key=lambda point: sum(point[1:]))
    return MemoryCurve(
        points=tuple(_thinned(points)),
        at_peak=dict(zip(MEMORY_KINDS, map(int, peak[1:]), strict=True)),
        peak_at_s=peak[0],
        peak_bytes=peak_bytes,
        reserved_bytes=reserved_bytes,
        device_used_bytes=device_used_bytes,
    )


def _thinned(points: Sequence[tuple[float, ...]]) -> Iterator[tuple[float, ...]]:
    """At most `_POINTS` of the points: of each group of neighbours the one with the most memory."""
    group = -(-len(points) // _POINTS)
    for first in range(0, len(points), group):
        yield max(points[first : first + group], key=lambda point: sum(point[1:]))
