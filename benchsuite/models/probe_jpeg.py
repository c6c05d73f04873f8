"""Probe: how many JPEG images a second the host decodes.

Application: the part of a vision model's input that CPUs decide. Paper: none. Data set: none; `images` generated
pictures of `source_size` x `source_size` as JPEG files of ImageNet's density, held in memory. An item is one decoded
image.

Threads decode with Pillow, which computes without Python's lock: one for each CPU of the task, or `threads`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO

import PIL.Image

from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible, seeded
from benchsuite.models.loader import jpeg
from benchsuite.models.probes import workload_of

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"images": 2, "source_size": 32, "threads": 1}


@dataclass(frozen=True)
class Params:
    """`threads`: null is one for each CPU that the task may use."""

    images: Positive = 64
    source_size: Positive = 512
    threads: Positive | None = None
    seed: int = fusible(1234)


def decode(file: bytes) -> tuple[int, int]:
    """Decode a JPEG file to RGB; returns its size."""
    return PIL.Image.open(BytesIO(file)).convert("RGB").size


class Decoding:
    """Decodes the same files again and again. A step decodes each file once for every thread."""

    def __init__(self, params: Params) -> None:
        self._params = params

    def begin(self, share: Share) -> None:
        generator = seeded(share.seed)
        threads = self._params.threads or len(os.sched_getaffinity(0))
        files = [jpeg(self._params.source_size, generator) for _ in range(self._params.images)]
        self._files = files * threads
        self._pool = ThreadPoolExecutor(threads)

    def step(self) -> int:
        return sum(1 for _ in self._pool.map(decode, self._files))

    def readings(self) -> Mapping[str, Reading]:
        """None: the rate is all."""
        return {}


def build(params: Params) -> Workload:
    return workload_of(Decoding(params), "image")
