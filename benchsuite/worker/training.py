"""The way a step is run: on which device, in which precision, compiled or not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from benchsuite.describe.training import Compile, Precision

MIXED: frozenset[Precision] = frozenset({"amp-fp16", "bf16"})
GRAPHED: frozenset[Compile] = frozenset({"reduce-overhead", "max-autotune"})


@dataclass(frozen=True)
class How:
    """The way a step is run; `device` as torch calls it."""

    device: str = "cpu"
    precision: Precision = "fp32"
    compile: Compile = "none"
    channels_last: bool = False

    @property
    def device_type(self) -> str:
        return self.device.partition(":")[0]

    @property
    def graphed(self) -> bool:
        """Whether outputs of compiled modules lie in memory that a CUDA graph writes again in the next step."""
        return self.compile in GRAPHED and self.device_type == "cuda"


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


def autocast(how: How) -> AbstractContextManager[Any]:
    """The context in which a mixed precision computes, which may be entered again and again; else an idle one."""
    if how.precision not in MIXED:
        return nullcontext()
    import torch

    cast: AbstractContextManager[Any] = torch.autocast(
        how.device_type, torch.float16 if how.precision == "amp-fp16" else torch.bfloat16
    )
    return cast
