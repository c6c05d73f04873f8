"""Probe: products of square matrices in one number format.

Application: how fast a GPU multiplies matrices at its best. Paper: none. Data set: none; matrices of random normal
values, which draw more power than constant ones. An item is one GFLOP: 10^9 floating-point operations, of which a
product of n x n matrices has 2 n^3.

`dtype` is the format of the inputs: fp32 without TF32, tf32, bf16, fp16, or fp8 (e4m3, with one scale a matrix and a
result in bf16). The measured size is `size`. Those of `others` are timed after it, and the reading `by_size` has all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from benchsuite.measurement import Reading
from benchsuite.models import Positive, Share, Workload, fusible, seeded_for
from benchsuite.models.language import fp8
from benchsuite.models.probes import GIGA, Amount, workload_of
from benchsuite.models.probes.devices import LEAST_S, seconds_per_call
from benchsuite.schema import finite

NOT_FUSED = "it steps by itself"
SMALL: dict[str, object] = {"dtype": "fp32", "size": 256, "others": (64,), "others_s": 0.01}
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Params:
    """`others_s`: seconds for which each further size is timed at least."""

    dtype: Literal["fp32", "tf32", "bf16", "fp16", "fp8"] = "bf16"
    size: Positive = 8192
    others: tuple[int, ...] = (16384,)
    others_s: float = 1.0
    seed: int = fusible(1234)


def flops_of(size: int) -> int:
    """The floating-point operations of a product of two size x size matrices."""
    return 2 * size**3


def product_of(dtype: str, size: int, device: str, seed: int) -> Callable[[], object]:
    """The function that multiplies two random size x size matrices once.

    Raises:
        ModelError: fp8 is asked for, and the device cannot multiply in it.
    """
    place = torch.device(device)
    made = [
        torch.randn(size, size, generator=seeded_for(name, seed, place), device=place).to(
            _DTYPES.get(dtype, torch.bfloat16)
        )
        for name in ("a", "b")
    ]
    if dtype != "fp8":
        return partial(torch.mm, *made, out=torch.empty_like(made[0]))
    fp8.check_fp8()
    (a, a_scale), (b, b_scale) = (fp8.quantised(one, torch.float8_e4m3fn) for one in made)
    return partial(fp8.product, a, a_scale, fp8.columns(b), b_scale, torch.bfloat16, fast=True)


class Products:
    """Multiplies the same two matrices again and again."""

    def __init__(self, params: Params) -> None:
        self._params, self._amount = params, Amount(GIGA)
        self._work = flops_of(params.size)

    def begin(self, share: Share) -> None:
        """Raises ModelError: see `product_of`."""
        self._device = share.device
        if share.device.startswith("cuda"):
            torch.backends.cuda.matmul.fp32_precision = "tf32" if self._params.dtype == "tf32" else "ieee"
        self._product = product_of(self._params.dtype, self._params.size, share.device, share.seed)

    def step(self) -> int:
        self._product()
        return self._amount.items(self._work)

    def readings(self) -> Mapping[str, Reading]:
        """The rate at each size."""
        sizes = (self._params.size, *self._params.others)
        rates = [self._tflops(self._product, sizes[0])]
        del self._product
        for size in sizes[1:]:
            rates.append(self._tflops(product_of(self._params.dtype, size, self._device, self._params.seed), size))
        return {"by_size": Reading(unit="TFLOP/s", values=tuple(rates), labels=tuple(map(str, sizes)))}

    def _tflops(self, product: Callable[[], object], size: int) -> float | None:
        least_s = max(self._params.others_s, 0.0) or LEAST_S
        return finite(flops_of(size) / seconds_per_call(product, self._device, least_s=least_s) / 1e12)


def build(params: Params) -> Workload:
    return workload_of(Products(params), "GFLOP")
