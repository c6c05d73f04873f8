"""Where the time of a timeline goes: how long each GPU computes, copies and communicates, and why it is idle."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from benchsuite.trace.intervals import Intervals, both, clipped, holds, outside, union
from benchsuite.trace.kernels import kernel_class
from benchsuite.trace.timeline import COLLECTIVE, COPY, KERNEL, GpuWork, Timeline

# Between two kernels that are both queued a GPU needs a few microseconds.
QUEUE_US = 20.0


@dataclass(frozen=True)
class Idle:
    """Why a GPU has nothing to do, in seconds.

    Attributes:
        input_s: the host waits for the data loader.
        sync_s: the host waited for the GPU, whose queue ran empty; work that follows comes late.
        host_s: the host launches the next kernel too late for another reason (Python, launches, the model's own code).
        queue_s: gaps before work that was launched in time: between kernels, and for streams that wait for each other.
    """

    input_s: float
    sync_s: float
    host_s: float
    queue_s: float

    @property
    def total_s(self) -> float:
        return self.input_s + self.sync_s + self.host_s + self.queue_s


@dataclass(frozen=True)
class KernelUse:
    """All launches of one kernel, or of one class of kernels."""

    name: str
    kind: str
    launches: int
    elapsed_s: float


@dataclass(frozen=True)
class GpuUse:
    """Where the window of one GPU goes; all times in seconds.

    `compute_s + communication_s + copies_s + idle.total_s` is `window_s`. Work of the first kind hides the others:
    `communication_s` is the time in which collectives run and no other kernel, `copies_s` that with copies or fills
    alone.

    Attributes:
        communicating_s, copying_s: all time with collectives, and with copies or fills, hidden or not.
        kernels: by time, the longest first; `classes` likewise.
    """

    device: int
    window_s: float
    compute_s: float
    communication_s: float
    copies_s: float
    idle: Idle
    communicating_s: float
    copying_s: float
    launches: int
    kernels: tuple[KernelUse, ...]
    classes: tuple[KernelUse, ...]

    @property
    def utilisation(self) -> float:
        """The share of the window in which at least one kernel runs, that of collectives included."""
        return (self.compute_s + self.communication_s) / self.window_s

    @property
    def busy(self) -> float:
        """The share of the window in which the GPU does anything."""
        return 1 - self.idle.total_s / self.window_s

    @property
    def hidden_communication(self) -> float | None:
        """The share of the collectives' time in which other kernels run; None without collectives."""
        return 1 - self.communication_s / self.communicating_s if self.communicating_s else None

    @property
    def hidden_copies(self) -> float | None:
        """The share of the copies' time in which kernels run; None without copies."""
        return 1 - self.copies_s / self.copying_s if self.copying_s else None


def window(timeline: Timeline) -> tuple[float, float]:
    """Start and end of what is analysed, in microseconds.

    With marked steps: from the first one's start to the last one's end, or to the end of the last GPU work. Without
    marks: from the start of the first GPU work to the end of the last.
    """
    last = max(float(gpu.ends_us.max()) for gpu in timeline.gpus.values())
    if timeline.steps:
        return timeline.steps[0][0], max(last, *(end for _, end in timeline.steps))
    return min(float(gpu.starts_us.min()) for gpu in timeline.gpus.values()), last


def analysed(timeline: Timeline) -> tuple[GpuUse, ...]:
    """The use of each GPU; empty if no GPU did anything."""
    if not timeline.gpus:
        return ()
    start, end = window(timeline)
    return tuple(_use(timeline, device, start, end) for device in timeline.gpus)


def _use(timeline: Timeline, device: int, start: float, end: float) -> GpuUse:
    work = timeline.gpus[device]
    compute, collective, copies = (clipped(work.of(kind), start, end) for kind in (KERNEL, COLLECTIVE, COPY))
    kernels = _either(compute, collective)
    busy = _either(kernels, copies)
    inside = (work.starts_us >= start) & (work.starts_us < end)
    uses = _kernels(timeline, work, inside)
    return GpuUse(
        device=device,
        window_s=(end - start) / 1e6,
        compute_s=compute.length / 1e6,
        communication_s=(kernels.length - compute.length) / 1e6,
        copies_s=(busy.length - kernels.length) / 1e6,
        idle=_idle(timeline, work, outside(busy, start, end)),
        communicating_s=collective.length / 1e6,
        copying_s=copies.length / 1e6,
        launches=int((inside & (work.kinds != COPY)).sum()),
        kernels=uses,
        classes=_classes(uses),
    )


def _either(one: Intervals, other: Intervals) -> Intervals:
    return union(np.concatenate((one.starts, other.starts)), np.concatenate((one.ends, other.ends)))


def _idle(timeline: Timeline, work: GpuWork, gaps: Intervals) -> Idle:
    """Divide the gaps by their causes.

    A gap belongs to the queue if the work that ends it was launched before the gap began. Otherwise the host is late:
    the part in which it waits for the data loader is input; the rest is sync if the host was waiting for the GPU when
    the gap began, else host.
    """
    lengths = gaps.ends - gaps.starts
    following = np.searchsorted(work.starts_us, gaps.ends - 1e-3)
    ended = following < len(work.starts_us)
    launched = np.full(len(gaps), np.nan)
    launched[ended] = work.launched_us[following[ended]]
    queued = np.where(np.isnan(launched), lengths <= QUEUE_US, launched <= gaps.starts) & ended
    late = ~queued
    loading = both(Intervals(gaps.starts[late], gaps.ends[late]), timeline.loading)
    in_gap = np.zeros(len(gaps))
    np.add.at(in_gap, np.searchsorted(gaps.ends, loading.starts, side="right"), loading.ends - loading.starts)
    waiting = holds(timeline.syncs, gaps.starts)
    rest = np.where(late, lengths - in_gap, 0.0)
    return Idle(
        input_s=loading.length / 1e6,
        sync_s=float(rest[waiting].sum()) / 1e6,
        host_s=float(rest[~waiting].sum()) / 1e6,
        queue_s=float(lengths[queued].sum()) / 1e6,
    )


def _kernels(timeline: Timeline, work: GpuWork, inside: np.ndarray) -> tuple[KernelUse, ...]:
    kept = inside & (work.kinds != COPY)
    names = work.names[kept]
    times = np.bincount(names, weights=(work.ends_us - work.starts_us)[kept], minlength=len(timeline.names))
    counts = np.bincount(names, minlength=len(timeline.names))
    order = sorted(np.flatnonzero(counts), key=lambda number: -times[number])
    return tuple(
        KernelUse(timeline.names[n], kernel_class(timeline.names[n]), int(counts[n]), float(times[n]) / 1e6)
        for n in order
    )


def _classes(kernels: tuple[KernelUse, ...]) -> tuple[KernelUse, ...]:
    found: dict[str, list[KernelUse]] = defaultdict(list)
    for one in kernels:
        found[one.kind].append(one)
    uses = [
        KernelUse(kind, kind, sum(one.launches for one in of), sum(one.elapsed_s for one in of))
        for kind, of in found.items()
    ]
    return tuple(sorted(uses, key=lambda use: -use.elapsed_s))
