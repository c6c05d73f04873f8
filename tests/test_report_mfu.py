"""MFU in reports: FLOPs of an item x items/s, over the dense peak of the card in the format in force."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Call, keep_run, make_gpu, make_result, make_run, make_task

from benchsuite.describe.tasks import Job, Placement
from benchsuite.describe.training import Training
from benchsuite.measurement import Measurement, ModelFlops, PrecisionCheck
from benchsuite.records import Result
from benchsuite.report.read.flops import product_format
from benchsuite.report.show.one_line import figure
from benchsuite.report.stats.mfu import utilisation
from benchsuite.report.stats.rate import rate

# Of a decoder of 124 M parameters and 12 x 768, for a token of 1,024.
GPT = ModelFlops(per_item=6 * 124e6 + 12 * 12 * 768 * 1024, causal_per_item=6 * 12 * 768 * 1024, batches=1)
IN_FORCE = {"fp32": "fp32", "tf32": "tf32 or fp16", "amp-fp16": "tf32 or fp16", "bf16": "bf16"}


def made(
    name: str = "gpt",
    rate: float = 500_000,
    flops: ModelFlops | None = GPT,
    precision: Any = "bf16",
    card: str = "NVIDIA H200",
    gpus: int = 1,
    devices: Any = "each",
    **check: Any,
) -> Result:
    """A result of a job at a steady rate on GPUs of one model."""
    cards = tuple(make_gpu(index, card) for index in range(gpus))
    job = Job(name=name, model="vae", placement=Placement(devices=devices), training=Training(precision=precision))
    result = make_result(rates=[rate] * 30, task=make_task(job=job, gpus=cards, ranks=max(gpus, 1)))
    checked = {"asked": precision, "in_force": IN_FORCE[precision], "matmul_error": 0.0, "conv_error": 0.0, **check}
    stream = msgspec.structs.replace(
        result.measurement.streams[0], unit="token", model_flops=flops, precision=PrecisionCheck(**checked)
    )
    return msgspec.structs.replace(result, measurement=Measurement(streams=(stream,)))


def reported(call: Call, folder: Path, *results: Result) -> dict[str, dict[str, str]]:
    """Job -> the row of the report's CSV."""
    keep_run(folder, results, run=make_run(1))
    rows = csv.DictReader(io.StringIO(call("report", folder, "--csv", "-")[1]))
    return {row["name"]: row for row in rows}


def test_mfu_is_flops_times_rate_over_the_dense_peak() -> None:
    found = utilisation(GPT, 500_000, ("NVIDIA H200",), "bf16")
    assert found.tflops == pytest.approx(500_000 * GPT.per_item / 1e12)  # type: ignore[operator]
    assert found.value == pytest.approx(found.tflops / 989.4) == pytest.approx(0.4333, abs=1e-4)
    square = 12 * 12 * 768 * 1024 / GPT.per_item  # type: ignore[operator]
    assert found.causal == pytest.approx(found.value * (1 - square / 2))


@pytest.mark.parametrize(
    ("precision", "check", "products", "expected"),
    [
        ("fp32", {}, None, "fp32"),
        ("tf32", {}, None, "tf32"),
        ("tf32", {"in_force": "fp32"}, None, "fp32"),
        ("amp-fp16", {}, None, "fp16"),
        ("bf16", {}, None, "bf16"),
        ("bf16", {}, "fp8", "fp8"),
        ("bf16", {"in_force": "fp32"}, None, None),
        ("fp32", {"parameters": {"float64": 5}}, None, None),
    ],
)
def test_the_format_is_that_of_the_precision_in_force_or_of_the_model(
    precision: str, check: dict[str, Any], products: str | None, expected: str | None
) -> None:
    flops = msgspec.structs.replace(GPT, products=products)
    assert product_format(made(precision=precision, flops=flops, **check)) == expected


@pytest.mark.parametrize(
    ("flops", "gpus", "format", "reason"),
    [
        (None, ("NVIDIA H200",), "bf16", "FLOPs are not recorded"),
        (ModelFlops(reason="no"), ("NVIDIA H200",), "bf16", "no"),
        (GPT, (), "fp32", "no rate on a GPU"),
        (GPT, ("NVIDIA Test",), "bf16", "the table of cards lacks NVIDIA Test (benchsuite list cards)"),
        (GPT, ("NVIDIA H200", "NVIDIA L4"), "bf16", "its tasks ran on NVIDIA H200 and NVIDIA L4"),
        (GPT, ("NVIDIA H200",), None, "the number format of its matrix products is not known"),
        (GPT, ("Tesla V100-SXM2-16GB",), "bf16", "the table of cards has no bf16 peak of v100_sxm2"),
    ],
)
def test_what_is_not_known_is_no_guess(flops: Any, gpus: Any, format: Any, reason: str) -> None:
    found = utilisation(flops, 1000, gpus, format)
    assert (found.value, found.reason, found.impossible) == (None, reason, False)


