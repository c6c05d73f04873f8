"""Checks outside the timed part: the precision is the one asked for, and the model has learnt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchsuite.describe.training import Precision
from benchsuite.errors import ModelError
from benchsuite.measurement import PrecisionCheck
from benchsuite.models import Workload
from benchsuite.worker.precision import MIXED, autocast

if TYPE_CHECKING:
    from torch import Tensor

# Relative errors against fp64 (norm of the difference over the norm): fp32 carries 24 bits, TF32 and fp16 11, bf16 8.
FP32_AT_MOST = 5e-6
ELEVEN_BITS_AT_MOST = 1.2e-3


def check_precision(precision: Precision, device: str, *, steps_itself: bool = False) -> PrecisionCheck:
    """Compare a matrix product and a convolution, in the precision of the steps, with fp64.

    Args:
        steps_itself: the model has a step of its own, which ignores mixed precision.

    Raises:
        ModelError: fp32 was asked for, and the error is as large as that of TF32.
    """
    import torch
    import torch.nn.functional as F

    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(device)

    a, b = normal(256, 512), normal(512, 256)
    images, kernels = normal(4, 32, 16, 16), normal(32, 32, 3, 3)
    real: Precision = "fp32" if steps_itself and precision in MIXED else precision
    matmul = _error(real, lambda x, y: x @ y, a, b)
    conv = _error(real, F.conv2d, images, kernels)
    in_force = _name(max(matmul, conv))
    if precision == "fp32" and in_force != "fp32":
        errors = f"matrix product {matmul:.1e}, convolution {conv:.1e}"
        raise ModelError(f"fp32 was asked for, but errors are those of {in_force} ({errors} against fp64)")
    return PrecisionCheck(asked=precision, in_force=in_force, matmul_error=matmul, conv_error=conv)


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


class Learning:
    """Remembers the parameters of the trained modules, so that `check` can compare them after training."""

    def __init__(self, workload: Workload) -> None:
        names = {update.trains for update in workload.updates} or set(workload.modules)
        self._modules = {name: workload.modules[name] for name in sorted(names)}
        self._before = self._norms()

    def _norms(self) -> dict[str, list[float]]:
        """The norm of each trainable parameter, in fp64 so that a small change shows."""
        return {
            name: [float(p.detach().double().norm()) for p in module.parameters() if p.requires_grad]
            for name, module in self._modules.items()
        }

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
