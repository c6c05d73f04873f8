"""The dtypes of matrix products and convolutions in a step: a model may autocast by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchsuite.errors import ModelError
from benchsuite.measurement import PrecisionCheck
from benchsuite.worker.checks import EXACT, dtype_name
from benchsuite.worker.precision import MIXED

# Operators of ATen that compute products. Their names have been stable since torch 1.8; new ones are rarely added.
_PRODUCT = re.compile(r"(^|_)(add|badd|addb|b)?(mm|mv)(_|$)|convolution|attention|_rnn|(^|mkldnn_)linear(_|$)")


# A format that a workload declares -> torch's dtype.
DTYPES = {"bf16": "bfloat16"}


class Products(TorchDispatchMode):
    """While entered, counts the products of this thread by dtype. Autocast has cast their inputs by then.

    Attributes:
        found: torch's dtype of the inputs -> number of products; of inputs that differ, the dtype of the fewest bits.
        by: torch's dtype -> the first operator.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.by: dict[str, str] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count a call of an operator, and make it."""
        name = func.overloadpacket.__name__
        if _PRODUCT.search(name) and (dtypes := list(_dtypes(args))):
            least = dtype_name(min(dtypes, key=lambda dtype: dtype.itemsize))
            self.found[least] += 1
            self.by.setdefault(least, name)
        return func(*args, **(kwargs or {}))


def _dtypes(arguments: tuple[Any, ...]) -> Iterator[torch.dtype]:
    """The floating-point dtypes among the arguments of an operator; a list of weights is one of them in an RNN."""
    for one in arguments:
        if isinstance(one, torch.Tensor) and one.is_floating_point():
            yield one.dtype
        elif isinstance(one, (list, tuple)):
            yield from _dtypes(tuple(one))


def check_products(check: PrecisionCheck, products: Products, declared: str | None = None) -> PrecisionCheck:
    """The check with the products of one step.

    Args:
        declared: the format to which the model converts inputs by itself, as its workload says; see `Workload`.

    Raises:
        ModelError: fp32 or tf32 was asked for, and a product has inputs of fewer bits than float32.
    """
    short = [dtype for dtype in products.found if dtype not in EXACT and dtype != DTYPES.get(declared or "")]
    if short and check.asked not in MIXED:
        where = f"{products.by[short[0]]} in {short[0]}"
        remedy = "remove what casts in the model, such as torch.autocast, and give the job a precision such as bf16"
        raise ModelError(f"{check.asked} was asked for, but a step computes {where}; {remedy}")
    return msgspec.structs.replace(check, products=dict(products.found), declared=declared)