@pytest.mark.parametrize(
    ("per_item", "spread", "format", "suspect"),
    [
        (3e9, 0.0, "bf16", "the peak is suspect, since the products may run in fp8"),
        (6e9, 0.3, "bf16", "the FLOPs are suspect, since they differ between batches"),
        (6e9, 0.0, "bf16", "the rate is suspect, since no format of h200 is so fast; check what counts as an item"),
        (2e8, 0.0, "fp32", "the peak is suspect, since the products may run in tf32"),
    ],
)
def test_over_100_percent_is_an_error_that_names_the_suspect(
    per_item: float, spread: float, format: Any, suspect: str
) -> None:
    found = utilisation(ModelFlops(per_item=per_item, spread=spread), 500_000, ("NVIDIA H200",), format)
    assert found.impossible and found.value is None and found.reason
    assert suspect in found.reason
    assert found.reason.startswith(f"{100 * (found.tflops or 0) / (found.peak_tflops or 1):.1f} % of the peak is imp")


def test_the_peak_of_a_user_is_suspect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.yaml"
    own.write_text('mine: {names: ["NVIDIA H200"], dense_tflops: {bf16: 10}, source: me}', encoding="utf-8")
    monkeypatch.setenv("BENCHSUITE_CARDS", str(own))
    found = utilisation(GPT, 500_000, ("NVIDIA H200",), "bf16")
    assert found.reason and found.reason.endswith(f"the peak is suspect, which {own} states for mine")


def test_every_form_of_the_report_shows_mfu_with_its_convention(call: Call, tmp_path: Path) -> None:
    folder, markdown = tmp_path / "run", tmp_path / "report.md"
    row = reported(call, folder, made())["gpt"]
    assert float(row["mfu"]) == pytest.approx(0.4333, abs=1e-4)
    assert float(row["mfu_causal"]) == pytest.approx(0.4047, abs=1e-4)
    assert (row["peak_tflops"], row["product_format"]) == ("989.4", "bf16")
    brief = call("report", folder)[1]
    assert "MFU %" in brief and " 43.3" in brief and len(brief.splitlines()) <= 40
    assert "whole attention squares count, up to 7 % less with the causal half" in " ".join(brief.split())
    full = call("report", folder, "--full", "--html", tmp_path / "page.html", "--md", markdown)[1]
    for text in (full, markdown.read_text("utf-8"), (tmp_path / "page.html").read_text("utf-8")):
        assert "Model FLOPs and MFU" in text and "43.3" in text and "40.5" in text
    content = json.loads(call("report", folder, "--json", "-")[1])
    assert content["summary"]["jobs"][0]["model_flops"]["per_item"] == GPT.per_item


def test_an_impossible_mfu_is_an_error_of_the_report(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [made(flops=ModelFlops(per_item=3e9))], run=make_run(1))
    text = " ".join(call("report", tmp_path / "run")[1].split())
    assert "MFU of gpt: 151.6 % of the peak is impossible: 3.00 GFLOP an item x 500,000 items/s over 989.4" in text
    assert "over 100" in text


def test_a_group_and_a_progression_divide_by_their_gpus(call: Call, tmp_path: Path) -> None:
    rows = reported(
        call,
        tmp_path / "run",
        made("group", 1_000_000, gpus=2, devices="all"),
        made("steps", 1_000_000, gpus=2, devices="progression"),
    )
    for name in ("group", "steps.2"):
        assert float(rows[name]["mfu"]) == pytest.approx(0.4333, abs=1e-4)


def test_a_baseline_keeps_the_flops_and_an_older_one_has_none(call: Call, tmp_path: Path) -> None:
    reported(call, tmp_path / "run", made())
    baseline = tmp_path / "base.json"
    baseline.write_text(call("summary", tmp_path / "run")[1], encoding="utf-8")
    assert " 43.3" in call("report", baseline)[1]
    assert "MFU" not in call("report", "h200")[1]


def test_a_run_ends_with_its_mfu_and_the_json_holds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = "MFU 43.3 % (whole square; 40.5 % causal) of 989 TFLOP/s bf16 dense"
    assert figure(made()).words.endswith(f", {words}")
    assert rate(made()).mfu == pytest.approx(0.4333, abs=1e-4)
    assert "MFU" not in figure(make_result()).words and rate(make_result()).mfu is None
    (tmp_path / "bad.yaml").write_text("x: {names: 1}", encoding="utf-8")
    monkeypatch.setenv("BENCHSUITE_CARDS", str(tmp_path / "bad.yaml"))
    assert figure(made()).has_figure and rate(made()).mfu is None  # the result of a run is not lost


def test_a_bad_file_of_cards_is_named_by_the_report(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep_run(tmp_path / "run", [made()], run=make_run(1))
    (tmp_path / "bad.yaml").write_text("x: {names: 1}", encoding="utf-8")
    monkeypatch.setenv("BENCHSUITE_CARDS", str(tmp_path / "bad.yaml"))
    status, _, error = call("report", tmp_path / "run")
    assert status == 2 and "bad.yaml: card 'x'" in error
