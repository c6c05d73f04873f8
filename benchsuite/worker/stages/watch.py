"""How long a rank of a pipeline computes within a step. The rest of the step it waits: the bubble."""

from __future__ import annotations

import time
from typing import Any

import torch


class Watch:
    """Adds up the time of computing while it is on; off, it costs one comparison.

    Enter it around each piece of computing. On a GPU the times are those of CUDA events around the kernels, on the
    stream that computes. A transfer that the stream waits for lies outside. On a CPU the time is that of the host.
    """

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._on = False
        self._pairs: list[tuple[Any, Any]] = []
        self._open: list[Any] = []

    def __enter__(self) -> None:
        if self._on:
            self._open.append(self._now())

    def __exit__(self, *exception: object) -> None:
        if self._on and self._open:
            self._pairs.append((self._open.pop(), self._now()))

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def start(self) -> None:
        """Begin to add up."""
        self._pairs, self._open, self._on = [], [], True
        self._began = self._now()

    def stop(self) -> tuple[float, float]:
        """End. Returns the seconds of computing and those since `start`."""
        ended, self._on = self._now(), False
        if self._cuda:
            torch.cuda.synchronize()
        busy = sum(self._between(start, end) for start, end in self._pairs)
        return busy, self._between(self._began, ended)

    def _between(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3 if self._cuda else float(end - start)
