"""What the probes of a machine have in common: a probe measures one part of it directly, and trains nothing.

A probe's file is a model's file like any other. Its workload has a step of its own, which works on buffers that lie on
the device already. An item is an amount of work, such as a GB or a GFLOP, so that the rate is in GB/s or GFLOP/s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from benchsuite.measurement import Reading
from benchsuite.models import Share, Workload


class Probe(Protocol):
    """A probe. `begin` is called once, then `step` many times, then `readings` once."""

    def begin(self, share: Share) -> None:
        """Make the buffers, on the share's device or, for a probe that leads, on those of all ranks."""

    def step(self) -> int:
        """Do the work once; returns its items. The work may still be queued on the share's device."""

    def readings(self) -> Mapping[str, Reading]:
        """Further figures."""


def workload_of(probe: Probe, unit: str, by_ranks: Literal["meet", "lead"] | None = None) -> Workload:
    """The workload that runs a probe. Its batches are empty.

    Args:
        unit: what an item is.
        by_ranks: what several ranks do, see `Workload`.
    """

    def batches(share: Share) -> Iterator[None]:
        probe.begin(share)
        while True:
            yield None

    return Workload(
        unit=unit,
        batches=batches,
        items=lambda _: 0,
        step=lambda _: probe.step(),
        by_ranks=by_ranks,
        readings=probe.readings,
    )


class Amount:
    """Counts work in whole items. What is left over counts in a later step.

    Args:
        per_item: the work of an item, in bytes or FLOPs.
    """

    def __init__(self, per_item: int) -> None:
        self._per_item, self._rest = per_item, 0

    def items(self, work: int) -> int:
        """The whole items that this work completes."""
        whole, self._rest = divmod(self._rest + work, self._per_item)
        return whole


GIGA = 1_000_000_000
