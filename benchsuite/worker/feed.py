"""Batches on their way to the device: as a step asks for each, or one ahead of it on a CUDA stream of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from benchsuite.describe.training import Training
from benchsuite.models import Batch, on_tensors
from benchsuite.worker.precision import device_type

if TYPE_CHECKING:
    from torch import Tensor

Feed: TypeAlias = Callable[[Iterator[Batch]], Iterator[Batch]]

# A stream of its own costs the host some 20 microseconds a step, in which a GPU copies about this much over PCIe.
LEAST_BYTES = 1 << 20
END = object()


class Copies(Protocol):
    """`start(batch)` begins the copy of a batch and returns it as it will be; `wait()` has the step wait for it."""

    def start(self, batch: Batch) -> Batch: ...

    def wait(self) -> None: ...


def feed(training: Training, device: str) -> Feed:
    """How a step's batches come to it: on the device, images in the layout of the weights."""
    if device == "cpu" and not training.channels_last:
        return iter
    place = partial(on_tensors, _placed(device, training.channels_last))
    if not training.prefetch or device_type(device) != "cuda":
        return partial(map, place)
    return partial(prefetched, place=place, copies_of=partial(StreamCopies, device, training.channels_last))


def _placed(device: str, channels_last: bool) -> Callable[[Tensor], Tensor]:
    """A tensor of a batch on the device, copied on the stream that computes."""

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device, non_blocking=True)

    if not channels_last:
        return moved
    import torch

    def laid_out(tensor: Tensor) -> Tensor:
        there = moved(tensor)  # first, so that the device has the work of it
        return there.contiguous(memory_format=torch.channels_last) if there.dim() == 4 else there

    return laid_out


def prefetched(
    batches: Iterator[Batch], place: Callable[[Batch], Batch], copies_of: Callable[[], Copies]
) -> Iterator[Batch]:
    """The same batches on the device: while a step computes with one, the next is copied.

    The batch that was taken ahead is the first that the next caller gets, so none is lost. Where the first batch holds
    little in host memory, each is placed as it is asked for.
    """
    first = next(batches, END)
    if first is END:
        return
    if host_bytes(first) < LEAST_BYTES:
        yield place(first)
        yield from map(place, batches)
        return
    copies = copies_of()
    ready = copies.start(first)
    del first
    for batch in batches:
        copies.wait()  # before the next copy starts: the step waits for the copies of `ready` alone
        following = copies.start(batch)
        yield ready
        ready = following
    copies.wait()
    yield ready


def host_bytes(batch: Batch) -> int:
    """Size of the tensors that lie in host memory."""
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes if tensor.device.type == "cpu" else 0)
        return tensor

    on_tensors(note, batch)
    return sum(sizes)


class StreamCopies:
    """Copies to a GPU on a CUDA stream of their own.

    A batch's memory is taken from the stream that computes, and a copy starts once the work given to that stream so far
    is done. So memory that a step gave back can be used without an event for each tensor, and no more than three
    batches are ever on the device, however far the host runs ahead.
    """

    def __init__(self, device: str, channels_last: bool) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = torch.device(device)
        self._computing = torch.cuda.current_stream(self._device)
        self._copying = torch.cuda.Stream(self._device)
        self._like = partial(torch.empty_like, device=self._device)
        self._images: dict[str, Any] = {"memory_format": torch.channels_last} if channels_last else {}

    def start(self, batch: Batch) -> Batch:
        """Let the copy stream copy a batch; pinned host memory is read while the host goes on."""
        pairs: list[tuple[Tensor, Tensor]] = []

        def target(tensor: Tensor) -> Tensor:
            there: Tensor = self._like(tensor, **(self._images if tensor.dim() == 4 else {}))
            pairs.append((there, tensor))
            return there

        there = on_tensors(target, batch)
        self._copying.wait_stream(self._computing)
        with self._cuda.stream(self._copying):
            for to, tensor in pairs:
                self._copy(to, tensor)
        return there

    def _copy(self, to: Tensor, tensor: Tensor) -> None:
        if (
            to.stride() != tensor.stride()
        ):  # the GPU changes the layout: a copy to another layout would do so on the CPU
            tensor = tensor.to(self._device, non_blocking=True)
        to.copy_(tensor, non_blocking=True)

    def wait(self) -> None:
        """Let the stream that computes wait for the copies started so far."""
        self._computing.wait_stream(self._copying)
