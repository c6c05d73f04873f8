"""Number formats of a computation: what float32 means in this process, and the contexts of mixed precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchsuite.describe.training import Precision

MIXED: frozenset[Precision] = frozenset({"amp-fp16", "bf16"})


def set_precision(precision: Precision, device: str) -> None:
    """What float32 means in this process, before any model is built.

    On a GPU fp32 means all 24 bits: torch would run convolutions as TF32. With tf32 matrix products and convolutions
    use it, as do the parts that mixed precision leaves in float32. A CPU computes in float32 whatever is asked.
    """
    if not device.startswith("cuda"):
        return
    import torch

    meaning = "ieee" if precision == "fp32" else "tf32"
    torch.backends.cuda.matmul.fp32_precision = meaning
    torch.backends.cudnn.conv.fp32_precision = meaning
    torch.backends.cudnn.rnn.fp32_precision = meaning


def autocast(precision: Precision, device: str) -> AbstractContextManager[Any]:
    """The context in which a mixed precision computes, which may be entered again and again; else an idle one."""
    if precision not in MIXED:
        return nullcontext()
    import torch

    dtype = torch.float16 if precision == "amp-fp16" else torch.bfloat16
    cast: AbstractContextManager[Any] = torch.autocast(device_type(device), dtype)
    return cast


def device_type(device: str) -> str:
    """ "cuda" for "cuda:0"."""
    return device.partition(":")[0]
