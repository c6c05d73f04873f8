"""Probe: launches of a kernel that does next to nothing.

Application: the cost of starting work on the device, which limits models of many small kernels; a slow CPU shows here.
Paper: none. Data set: none; one number, to which 1 is added. An item is one launch, by a torch operation.

Launches are queued without waiting, and the reading `launch` is the time of each. The reading `round_trip` is the
median time of one launch together with the wait for its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible
from benchsuite.models.probes import workload_of
from benchsuite.models.probes.devices import median, seconds_per_call, timed
from benchsuite.schema import finite

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"launches": 10, "round_trips": 3}
_US = 1e6


@dataclass(frozen=True)
class Params:
    """`launches`: of one step; fewer than the device's queue holds."""

    launches: Positive = 500
    round_trips: Positive = 2000
    seed: int = fusible(1234)


class Launches:
    """Launches small kernels."""

    def __init__(self, params: Params) -> None:
        self._params = params

    def begin(self, share: Share) -> None:
        self._device = share.device
        self._one = partial(torch.zeros(1, device=share.device).add_, 1)

    def step(self) -> int:
        one = self._one
        for _ in range(self._params.launches):
            one()
        return self._params.launches

    def readings(self) -> Mapping[str, Reading]:
        """Microseconds of a launch, without and with the wait for its end."""
        each_s = seconds_per_call(self.step, self._device) / self._params.launches
        trips = [timed(self._one, self._device) for _ in range(self._params.round_trips)]
        trip_s = median(trips)
        return {
            "launch": Reading(unit="us", value=finite(_US * each_s)),
            "round_trip": Reading(unit="us", value=finite(_US * trip_s) if trip_s is not None else None),
        }


def build(params: Params) -> Workload:
    return workload_of(Launches(params), "launch")
