"""A model without torch whose batch takes memory, and which can be bounded in other ways.

Application: none. An item is a mebibyte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchsuite.errors import ModelError
from benchsuite.models import Positive, Share, Workload


@dataclass(frozen=True)
class Params:
    """`most`: larger batches are refused; `broken`: so is any, with another error; `fails`: no memory beyond."""

    batch_size: Positive = 4
    most: int = 1_000_000
    fails: int = 1_000_000
    broken: bool = False


def build(params: Params) -> Workload:
    if params.broken:
        raise ValueError("broken for another reason")
    if params.batch_size > params.most:
        raise ModelError(f"batch_size {params.batch_size} is over the {params.most} items that there are")
    if params.batch_size > params.fails:
        raise MemoryError

    def batches(share: Share) -> Iterator[bytearray]:
        batch = bytearray(b"\1") * (params.batch_size << 20)
        while True:
            time.sleep(0.002)
            yield batch

    return Workload(unit="mebibyte", batches=batches, items=lambda batch: len(batch) >> 20)
