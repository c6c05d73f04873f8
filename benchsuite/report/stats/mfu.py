"""Model FLOPs utilisation (MFU): FLOPs of an item x items/s, over the dense peak of the GPUs in the format in force.

Source of the definition: Chowdhery et al., "PaLM" (2022), appendix B. The whole square of an attention counts, also
where it is causal; `causal` is the figure with the visible half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchsuite.describe import cards
from benchsuite.describe.cards import Format, Known
from benchsuite.errors import ProfileError
from benchsuite.measurement import ModelFlops
from benchsuite.records import Result
from benchsuite.report.format import number, percent
from benchsuite.report.read.flops import model_flops, product_format

if TYPE_CHECKING:  # light to import: no scipy
    from benchsuite.report.read.summary import JobSummary


# The formats in which products may run although a slower one is recorded: a setting of torch decides, or the model.
_FASTER: dict[Format, tuple[Format, ...]] = {
    "fp32": ("tf32",),
    "tf32": ("fp16", "bf16"),
    "fp16": ("fp8",),
    "bf16": ("fp8",),
}


@dataclass(frozen=True)
class Mfu:
    """The model FLOPs of a job, and their share of what its GPUs can compute.

    Attributes:
        n: the number of ok tasks behind the rate.
        per_item: FLOPs.
        tflops: model TFLOP/s of one GPU; None without a rate on a GPU.
        causal_share: the part of the FLOPs that causal attention masks out.
        value: the share of the peak; None for the `reason`, and if it is over 1.
        peak_tflops: dense peak of one GPU in `format`.
        reason: why there is no value.
        impossible: the value is over 1; `reason` names the number that is suspect.
    """

    n: int
    per_item: float | None = None
    tflops: float | None = None
    causal_share: float = 0.0
    value: float | None = None
    peak_tflops: float | None = None
    format: Format | None = None
    reason: str | None = None
    impossible: bool = False

    @property
    def causal(self) -> float | None:
        """The value if only the visible half of causal attention counts."""
        return None if self.value is None else self.value * (1 - self.causal_share)


def mfu(job: JobSummary) -> Mfu:
    """The MFU of a job.

    Raises:
        ProfileError: a file of the table of cards is not valid.
    """
    n = sum(task.status == "ok" for task in job.tasks)
    gpus = max((len(task.gpus) for task in job.tasks), default=0)
    rate = job.perf * job.per / gpus if job.perf is not None and gpus else None
    return utilisation(job.model_flops, rate, job.gpu_names, job.product_format, n)


def result_mfu(result: Result, rate: float) -> Mfu | None:
    """The MFU of one result; None if a file of the table of cards is not valid. `report` then names the file.

    Args:
        rate: items/s of the whole task.
    """
    gpus = result.task.gpus
    names = tuple(dict.fromkeys(gpu.name for gpu in gpus))
    each = rate / len(gpus) if gpus else None
    try:
        return utilisation(model_flops(result), each, names, product_format(result))
    except ProfileError:  # no reason to lose the result of a run
        return None


def utilisation(
    flops: ModelFlops | None, rate: float | None, gpus: tuple[str, ...], format: Format | None, n: int = 1
) -> Mfu:
    """The MFU of items that one GPU processes.

    Args:
        rate: items/s of one GPU; None without a rate, or without a GPU.
        gpus: the models of the GPUs, by NVML.
        format: of the matrix products.
        n: the number of tasks behind the rate.

    Raises:
        ProfileError: a file of the table of cards is not valid.
    """
    if flops is None or flops.per_item is None:
        return Mfu(n, reason=(flops.reason if flops else None) or "FLOPs are not recorded")
    share = flops.causal_per_item / flops.per_item if flops.per_item else 0.0
    if rate is None or not gpus:
        return Mfu(n, flops.per_item, causal_share=share, reason="no rate on a GPU")
    known = Mfu(n, flops.per_item, flops.per_item * rate / 1e12, share, format=format)
    card = cards.find(gpus[0]) if len(gpus) == 1 else None
    peak = card.peak_tflops(format) if card and format else None
    if card is None or peak is None:
        return _with_reason(known, _unknown(gpus, card, format))
    assert known.tflops is not None
    value = known.tflops / peak
    if value > 1:
        suspect = _suspect(flops, rate, known.tflops, card, peak, format)
        return _with_reason(known, f"{percent(value)} of the peak is impossible: {suspect}", peak)
    return Mfu(n, flops.per_item, known.tflops, share, value, peak, format)


def _with_reason(known: Mfu, reason: str, peak: float | None = None) -> Mfu:
    return Mfu(
        known.n,
        known.per_item,
        known.tflops,
        known.causal_share,
        peak_tflops=peak,
        format=known.format,
        reason=reason,
        impossible=peak is not None,
    )


def _unknown(gpus: tuple[str, ...], card: Known | None, format: Format | None) -> str:
    if len(gpus) > 1:
        return f"its tasks ran on {' and '.join(gpus)}"
    if card is None:
        return f"the table of cards lacks {gpus[0]} (benchsuite list cards)"
    if format is None:
        return "the number format of its matrix products is not known"
    return f"the table of cards has no {format} peak of {card.name}"


def _suspect(flops: ModelFlops, rate: float, tflops: float, card: Known, peak: float, format: Format | None) -> str:
    """The three numbers, and the one that is most likely wrong."""
    item, rates = f"{number((flops.per_item or 0.0) / 1e9)} GFLOP an item", f"{number(rate)} items/s"
    three = f"{item} x {rates} over {number(peak)} TFLOP/s {format}"
    if card.own:
        return f"{three}; the peak is suspect, which {card.file} states for {card.name}"
    for other in _FASTER.get(format or "fp8", ()):
        if (card.peak_tflops(other) or 0.0) >= tflops:
            return f"{three}; the peak is suspect, since the products may run in {other}"
    if flops.spread:
        return f"{three}; the FLOPs are suspect, since they differ between batches"
    return f"{three}; the rate is suspect, since no format of {card.name} is so fast; check what counts as an item"
