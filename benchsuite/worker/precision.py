"""Number formats: how this process computes in float32, and the contexts of mixed precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchsuite.describe.training import Precision

MIXED: frozenset[Precision] = frozenset({"amp-fp16", "bf16"})


def set_precision(precision: Precision, device: str) -> None:
    """Choose how this process computes in float32; call it before a model is built.

    On a GPU, fp32 computes with all 24 bits of the mantissa, where torch's default for convolutions is TF32. Any other
    precision computes matrix products and convolutions in float32 as TF32. A CPU always computes in float32.
    """
    if not device.startswith("cuda"):
        return
    import torch

    meaning = "ieee" if precision == "fp32" else "tf32"
    torch.backends.cuda.matmul.fp32_precision = meaning
    torch.backends.cudnn.conv.fp32_precision = meaning
    torch.backends.cudnn.rnn.fp32_precision = meaning


def autocast(precision: Precision, device: str) -> AbstractContextManager[Any]:
    """The context of a mixed precision; one without effect for other precisions. It can be entered many times."""
    if precision not in MIXED:
        return nullcontext()
    import torch

    dtype = torch.float16 if precision == "amp-fp16" else torch.bfloat16
    cast: AbstractContextManager[Any] = torch.autocast(device_type(device), dtype)
    return cast


def device_type(device: str) -> str:
    """The type in a device's name: "cuda" for "cuda:0"."""
    return device.partition(":")[0]
