"""Copy batches to the device: when a step asks for one, or one ahead on a CUDA stream of its own."""

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

# A second stream costs the host about 20 microseconds a step. In that time a GPU copies about this much over PCIe.
LEAST_BYTES = 1 << 20
END = object()


class Copies(Protocol):
    """Copies of batches that run while the device computes."""

    def start(self, batch: Batch) -> Batch:
        """Begin to copy a batch. The result holds the copied values once `wait` was called."""

    def wait(self) -> None:
        """Let the next step wait for the copies started so far. The host does not wait."""


def feed(training: Training, device: str) -> Feed:
    """The function that takes batches and gives them on the device, with images in the layout of the weights."""
    if device == "cpu" and not training.channels_last:
        return iter
    place = partial(on_tensors, _placed(device, training.channels_last))
    if not training.prefetch or device_type(device) != "cuda":
        return partial(map, place)
    return partial(prefetched, place=place, copies_of=partial(StreamCopies, device, training.channels_last))


def _placed(device: str, channels_last: bool) -> Callable[[Tensor], Tensor]:
    """The function that copies a tensor to the device, on the stream that computes."""

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device, non_blocking=True)

    if not channels_last:
        return moved
    import torch

    def laid_out(tensor: Tensor) -> Tensor:
        there = moved(tensor)  # first, so that the device changes the layout
        return there.contiguous(memory_format=torch.channels_last) if there.dim() == 4 else there

    return laid_out


def prefetched(
    batches: Iterator[Batch], place: Callable[[Batch], Batch], copies_of: Callable[[], Copies]
) -> Iterator[Batch]:
    """The batches on the device. While a step computes with one batch, the next is copied.

    No batch is lost when a loop stops: the next caller gets the batch that was copied ahead. If the first batch holds
    less than `LEAST_BYTES` in host memory, no batch is copied ahead.

    Args:
        place: copies one batch at once.
        copies_of: makes the `Copies` for larger batches.
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
    """The size of those tensors of a batch that are in host memory."""
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes if tensor.device.type == "cpu" else 0)
        return tensor

    on_tensors(note, batch)
    return sum(sizes)


class StreamCopies:
    """Copies to a GPU on a CUDA stream of their own.

    The memory of a copy belongs to the stream that computes. A copy starts once that stream has done all work given to
    it so far. Freed memory can therefore be used again without an event for each tensor, and the device never holds
    more than three batches, however far the host is ahead.
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
        """Let the copy stream copy a batch. The host does not wait if the batch is in pinned memory."""
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
        if to.stride() != tensor.stride():
            # A copy between layouts would be rearranged on the CPU, so the GPU gets the tensor first.
            tensor = tensor.to(self._device, non_blocking=True)
        to.copy_(tensor, non_blocking=True)

    def wait(self) -> None:
        """Let the stream that computes wait for the copies started so far."""
        self._computing.wait_stream(self._copying)
