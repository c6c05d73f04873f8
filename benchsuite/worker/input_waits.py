"""How long the host waits for batches: the time that the model's own iterator takes to give them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

Batch = TypeVar("Batch")

# Two looks at the clock cost about 0.2 microseconds. Steps below 1 ms are therefore not all timed. Readers give batches
# in rounds, one from each process; a number that no usual number of processes divides meets all places of a round.
SLOW_NS = 1_000_000
EVERY = 11


class Waits:
    """The time in which a process waited for its next batch. Copies to the device are no part of it.

    Of steps shorter than 1 ms, one in eleven is timed, and counts for the ten that follow.

    Attributes:
        paused: batches are passed on without a look at the clock.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock, self._ns = clock, 0
        self.paused = False

    def counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, with the time that they take to come."""
        clock, source = self._clock, iter(batches)
        take, every, last = source.__next__, 1, clock()
        while True:
            while self.paused:
                try:
                    batch = take()
                except StopIteration:
                    return
                yield batch
            began = clock()
            try:
                batch = take()
            except StopIteration:
                return
            now = clock()
            slow = now - last >= every * SLOW_NS
            last, every = now, 1 if slow else EVERY
            self._ns += every * (now - began)
            yield batch
            yield from islice(source, every - 1)

    def taken_s(self) -> float:
        """The seconds since the last call."""
        taken, self._ns = self._ns, 0
        return round(taken / 1e9, 6)
