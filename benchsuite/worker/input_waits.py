"""How long the host waits for batches: the time that the model's own iterator takes to give them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Batch = TypeVar("Batch")


class Waits:
    """The time in which a process waited for its next batch. Copies to the device are no part of it."""

    def __init__(self) -> None:
        self._ns = 0

    def counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, with the time that each takes to come."""
        clock, following = time.perf_counter_ns, iter(batches).__next__
        while True:
            began = clock()
            try:
                batch = following()
            except StopIteration:
                return
            self._ns += clock() - began
            yield batch

    def taken_s(self) -> float:
        """The seconds since the last call."""
        taken, self._ns = self._ns, 0
        return round(taken / 1e9, 6)
