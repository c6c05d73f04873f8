"""Model FLOPs and their share of the dense peak of the GPUs (MFU)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchsuite.report.format import NONE, number, one_line, percent, share
from benchsuite.report.show.document import Cell, Column, Section, Sentence, sentence, table
from benchsuite.report.stats.mfu import Mfu, mfu
from benchsuite.report.stats.roofline import RooflinePoint, roofline

if TYPE_CHECKING:  # light to import: no scipy
    from benchsuite.report.read.summary import JobSummary, Summary

_LEGEND = (
    "Means over n ok tasks. TFLOP/s: FLOPs of an item x items/s of one GPU. MFU: its share of the GPU's dense peak "
    "(no sparsity) in the format of the products; whole attention squares count. causal: MFU if only the visible half "
    "of causal attention counts."
)
_ROOF = (
    " FLOP/byte: model FLOPs for each byte of memory traffic, by the GPU's counters. roof: the peak or the memory, "
    "whichever allows less at this FLOP/byte (roofline model). of roof: TFLOP/s over it."
)


@dataclass(frozen=True)
class _Counted:
    name: str
    found: Mfu
    point: RooflinePoint | None


_COLUMNS: tuple[Column[_Counted], ...] = (
    Column("job", lambda one: one.name),
    Column("GFLOP/item", lambda one: _giga(one.found), number, right=True, rank=2),
    Column("TFLOP/s", lambda one: one.found.tflops, number, right=True, rank=1),
    Column("MFU %", lambda one: _cell(one.found), right=True),
    Column("causal", lambda one: _causal(one.found), share, right=True, rank=3, optional=True),
    Column("peak", lambda one: one.found.peak_tflops, number, right=True, rank=4, optional=True),
    Column("format", lambda one: one.found.format or NONE, rank=4),
    Column(
        "FLOP/byte", lambda one: one.point.intensity if one.point else None, number, right=True, rank=5, optional=True
    ),
    Column("roof", lambda one: one.point.roof if one.point else "", rank=6, optional=True),
    Column("of roof %", lambda one: one.point.of_roof if one.point else None, share, right=True, rank=5, optional=True),
    Column("n", lambda one: one.found.n, right=True, rank=5),
    Column("why not", lambda one: one_line(one.found.reason) if one.found.reason else "", prose=True, optional=True),
)


def mfu_section(summary: Summary) -> Section | None:
    """The jobs on GPUs whose results record model FLOPs, or why there are none; None without such a job."""
    counted = [_counted(job) for job in summary.jobs if job.model_flops and job.gpu_names]
    if not any(one.found.per_item for one in counted):
        return None
    legend = _LEGEND + (_ROOF if any(one.point for one in counted) else "")
    return Section("Model FLOPs and MFU", (table(_COLUMNS, counted, legend),))


def _counted(job: JobSummary) -> _Counted:
    found = mfu(job)
    return _Counted(job.name, found, roofline(job, found))


def mfu_cell(job: JobSummary) -> Cell:
    """The MFU of a job in percent."""
    return _cell(mfu(job)) if job.model_flops else Cell(NONE)


def mfu_words(found: Mfu) -> str:
    """ "MFU 41.2 % (whole square; 38.9 % causal) of 989 TFLOP/s bf16 dense"; empty without a value."""
    if found.value is None or found.peak_tflops is None:
        return ""
    causal = f"; {percent(found.causal)} causal" if found.causal_share else ""
    peak = f"{found.peak_tflops:,.0f} TFLOP/s {found.format} dense"
    return f"MFU {percent(found.value)} (whole square{causal}) of {peak}"


def mfu_errors(summary: Summary) -> Iterator[Sentence]:
    """One sentence for each job whose MFU is over 100 %."""
    for job in summary.jobs:
        found = mfu(job) if job.model_flops else None
        if found and found.impossible:
            yield sentence(f"MFU of {one_line(job.name)}: {one_line(found.reason, 400)}.", "bad", strong=True)


def mfu_legend(summary: Summary) -> str:
    """The words for a column "MFU %", with how far the two conventions are apart; empty without a value."""
    found = [one for job in summary.jobs if job.model_flops and (one := mfu(job)).value is not None]
    if not found:
        return ""
    apart = max(one.causal_share for one in found)
    causal = f", up to {percent(apart, 0)} less with the causal half" if apart else ""
    return f"MFU: model FLOP/s over the dense peak; whole attention squares count{causal}."


def _cell(found: Mfu) -> Cell:
    if found.impossible:
        return Cell("over 100", tone="bad", note=found.reason or "")
    return Cell(share(found.value), found.value, note=found.reason or mfu_words(found))


def _giga(found: Mfu) -> float | None:
    return None if found.per_item is None else found.per_item / 1e9


def _causal(found: Mfu) -> float | None:
    return found.causal if found.causal_share else None
