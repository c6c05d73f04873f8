"""A model without torch that reads every byte of its data set once a step.

Application: none. An item is a byte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchsuite.models import Share, Workload

READS = ("series", "tokens")


@dataclass(frozen=True)
class Params:
    seed: int = 1234


def batches(share: Share) -> Iterator[bytes]:
    assert share.data is not None
    file = Path(share.data.path, share.data.layout[{"series": "waves", "tokens": "train"}[share.data.reader]])
    while True:
        time.sleep(0.005)
        yield file.read_bytes()


def build(params: Params) -> Workload:
    return Workload(unit="byte", batches=batches, items=len)
