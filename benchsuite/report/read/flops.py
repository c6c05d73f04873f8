"""The model FLOPs of a result, and the number format in which its matrix products ran."""

from __future__ import annotations

from typing import cast, get_args

from benchsuite.describe.cards import Format
from benchsuite.measurement import ModelFlops, PipelineUsed, PrecisionCheck
from benchsuite.records import Result

# A job's precision and the precision that the probes show -> the format of products. Without a pair it is not known.
_FORMATS: dict[tuple[str, str], Format] = {
    ("fp32", "fp32"): "fp32",
    ("tf32", "fp32"): "fp32",
    ("tf32", "tf32 or fp16"): "tf32",
    ("amp-fp16", "tf32 or fp16"): "fp16",
    ("bf16", "bf16"): "bf16",
}
# Products of these are in no format of the table of cards.
_WIDE = frozenset({"float64", "complex64", "complex128"})


def model_flops(result: Result) -> ModelFlops | None:
    """The model FLOPs that the result's first rank records; None if it records none."""
    return next((flops for stream in result.measurement.streams if (flops := stream.model_flops)), None)


def pipeline_used(result: Result) -> PipelineUsed | None:
    """The pipeline that the result's first rank records; None if it records none."""
    return next((used for stream in result.measurement.streams if (used := stream.pipeline)), None)


def product_format(result: Result) -> Format | None:
    """The format of a task's matrix products: that which the model chooses, else that of the precision in force."""
    flops = model_flops(result)
    if flops and flops.products in get_args(Format):
        return cast(Format, flops.products)
    checks = (stream.precision for stream in result.measurement.streams if stream.precision)
    return next((_format(check) for check in checks), None)


def _format(check: PrecisionCheck) -> Format | None:
    if _WIDE & (check.parameters or {}).keys():
        return None
    return _FORMATS.get((check.asked, check.in_force))
