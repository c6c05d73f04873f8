"""The parts of a GPU's window, with what each means."""

from __future__ import annotations

from dataclasses import dataclass

from benchsuite.trace.utilisation import GpuUse


@dataclass(frozen=True)
class WindowPart:
    """A part of a window. The parts of one GPU add up to its window."""

    name: str
    elapsed_s: float
    window_s: float
    meaning: str


def parts_of(use: GpuUse) -> tuple[WindowPart, ...]:
    """The parts of a GPU's window, always in the same order."""
    idle, window = use.idle, use.window_s
    return (
        WindowPart("compute", use.compute_s, window, "at least one kernel runs that is no collective"),
        WindowPart("communication", use.communication_s, window, "collectives of NCCL run, and no other kernel"),
        WindowPart("copies", use.copies_s, window, "copies and fills run, and no kernel"),
        WindowPart("idle: input", idle.input_s, window, "the host waits for the data loader"),
        WindowPart("idle: sync", idle.sync_s, window, "the host waited for the GPU, and new work comes late"),
        WindowPart("idle: host", idle.host_s, window, "the host launches new work too late"),
        WindowPart("idle: queue", idle.queue_s, window, "gaps before work that the host launched in time"),
    )
