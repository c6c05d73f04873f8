"""Probe: copies between host memory and a GPU, in one direction.

Application: the link that brings input to a GPU. With placement per_gpu all GPUs copy at once, and share what the host
and its PCIe switches can carry. Paper: none. Data set: none; pinned memory, in buffers of `megabytes`. An item is one
GB (10^9 bytes) that was copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible
from benchsuite.models.probes import GIGA, Amount, workload_of
from benchsuite.models.probes.host_link import Link

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"megabytes": 5}


@dataclass(frozen=True)
class Params:
    """`direction`: from the host to the device, or back. `megabytes`: of a copy."""

    direction: Literal["to_device", "to_host"] = "to_device"
    megabytes: Positive = 1000
    seed: int = fusible(1234)


class OneWay:
    """Copies in one direction."""

    def __init__(self, params: Params) -> None:
        self._params, self._amount = params, Amount(GIGA)
        self._bytes = 1_000_000 * params.megabytes

    def begin(self, share: Share) -> None:
        link = Link(torch.device(share.device), self._bytes)
        self._copy = link.to_device if self._params.direction == "to_device" else link.to_host

    def step(self) -> int:
        self._copy()
        return self._amount.items(self._bytes)

    def readings(self) -> Mapping[str, Reading]:
        """None: the rate is all."""
        return {}


def build(params: Params) -> Workload:
    return workload_of(OneWay(params), "GB")
