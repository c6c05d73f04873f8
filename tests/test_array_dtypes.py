"""Fused arrays in mixed precision call torch's kernels with dtypes that a GPU takes; a CPU takes more of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from made_arrays import compare
from test_arrays import fusible_models, three
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchsuite.describe.training import Training

pytestmark = pytest.mark.torch

PRODUCTS = ("convolution", "convolution_backward", "mm", "bmm", "addmm", "baddbmm")
# Of the largest value, after one step; bf16 has 8 bits.
CLOSE = 2e-2
# These last for longer than all others together; the others have the same layers.
SLOW = ("bert", "convnet", "deepspeech2", "neural_style", "scaling", "ssd", "subpixel")
# Some CPUs have no LSTM or GRU in bf16 for the solo models.
RECURRENT = ("gnmt", "translator", "wlm")


class Checked(TorchDispatchMode):  # type: ignore[misc]
    """Within this mode, kernels refuse tensors of several dtypes as those of a GPU do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        floats = [arg.dtype for arg in args if isinstance(arg, Tensor) and arg.is_floating_point()]
        if name in PRODUCTS or ("scaled_dot_product" in name and "backward" not in name):
            self.seen.add(name)
            assert len(set(floats)) <= 1, f"{name}: {floats}"
        elif "batch_norm" in name and "backward" not in name:
            self.seen.add(name)
            x: torch.dtype = args[0].dtype
            of_weights = torch.float32 if isinstance(args[1], Tensor) else x
            assert all(dtype in (x, of_weights) for dtype in floats), f"{name}: {floats}"
            assert len(set(floats[1:])) <= 1, f"{name}: {floats}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [name for name in fusible_models() if name not in (*SLOW, *RECURRENT)])
def test_kernels_of_an_array_in_bf16_get_the_dtypes_that_a_gpu_takes(name: str) -> None:
    with Checked() as checked:
        found = compare(
            import_module(f"benchsuite.models.{name}"),
            three(name)[:2],
            1,
            Training(precision="bf16"),
            dtype=torch.float32,
        )
    assert checked.seen
    assert found.losses <= CLOSE, found


def test_statistics_in_fp32_need_weights_in_fp32_beside_an_input_in_bf16() -> None:
    x, mean, var = torch.ones(2, 3, dtype=torch.bfloat16), torch.zeros(3), torch.ones(3)
    with Checked(), pytest.raises(AssertionError, match="batch_norm"):
        torch.native_batch_norm(x, None, None, mean, var, True, 0.1, 1e-5)
