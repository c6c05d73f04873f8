"""A job's place below the roof of its GPU, from its FLOPs and the counted traffic of its memory."""

from __future__ import annotations

from typing import Any

import pytest
from made_summaries import flat, made_run

from benchsuite.measurement import ModelFlops
from benchsuite.report.read.summary import JobSummary
from benchsuite.report.read.use import Use
from benchsuite.report.show.html.roofline import roofline_figures
from benchsuite.report.stats.roofline import roofline


def job(name: str, rate: float, dram_percent: float | None, **fields: Any) -> JobSummary:
    flops = ModelFlops(per_item=1e9, causal_per_item=0, batches=1)
    given = {"model_flops": flops, "gpu_names": ("NVIDIA H200",), "product_format": "bf16", **fields}
    return flat(name, rate, use=Use(dram_percent=dram_percent), **given)


def test_below_the_ridge_the_memory_is_the_roof_and_above_it_the_peak() -> None:
    streaming = roofline(job("a", 100_000, 80))
    assert streaming and streaming.tflops == pytest.approx(100)
    assert streaming.intensity == pytest.approx(100e12 / (0.8 * 4800e9))
    assert streaming.roof == "memory" and streaming.of_roof == pytest.approx(0.8)
    assert streaming.ridge == pytest.approx(989.4e12 / 4800e9)
    products = roofline(job("b", 494_700, 20))
    assert products and products.roof == "compute" and products.of_roof == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("dram_percent", "fields"),
    [(None, {}), (2.0, {}), (50.0, {"gpu_names": ("Unheard Of",)}), (50.0, {"product_format": None})],
    ids=["no counter", "too little traffic", "unknown card", "unknown format"],
)
def test_a_job_has_no_place_without_peaks_and_traffic(dram_percent: float | None, fields: dict[str, Any]) -> None:
    assert roofline(job("a", 100_000, dram_percent, **fields)) is None


def test_the_page_draws_one_roofline_a_card_with_a_point_a_job() -> None:
    summary = made_run(job("<a>", 100_000, 80), job("b", 494_700, 20), job("c", 1.0, None))
    (figure,) = roofline_figures(summary)
    assert figure.svg.count("<circle") == 2
    assert "&lt;a&gt;: 100.0 TFLOP/s bf16 at 26.0" in figure.svg and "80 % of the roof" in figure.svg
    assert "<a>" not in figure.svg
    assert [key.name for key in figure.keys] == ["jobs in bf16, below 989 TFLOP/s", "memory, 4,800 GB/s"]
