"""What limits a job: planted telemetry gets its class, with the evidence, and "not known" where it is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Call, keep_run, make_result
from made_summaries import flat, made_run
from made_telemetry import make_device, make_telemetry
from outputs import document_of, report_of, section, text_of

from benchsuite.measurement import Measurement
from benchsuite.records import Result
from benchsuite.report.read.summary import JobSummary
from benchsuite.report.read.summary_file import read_summary
from benchsuite.report.read.use import Use
from benchsuite.report.show.html import page
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.bottlenecks import bottleneck, bottlenecks

BASELINES = Path(__file__).parents[1] / "baselines"
# A GPU that is busy with kernels that use none of its units much.
BUSY = {
    "gpu_percent": 97.0, "sm_percent": 80.0, "tensor_percent": 5.0, "dram_percent": 30.0, "fp64_percent": 0.0,
    "fp32_percent": 20.0, "fp16_percent": 0.0, "sm_clock_mhz": 1980.0, "max_sm_clock_mhz": 1980.0, "input_waiting": 0.0,
    "clock_events": {},
}  # fmt: skip
IDLE = {**BUSY, "gpu_percent": 20.0, "sm_percent": 10.0, "dram_percent": 3.0, "fp32_percent": 2.0}


def job(use: dict[str, Any] | None, **fields: Any) -> JobSummary:
    return flat("a", 100.0, use=None if use is None else Use(**use), **fields)


@pytest.mark.parametrize(
    ("use", "by", "evidence"),
    {
        "slow loader": ({**IDLE, "input_waiting": 0.9}, "input", "waits for the next batch for 90 % of the time"),
        "tiny kernels": ({**IDLE, "cpus_busy": 1.0, "cpus": 16}, "host", "1.0 of 16 CPUs are busy"),
        "no wait was recorded": ({**IDLE, "input_waiting": None}, "host or input", "a kernel runs for 20 %"),
        "copies while the GPU is idle": ({**IDLE, "pcie_rx_mib_s": 45_000.0}, "copies", "brings in 45,000 MiB/s, 75 %"),
        "copies back": ({**IDLE, "pcie_tx_mib_s": 45_000.0}, "copies", "takes out 45,000 MiB/s"),
        "copies hidden by kernels": ({**BUSY, "pcie_rx_mib_s": 40_000.0}, "latency", "a kernel runs for 97 %"),
        "big matmul": ({**BUSY, "tensor_percent": 60.0}, "compute", "tensor cores 60 %"),
        "big matmul in fp32": ({**BUSY, "fp32_percent": 70.0}, "compute", "FP32 70 %"),
        "streaming": ({**BUSY, "dram_percent": 85.0}, "memory bandwidth", "memory 85 %"),
        "ResNet-50 in tf32, as measured on an H100": (
            {**BUSY, "sm_percent": 82.7, "tensor_percent": 9.3, "dram_percent": 54.2, "fp32_percent": 1.4},
            "memory bandwidth", "memory 54 %",
        ),
        "matmul at the power limit": (
            {**BUSY, "tensor_percent": 60.0, "clock_events": {"sw_power_cap": 0.9}, "sm_clock_mhz": 1400.0},
            "power", "at the power limit for 90 % of the time, SM clock 1,400 of 1980 MHz",
        ),
        "streaming at the power limit": (
            {**BUSY, "dram_percent": 85.0, "clock_events": {"sw_power_cap": 0.9}, "sm_clock_mhz": 1400.0},
            "memory bandwidth", "at the power limit for 90 % of the time",
        ),
        "a power limit that costs nothing": (
            {**BUSY, "tensor_percent": 60.0, "clock_events": {"sw_power_cap": 0.9}, "sm_clock_mhz": 1965.0},
            "compute", "at the power limit",
        ),
        "heat": ({**BUSY, "clock_events": {"hw_thermal": 0.8}}, "throttling", "hw_thermal slow-down for 80 %"),
        "small dependent kernels": (BUSY, "latency", "no unit is near its peak"),
        "an older GPU": (
            {"gpu_percent": 97.0, "clock_events": {}}, "GPU", "a kernel runs for 97 % of the time",
        ),
        "an older GPU at its power limit": (
            {"gpu_percent": 97.0, "clock_events": {"sw_power_cap": 0.9}, "sm_clock_mhz": 1200.0,
             "max_sm_clock_mhz": 1530.0}, "power", "SM clock 1,200 of 1,530 MHz",
        ),
        "busy SMs alone": ({"sm_percent": 10.0, "input_waiting": 0.0}, "host", "SMs are busy for 10 % of the time"),
        "no telemetry": (None, "not known", ""),
        "memory alone": ({"host_rss_bytes": 1}, "not known", ""),
    }.values(),
)  # fmt: skip
def test_planted_telemetry_gets_its_class(use: dict[str, Any] | None, by: str, evidence: str) -> None:
    found = bottleneck(job(use))
    assert found.by == by, found.words
    assert evidence.replace("1980", "1,980") in ", ".join(found.evidence)


def test_a_busy_gpu_whose_units_are_not_counted_names_what_is_missing() -> None:
    found = bottleneck(job({"gpu_percent": 97.0, "tensor_percent": 3.0}))
    assert (found.by, found.missing) == ("GPU", "not recorded: memory, FP32, FP64, FP16")
    assert bottleneck(job({"gpu_percent": 97.0, "tensor_percent": 60.0})).by == "compute"
    assert bottleneck(job(None)).words == "not known (no telemetry of its GPUs)"


@pytest.mark.parametrize(
    ("rate", "by"), [(45.0, "communication"), (93.0, "latency"), (None, "not known")], ids=["loses", "keeps", "alone"]
)
def test_a_group_is_limited_by_communication_if_it_loses_more_than_half(rate: float | None, by: str) -> None:
    two = flat("s.2", rate or 50.0, axes={"gpus": 2}, per=2, ranks=2, backend="nccl", use=Use(**BUSY))
    one = flat("s.1", 100.0, axes={"gpus": 1}, use=Use(**BUSY))
    single, group = (msgspec.structs.replace(of, job="s") for of in (one, two))
    found = bottlenecks(made_run(single, group) if rate else made_run(group))[-1]
    assert found.by == by
    assert "2 ranks over nccl" in found.evidence[0]


def test_a_group_that_waits_for_batches_is_limited_by_input_and_not_by_communication() -> None:
    group = job({**IDLE, "input_waiting": 0.8}, ranks=2)
    assert bottleneck(group).by == "input"


def test_jobs_on_the_cpu_and_jobs_without_a_number_have_no_bottleneck() -> None:
    assert bottlenecks(made_run(job(BUSY, devices="none"), flat("b", "failed"))) == []


def test_the_summaries_of_older_versions_are_judged_as_far_as_they_go() -> None:
    found = {one.job: one.by for one in bottlenecks(read_summary(BASELINES / "h200x2.json"))}
    assert {"loader", "vae", "toy_reg"} <= {name for name, by in found.items() if by == "host or input"}
    # At its power limit for 60 % of the time, but its clock is 1,970 of 1,980 MHz.
    assert (found["ssd"], found["convnet"], found["scaling.2"]) == ("GPU", "GPU", "GPU")
    assert {one.by for one in bottlenecks(read_summary(BASELINES / "v100.json"))} == {"not known"}


# --- from results, and in every format


def measured(gauges: dict[str, float | None], input_s: float | None, name: str = "vae") -> Result:
    """A result of 15 s of slices with this telemetry."""
    result = make_result(name, telemetry=make_telemetry(make_device(0, gauges)))
    streams = tuple(msgspec.structs.replace(one, input_s=input_s) for one in result.measurement.streams)
    return msgspec.structs.replace(result, measurement=Measurement(streams=streams))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    waits = measured({"gpu_percent": 10.0}, 13.5, "waits")
    streams = measured({"dram_percent": 85.0, "fp32_percent": 1.0, "fp64_percent": 0.0, "fp16_percent": 0.0}, 0.0)
    keep_run(tmp_path / "run", [waits, streams])
    return tmp_path / "run"


def test_the_short_report_names_the_class_and_the_whole_one_the_evidence(call: Call, folder: Path) -> None:
    code, out, _ = call("report", folder)
    assert code == 0
    assert len(out.splitlines()) <= 40
    assert "limited by" in out and "memory bandwidth" in out
    full = call("report", "--full", folder)[1]
    words = "input: a kernel runs for 10 % of the time, the host waits for the next batch for 90 % of the time"
    assert words in " ".join(full.split())


def test_data_formats_have_the_class_with_its_evidence(call: Call, folder: Path) -> None:
    content = json.loads(call("report", folder, "--json", "-")[1])
    assert [(one["job"], one["by"]) for one in content["bottlenecks"]] == [
        ("waits", "input"),
        ("vae", "memory bandwidth"),
    ]
    assert "memory 85 %" in content["bottlenecks"][1]["evidence"]
    assert content["jobs"][0]["limited_by"] == "input"
    header, first, *_ = call("report", folder, "--csv", "-")[1].splitlines()
    assert "limited_by,limited_by_evidence" in header
    assert ",input,a kernel runs for 10 % of the time;" in first


def test_the_page_has_a_bar_for_each_counter_that_is_recorded(folder: Path) -> None:
    text = page(report_of(summary_of(folder)), None)
    limits = text[text.index('<section id="limits">') :]
    limits = limits[: limits.index("</section>")]
    assert all(f">{name} %</button>" in limits for name in ("kernel", "input", "SMs", "memory BW", "tensor"))
    assert "memory %" not in limits, "the size of the card is not recorded"
    assert '<rect class="part" width="85.0%"' in limits
    assert "the host waits for the next batch for 90 % of the time" in limits


def test_a_run_without_telemetry_has_no_such_section() -> None:
    summary = made_run(flat("a", 100.0))
    assert "What limits" not in text_of(summary)
    assert not [of for of in document_of(summary).sections if of.title == "What limits each job"]
    assert section(document_of(made_run(job(BUSY))), "What limits").parts
