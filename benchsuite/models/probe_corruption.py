"""Probe: the same work on all GPUs, compared bit by bit (silent corruption).

Application: finding a GPU that computes wrongly now and then without any error, and a link that changes what it
carries. Paper: Hochschild et al., "Cores that don't count" (2021); Ma et al., "Understanding Silent Data Corruption in
LLM Training" (2025). Data set: none; random matrices and images. An item is one comparison: of a result, or of a copy.

In each step every GPU multiplies matrices in bf16 (`products` times) and fp32, computes the forward pass of an
attention, and trains a small network for ten steps. A fingerprint of each result is computed where it lies. Each result
is then copied to the next GPU of the ring, and its fingerprint is computed there. After a step all GPUs are idle for
`idle_s` seconds, since a load that changes provokes errors. Only GPUs of one model can be compared.

The result that most GPUs have is right. The readings `wrong` and `flaky` have for each GPU the results that differ from
the right ones, and from its own usual ones; with two GPUs of constant but different results, no majority says which is
right. `wrong_links` has the copies that arrived changed. `verdict` is `equal`, or names the odd one.

`plant` is for tests of this probe: it flips a bit on purpose, in the result (or with `plant_in: copy` in the copy) of
the first work. It is a GPU, a step (from 0, warm-up included; -1: every step) and a bit. The reading `planted` says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from benchsuite.errors import ModelError
from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible
from benchsuite.models.probes import workload_of
from benchsuite.models.probes.devices import devices_of
from benchsuite.models.probes.fingerprint import fingerprint, flip, hexadecimal
from benchsuite.models.probes.votes import Votes
from benchsuite.models.probes.works import Sizes, drawn, works_on

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"size": 16, "products": 1, "sequence": 8, "images": 2, "idle_s": 0.0}


@dataclass(frozen=True)
class Params:
    """`size`, `products`, `sequence`, `images`: see `Sizes`."""

    size: Positive = 8192
    products: Positive = 60
    sequence: Positive = 4096
    images: Positive = 256
    idle_s: float = 0.1
    plant: tuple[int, int, int] | None = None
    plant_in: Literal["result", "copy"] = "result"
    seed: int = fusible(1234)


class Comparison:
    """Does the works on all devices, and compares."""

    def __init__(self, params: Params) -> None:
        self._params, self._steps = params, 0

    def begin(self, share: Share) -> None:
        """Raises ModelError: the bit that is to be planted belongs to a GPU that does not exist."""
        params = self._params
        self._devices = devices_of(share)
        if params.plant and not 0 <= params.plant[0] < len(self._devices):
            raise ModelError(f"plant: there is no GPU {params.plant[0]} among the {len(self._devices)} of this task")
        torch.backends.cudnn.deterministic = True
        sizes = Sizes(params.size, params.products, params.sequence, params.images)
        inputs = drawn(sizes, share.seed)
        self._works = [works_on(device, sizes, inputs) for device in self._devices]
        self._planted_work = next(iter(self._works[0]))
        self._votes = Votes(tuple(self._works[0]), len(self._devices))

    def step(self) -> int:
        before = self._votes.compared
        # All devices work before the host waits for any.
        found = {work: self._fingerprints(work) for work in self._votes.works}
        for work, (results, copies) in found.items():
            for place, result in enumerate(results):
                self._votes.add(work, place, hexadecimal(result.tolist()))
            for place, copy in enumerate(copies):
                sent, received = (hexadecimal(one.tolist()) for one in (results[place], copy))
                self._votes.add_copy(place, self._next(place), sent, received)
        self._steps += 1
        time.sleep(self._params.idle_s)
        return self._votes.compared - before

    def _fingerprints(self, work: str) -> tuple[list[Tensor], list[Tensor]]:
        """The fingerprints of a work's results, each on its device, and of their copies; no copies on one device."""
        results = [works[work]() for works in self._works]
        for place, result in enumerate(results):
            self._plant("result", work, place, result)
        sent = [fingerprint(result) for result in results]
        if len(results) == 1:
            return sent, []
        received = []
        for place, result in enumerate(results):
            copy = torch.empty_like(result, device=self._devices[self._next(place)])
            copy.copy_(result, non_blocking=True)
            self._plant("copy", work, place, copy)
            received.append(fingerprint(copy))
        return sent, received

    def _next(self, place: int) -> int:
        return (place + 1) % len(self._devices)

    def _plant(self, what: Literal["result", "copy"], work: str, place: int, tensor: Tensor) -> None:
        """Flip the bit that is asked for, if this is its place and step."""
        params = self._params
        if params.plant is None or (what, work) != (params.plant_in, self._planted_work):
            return
        gpu, step, bit = params.plant
        if gpu == place and step in (-1, self._steps):
            flip(tensor, bit)

    def readings(self) -> Mapping[str, Reading]:
        """The verdict and its numbers."""
        votes, places = self._votes, range(len(self._devices))
        labels, links = tuple(map(str, places)), votes.links()
        wrong = tuple(None if one is None else float(one) for one in map(votes.wrong, places))
        found = {
            "verdict": Reading(unit="word", value=votes.verdict()),
            "compared": Reading(unit="result", value=float(votes.compared)),
            "wrong": Reading(unit="result", values=wrong, labels=labels),
            "flaky": Reading(unit="result", values=tuple(map(float, map(votes.flaky, places))), labels=labels),
            "wrong_links": Reading(
                unit="result",
                values=tuple(map(float, links.values())),
                labels=tuple(f"{one}>{other}" for one, other in links),
            ),
        }
        for work in votes.works:
            found[f"hash_{work}"] = Reading(unit="hash", value=votes.right(work))
        if plant := self._params.plant:
            where = f"bit {plant[2]} of the {self._params.plant_in} of {self._planted_work} on GPU {plant[0]}"
            when = "every step" if plant[1] < 0 else f"step {plant[1]}"
            found["planted"] = Reading(unit="word", value=f"on purpose: {where}, in {when}")
        return found


def build(params: Params) -> Workload:
    return workload_of(Comparison(params), "comparison", by_ranks="lead")
