"""Checks outside the timed part: precision and parameters are as asked for, and the model has learnt."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from benchsuite.describe.training import Precision
from benchsuite.describe.variables import THREAD_VARIABLES
from benchsuite.errors import ModelError
from benchsuite.measurement import PrecisionCheck
from benchsuite.models import Workload
from benchsuite.worker.precision import MIXED, autocast

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# Relative errors against fp64 (norm of the difference over the norm): fp32 carries 24 bits, TF32 and fp16 11, bf16 8.
FP32_AT_MOST = 5e-6
ELEVEN_BITS_AT_MOST = 1.2e-3
# Floating-point dtypes with at least the 24 bits of fp32.
EXACT = frozenset({"float32", "float64", "complex64", "complex128"})


def check_precision(precision: Precision, device: str, *, steps_itself: bool = False) -> PrecisionCheck:
    """Compare a matrix product and a convolution, in the precision of the steps, with fp64.

    The probes are float32 tensors, whatever default dtype the model's module has set.

    Args:
        steps_itself: the model has a step of its own, which ignores mixed precision.

    Raises:
        ModelError: fp32 was asked for, and the error is as large as that of TF32.
    """
    import torch
    import torch.nn.functional as F

    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float32).to(device)

    a, b = normal(256, 512), normal(512, 256)
    images, kernels = normal(4, 32, 16, 16), normal(32, 32, 3, 3)
    real: Precision = "fp32" if steps_itself and precision in MIXED else precision
    matmul = _error(real, lambda x, y: x @ y, a, b)
    conv = _error(real, F.conv2d, images, kernels)
    in_force = _name(max(matmul, conv))
    if precision == "fp32" and in_force != "fp32":
        errors = f"matrix product {matmul:.1e}, convolution {conv:.1e}"
        raise ModelError(f"fp32 was asked for, but errors are those of {in_force} ({errors} against fp64)")
    return PrecisionCheck(
        asked=precision, in_force=in_force, dtype=dtype_name(a.dtype), matmul_error=matmul, conv_error=conv
    )


def check_parameters(found: PrecisionCheck, modules: Mapping[str, nn.Module]) -> PrecisionCheck:
    """The check with the dtypes of all parameters, trained and frozen. Call it after the warm-up.

    A model may cast itself within its first steps.

    Raises:
        ModelError: fp32 or tf32 was asked for, and parameters have a floating-point dtype of fewer bits than float32.
    """
    elements: Counter[str] = Counter()
    for name, module in modules.items():
        for path, parameter in module.named_parameters():
            dtype = dtype_name(parameter.dtype)
            elements[dtype] += parameter.numel()
            if found.asked not in MIXED and parameter.is_floating_point() and dtype not in EXACT:
                remedy = "leave the model in float32 and give the job a precision such as bf16"
                raise ModelError(f"{found.asked} was asked for, but parameter '{name}.{path}' is {dtype}; {remedy}")
    return msgspec.structs.replace(found, parameters=dict(elements))


def intra_op_threads() -> int | None:
    """The intra-op threads that torch computes with on the CPU; None if this process has not imported torch."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else None


def other_threads(environ: Mapping[str, str]) -> str | None:
    """In words, how the intra-op threads in force differ from those that the environment gives; None if they do not.

    A model may call `torch.set_num_threads`.
    """
    words = {name: environ.get(name, "").partition(",")[0].strip() for name in THREAD_VARIABLES}
    given = {name: int(word) for name, word in words.items() if word.isdecimal()}
    now = intra_op_threads()
    if not given or now is None or now in given.values():
        return None
    said = " and ".join(f"{name}={number}" for name, number in given.items())
    return f"torch computes with {now} intra-op threads, not with {said}: the model sets them itself"


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype in torch's words, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def _error(precision: Precision, operation: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor) -> float:
    """||result - reference|| / ||reference||, the reference in fp64."""
    reference = operation(left.double(), right.double())
    with autocast(precision, left.device.type):
        result = operation(left, right)
    return float(f"{float((result.double() - reference).norm() / reference.norm()):.3g}")


def _name(error: float) -> str:
    if error <= FP32_AT_MOST:
        return "fp32"
    return "tf32 or fp16" if error <= ELEVEN_BITS_AT_MOST else "bf16"


def own_norms(module: nn.Module) -> list[float]:
    """The norm of each trainable parameter, in fp64 so that a small change shows."""
    return [float(p.detach().double().norm()) for p in module.parameters() if p.requires_grad]


class Learning:
    """Remembers the parameters of the trained modules, so that `check` can compare them after training.

    `norms_of` computes the norms of a module's trainable parameters; None: as `own_norms`.
    """

    def __init__(self, workload: Workload, norms_of: Callable[[nn.Module], list[float]] | None = None) -> None:
        self._norms_of = norms_of or own_norms
        names = {update.trains for update in workload.updates} or set(workload.modules)
        self._modules = {name: workload.modules[name] for name in sorted(names)}
        self._before = self._norms()

    def _norms(self) -> dict[str, list[float]]:
        return {name: self._norms_of(module) for name, module in self._modules.items()}

    def check(self) -> None:
        """Raises ModelError: no parameter of a trained module has changed."""
        for name, now in self._norms().items():
            if now and now == self._before[name]:
                raise ModelError(f"no parameter of '{name}' has changed: nothing was learnt")


def check_band(loss: float | None, band: tuple[float, float] | None) -> None:
    """Raises ModelError: the last loss lies outside the band that the profile gives."""
    if band is None:
        return
    low, high = band
    if loss is None:
        raise ModelError(f"the profile gives a loss band of {low:g} to {high:g}, but this model has no loss")
    if not low <= loss <= high:
        raise ModelError(f"the last loss, {loss:g}, is outside the profile's band of {low:g} to {high:g}")
