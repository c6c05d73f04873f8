"""A node is judged by its figures: planted faults are named with their cause, and a healthy node passes."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Call, keep_run, make_gpu, make_result, make_run, make_task
from fake_nvml import card as nvml_card
from fake_nvml import play
from made_telemetry import make_device, make_telemetry
from support import benchsuite, in_process, write_profile

from benchsuite.commands import _passes, health
from benchsuite.describe.tasks import Gpu, Job, Placement
from benchsuite.errors import ProfileError
from benchsuite.health import rules as of_rules
from benchsuite.health.deviation import FAMILY_ERROR, decide, from_base, from_links, from_peers
from benchsuite.health.nodes import judge, judge_loaded
from benchsuite.health.rules import Tolerance
from benchsuite.health.state import GpuFacts, NodeState, Watched, XidEvent, of_gpu
from benchsuite.health.verdict import Node, Outcome
from benchsuite.host import digest
from benchsuite.host.device import Device
from benchsuite.measurement import Reading
from benchsuite.records import Failure, Result
from benchsuite.report.read.load import Loaded, row_of
from benchsuite.telemetry import DeviceTelemetry, GpuProcess

H200 = "NVIDIA H200"
# What a healthy H200 does, in the units of the jobs.
HEALTHY = {"matmul_bf16": 655_000.0, "memory": 4_150.0, "host_to_device": 52.0}
READINGS = {
    "matmul_bf16": {"by_size": Reading(unit="TFLOP/s", labels=("8192", "16384"), values=(655.0, 670.0))},
    "memory": {"triad": Reading(unit="GB/s", value=4_300.0)},
}
SICK = 3


def card(index: int, name: str = H200) -> Gpu:
    gpu = make_gpu(index, name)
    return msgspec.structs.replace(gpu, max_sm_clock_mhz=1980, power_limit_w=700.0)


def of_card(job: str, gpu: Gpu, rate: float, device: DeviceTelemetry | None = None, **fields: Any) -> Result:
    more = {"telemetry": make_telemetry(device)} if device else {}
    return make_result(task=make_task(job, gpus=(gpu,), profile="probes"), rates=[rate] * 30, **{**more, **fields})


def of_all(job: str, gpus: Sequence[Gpu], rate: float, readings: Mapping[str, Reading], **fields: Any) -> Result:
    """A job of all GPUs, with readings."""
    record = Job(name=job, model="vae", placement=Placement(devices="all"))
    task = make_task(job, gpus=tuple(gpus), ranks=len(gpus), job=record, profile="probes")
    result = make_result(task=task, rates=[rate] * 30, **fields)
    return with_readings(result, readings)


def with_readings(result: Result, readings: Mapping[str, Reading]) -> Result:
    (stream,) = result.measurement.streams
    stream = msgspec.structs.replace(stream, readings=dict(readings))
    return msgspec.structs.replace(result, measurement=msgspec.structs.replace(result.measurement, streams=(stream,)))


def at_once(gpus: int) -> Reading:
    labels = tuple(f"{a}<>{b}" for a in range(gpus) for b in range(a + 1, gpus))
    return Reading(unit="GB/s", labels=labels, values=(720.0,) * len(labels))


def links(gpus: int, slow: Mapping[str, float] | None = None) -> Reading:
    labels = tuple(f"{a}>{b}" for a in range(gpus) for b in range(gpus) if a != b)
    return Reading(unit="GB/s", labels=labels, values=tuple((slow or {}).get(label, 389.0) for label in labels))


def votes(gpus: int, wrong: Mapping[int, float] | None = None) -> dict[str, Reading]:
    labels = tuple(map(str, range(gpus)))
    values = tuple((wrong or {}).get(gpu, 0.0) for gpu in range(gpus))
    word = "equal" if not wrong else f"GPU {next(iter(wrong))} differs from the others"
    return {
        "wrong": Reading(unit="result", labels=labels, values=values),
        "flaky": Reading(unit="result", labels=labels, values=(0.0,) * gpus),
        "wrong_links": Reading(unit="result", labels=("0>1",), values=(0.0,)) if gpus > 1 else Reading(unit="result"),
        "verdict": Reading(unit="word", value=word),
    }


def healthy(gpus: int = 8, name: str = H200, noise: float = 0.005, seed: int = 1, **slow: Any) -> list[Result]:
    """The results of a healthy node; `slow` maps a job to the factor, and the telemetry, of the sick GPU."""
    draw, cards, found = random.Random(seed), [card(index, name) for index in range(gpus)], []
    for job, rate in HEALTHY.items():
        for gpu in cards:
            factor, device = slow.get(job, (1.0, {})) if gpu.visible_index == SICK else (1.0, {})
            gauges = {"sm_clock_mhz": 1755.0, **device.get("gauges", {})}
            events = {"sw_power_cap": 9.0, **device.get("events", {})}
            if device.get("uncapped"):
                del events["sw_power_cap"]
            watched = make_device(gpu.visible_index, gauges, events, **device.get("fields", {}))
            result = of_card(job, gpu, rate * factor * (1 + draw.gauss(0, noise)), watched)
            found.append(with_readings(result, READINGS.get(job, {})))
    found.append(
        of_all("peer_links", cards, 389.0, {"one_way": links(gpus, slow.get("links")), "both_ways": at_once(gpus)})
    )
    found.append(of_all("corruption", cards, 1.0, votes(gpus, slow.get("wrong"))))
    return found


def facts(index: int, **fields: Any) -> GpuFacts:
    gpu = card(index)
    well: dict[str, Any] = {
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "remap_pending": False,
        "remap_failed": False,
        "power_limit_w": 700.0,
        "power_limit_default_w": 700.0,
    }
    return GpuFacts(uuid=gpu.uuid, index=index, pci=gpu.pci, **{**well, **fields})


def judged(
    folder: Path, results: Sequence[Result], gpus: int = 8, base: str | None = None, watched: Watched | None = None
) -> Node:
    """Judged without a file, since files cost most of the time; `rundir` and `load` have tests of their own."""
    rows = tuple(row_of(None, result) for result in results)
    run = make_run(gpus)
    loaded = Loaded(folder, run, True, rows, (), (), machines=run.machines)
    (node,) = judge_loaded(loaded, watched, of_rules.load(), base)
    return node


def state_of(gpus: int = 8, expected: int | None = None, xids: Sequence[XidEvent] = (), **sick: Any) -> Watched:
    after = tuple(facts(index, **(sick if index == SICK else {})) for index in range(gpus))
    before = NodeState(gpus=tuple(facts(index) for index in range(gpus)))
    return Watched(mode="quick", expected_gpus=expected, before=before, after=NodeState(gpus=after, xids=tuple(xids)))


def outcome(node: Node, check: str, place: str = f"GPU {SICK}") -> Outcome:
    return next(one for one in node.outcomes if (one.check, one.place) == (check, place))


# --- a healthy node


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_healthy_node_passes_20_times_of_20(tmp_path: Path, gpus: int) -> None:
    words = [
        judged(tmp_path / str(seed), healthy(gpus, seed=seed), gpus, watched=state_of(gpus)).word for seed in range(20)
    ]
    assert words == ["PASS"] * 20


def test_the_verdict_counts_what_passed_and_shows_every_figure(tmp_path: Path) -> None:
    node = judged(tmp_path, healthy(), watched=state_of(expected=8))
    assert (node.word, node.host, len(node.gpus)) == ("PASS", "hostA", 8)
    found = outcome(node, "matmul_bf16")
    assert (found.word, found.unit, found.uuids) == ("PASS", "TFLOP/s", ("GPU-0003",))
    assert found.value == pytest.approx(655, rel=0.03)
    assert [ruling.rule for ruling in found.rulings] == ["floor", "peer"]
    assert found.reason.startswith("floor 588.6 (654.0 less 10 %); ")
    assert found.sources[0].startswith("measured by benchsuite's authors on 2 x H200")


# --- planted faults


NEIGHBOUR = {"fields": {"foreign": (GpuProcess(pid=4711, memory_bytes=2 << 30, here=True),)}}
FAULTS: dict[str, tuple[float, dict[str, Any], str]] = {
    "a busy neighbour": (0.7, NEIGHBOUR, "another process computes on it: pid 4711 (2,048 MiB)"),
    "heat": (
        0.85,
        {"events": {"hw_thermal": 6.0}, "gauges": {"temperature_c": 91.0}},
        "hw_thermal slow-down for 40.0 % of the time, up to 91 °C",
    ),
    "lowered clocks": (
        0.6,
        {"gauges": {"sm_clock_mhz": 1005.0}, "uncapped": True},
        "its SM clock is 1,005 of 1,980 MHz without heat or a power cap: clocks are locked or lowered",
    ),
    "lower clocks than the others": (
        0.88,
        {"gauges": {"sm_clock_mhz": 1500.0}},
        "its SM clock is 1,500 MHz (others 1,755 MHz)",
    ),
    "memory errors": (0.5, {"fields": {"ecc_uncorrected": 2}}, "uncorrected memory errors during the probe"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_slow_gpu_is_named_with_its_cause(tmp_path: Path, fault: str) -> None:
    factor, device, cause = FAULTS[fault]
    node = judged(tmp_path, healthy(matmul_bf16=(factor, device)), watched=state_of())
    assert node.word == "FAIL"
    found = outcome(node, "matmul_bf16")
    assert found.word == "FAIL"
    assert cause in (found.cause or "")
    assert node.reason.startswith("GPU 3 (GPU-0003) matmul bf16 ")
    assert f"; likely cause: {found.cause}; show: env CUDA_DEVICE_ORDER" in node.reason
    assert "benchsuite run vae" in found.command
    assert not [one for one in node.outcomes if one.word == "FAIL" and one.place not in (f"GPU {SICK}",)]


def test_a_tenth_slower_than_its_peers_fails_above_every_floor(tmp_path: Path) -> None:
    """No floor is known for the card: only the others show it."""
    node = judged(tmp_path, healthy(name="NVIDIA Unheard", memory=(0.9, {})))
    found = outcome(node, "memory_copy")
    assert (node.word, found.word) == ("FAIL", "FAIL")
    assert "below the median" in found.reason
    assert [(ruling.rule, ruling.word) for ruling in found.rulings] == [("floor", "NOT RUN"), ("peer", "FAIL")]
    assert found.rulings[0].reason == "no floor is known for NVIDIA Unheard"


def test_of_two_gpus_the_slower_one_is_named_by_the_ratio(tmp_path: Path) -> None:
    results = [of_card("memory", card(index, "X"), rate) for index, rate in enumerate((4000.0, 3500.0))]
    node = judged(tmp_path, results, 2)
    assert "12.5 % below the other's 4,000" in outcome(node, "memory_copy", "GPU 1").reason
    assert outcome(node, "memory_copy", "GPU 0").word == "PASS"


def test_a_bad_link_is_named_and_no_gpu(tmp_path: Path) -> None:
    node = judged(tmp_path, healthy(links={"2>5": 160.0}))
    failed = [one for one in node.outcomes if one.word == "FAIL"]
    assert [one.where for one in failed] == ["link 2>5 (GPU-0002, GPU-0005)"]
    assert failed[0].cause == "a bad link between the GPUs (NVLink, NVSwitch or PCIe)"


def test_a_flipped_bit_is_silent_corruption(tmp_path: Path) -> None:
    node = judged(tmp_path, healthy(wrong={SICK: 1.0}))
    assert outcome(node, "wrong_results").cause == "silent corruption, for its results differ from the usual ones"
    verdict = outcome(node, "corruption_verdict", "node")
    assert (verdict.word, verdict.value) == ("FAIL", "GPU 3 differs from the others")


def alone(model: str, readings: Mapping[str, Reading], **params: Any) -> Result:
    """What `benchsuite run MODEL` leaves."""
    task = make_task(model, gpus=(card(0),), job=Job(name=model, model=model, params=params), profile="run")
    return with_readings(make_result(task=task, rates=[1.0] * 30), readings)


def test_the_probe_run_alone_is_judged_and_a_planted_bit_is_named_as_such(tmp_path: Path) -> None:
    planted = Reading(unit="word", value="on purpose: bit 7 of the result of matmul_bf16 on GPU 0, in step 5")
    node = judged(tmp_path, [alone("probe_corruption", {**votes(1, {0: 1.0}), "planted": planted}, size=64)], 1)
    found = outcome(node, "wrong_results", "GPU 0")
    assert (node.word, found.word, found.figure, found.cause) == (
        "FAIL",
        "FAIL",
        "1 result",
        f"planted {planted.value}",
    )
    assert "copies over the link: it needs at least 2 GPUs" not in node.reason
    assert outcome(node, "wrong_links", "GPU 0").reason == "it needs at least 2 GPUs"


def test_a_run_with_settings_of_its_own_is_no_probe_and_says_so(tmp_path: Path) -> None:
    """Its rate depends on them."""
    node = judged(tmp_path, [alone("probe_memory", {}, megabytes=10, triad_s=1.0, seed=1234)], 1)
    assert node.word == "NOT RUN"
    assert node.reason.startswith("no check is for its jobs (probe_memory); run 'benchsuite health'")


def seen_by_nvml(monkeypatch: pytest.MonkeyPatch, index: int, **answers: Any) -> DeviceTelemetry:
    """What the monitor's samples of a made-up card say in 15 s."""
    well = {"nvmlDeviceGetClockInfo": 1755, "nvmlDeviceGetCurrentClocksEventReasons": 4, **answers}
    play(monkeypatch, *(nvml_card(place, **well) for place in range(index + 1)))
    named = msgspec.structs.replace(card(index), uuid=f"GPU-{index}{index}")
    device = Device(named, {})
    samples = [msgspec.structs.replace(device.sample(), monotonic_s=1000.0 + second) for second in range(16)]
    found = digest.summarise(card(index), samples, {}, own_pids={11})
    device.close()
    return found


NVML_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "lowered clocks": (
        {"nvmlDeviceGetClockInfo": 1005, "nvmlDeviceGetCurrentClocksEventReasons": 2},
        "its SM clock is 1,005 of 1,980 MHz without heat or a power cap: clocks are locked or lowered",
    ),
    "heat": (
        {"nvmlDeviceGetClockInfo": 1200, "nvmlDeviceGetCurrentClocksEventReasons": 0x40},
        "hw_thermal slow-down for 100.0 % of the time",
    ),
    "a busy neighbour": (
        {
            "nvmlDeviceGetComputeRunningProcesses": [
                {"pid": 11, "usedGpuMemory": 1},
                {"pid": 4711, "usedGpuMemory": 2 << 30},
            ]
        },
        "another process computes on it: pid 4711 (2,048 MiB)",
    ),
}


@pytest.mark.parametrize("fault", NVML_FAULTS)
def test_a_fault_in_the_made_up_nvml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """The answers of NVML go through the samples and the summary of a task to the cause of the verdict."""
    answers, cause = NVML_FAULTS[fault]
    sick = seen_by_nvml(monkeypatch, 0, **answers)
    others = [seen_by_nvml(monkeypatch, index) for index in (1, 2, 3)]
    results = [
        of_card("matmul_bf16", card(index), 400_000.0 if index == 0 else 655_000.0, device)
        for index, device in enumerate([sick, *others])
    ]
    node = judged(tmp_path, results, 4)
    assert node.word == "FAIL"
    assert (outcome(node, "matmul_bf16", "GPU 0").cause or "").startswith(cause)


def test_the_state_of_made_up_cards_is_read_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = {"nvmlDeviceGetCurrPcieLinkWidth": 8, "nvmlDeviceGetMaxPcieLinkWidth": 16}
    play(monkeypatch, nvml_card(0, **narrow), nvml_card(1, nvmlDeviceGetRemappedRows=[0, 1, 1, 0]))
    gpus = [msgspec.structs.replace(card(index), uuid=f"GPU-{index}{index}") for index in (0, 1, 2)]
    state = _passes.state_of(gpus)
    found = [{one.check: one.word for one in of_gpu(facts, facts, state, of_rules.load())} for facts in state.gpus]
    assert (found[0]["pcie_link"], found[0]["ecc"], found[0]["row_remapping"]) == ("FAIL", "NOT RUN", "NOT RUN")
    assert found[1]["row_remapping"] == "FAIL"
    assert found[2] == {"answers": "FAIL"}, "NVML knows no such card"


STATES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "lanes": ({"pcie_width": 8}, "pcie_link", "FAIL", "its PCIe link has 8 of 16 lanes"),
    "generation": ({"pcie_generation": 3}, "pcie_link", "PASS", "all lanes"),
    "errors": ({"ecc_uncorrected": 4}, "ecc", "FAIL", "4 uncorrected memory errors since the driver started"),
    "corrected": ({"ecc_corrected": 9}, "ecc", "WARN", "9 memory errors corrected during the probes"),
    "pending": ({"remap_pending": True}, "row_remapping", "FAIL", "a memory row waits to be remapped"),
    "limit": ({"power_limit_w": 400.0}, "power_limit", "WARN", "its power limit is 400 W of 700 W"),
    "silent": ({"pcie_width": None, "pcie_generation": None}, "pcie_link", "NOT RUN", "NVML does not report it"),
}


@pytest.mark.parametrize("case", STATES)
def test_the_state_of_a_gpu_is_judged(tmp_path: Path, case: str) -> None:
    fields, check, word, reason = STATES[case]
    node = judged(tmp_path, healthy(), watched=state_of(**fields))
    found = outcome(node, check)
    assert found.word == word
    assert found.reason.startswith(reason)
    assert node.word == (word if word in ("FAIL", "WARN") else "PASS")


def test_an_xid_of_hardware_fails_and_one_of_programs_warns(tmp_path: Path) -> None:
    address = "PCI:0000:03:00"
    fault = XidEvent(pci=address, code=79, text="GPU has fallen off the bus.")
    node = judged(tmp_path / "79", healthy(), watched=state_of(xids=[fault]))
    assert outcome(node, "xid").cause == "the driver reported: GPU has fallen off the bus."
    assert [one.place for one in node.outcomes if one.word == "FAIL"] == ["GPU 3"]
    node = judged(tmp_path / "13", healthy(), watched=state_of(xids=[XidEvent(pci=address, code=13)]))
    assert (node.word, outcome(node, "xid").word) == ("WARN", "WARN")


def test_a_trained_down_link_is_the_cause_of_slow_copies(tmp_path: Path) -> None:
    node = judged(tmp_path, healthy(host_to_device=(0.5, {})), watched=state_of(pcie_width=8))
    assert outcome(node, "host_to_device").cause == "its PCIe link has 8 of 16 lanes"
    node = judged(tmp_path, healthy(host_to_device=(0.5, {})), watched=state_of(pcie_generation=3))
    assert outcome(node, "host_to_device").cause == "its PCIe link is at generation 3 of 5"


def test_a_missing_gpu_fails(tmp_path: Path) -> None:
    node = judged(tmp_path, healthy(), watched=state_of(expected=9))
    assert node.word == "FAIL"
    assert node.reason.startswith("node GPUs: 8 of 9 GPUs can be used")


def test_a_probe_that_fails_fails_the_node(tmp_path: Path) -> None:
    broken = of_card("memory", card(SICK), 0.0, status="timeout")
    results = [result for result in healthy() if result.task.id != broken.task.id]
    node = judged(tmp_path, [*results, broken])
    assert node.reason.startswith("GPU 3 (GPU-0003) memory: the probe timed out")
    assert outcome(node, "memory_copy").word == "NOT RUN"


def test_a_probe_without_memory_names_the_process_that_has_it(tmp_path: Path) -> None:
    full = {"foreign": (GpuProcess(pid=4711, memory_bytes=130 << 30, here=True),)}
    node = judged(tmp_path, [of_card("memory", card(0), 0.0, make_device(0, **full), status="oom")], 1)
    assert node.reason.startswith("GPU 0 (GPU-0000) memory: the probe ran out of memory")
    assert "likely cause: GPU 0: another process computes on it: pid 4711 (133,120 MiB)" in node.reason


def test_a_probe_that_the_hardware_cannot_do_is_not_run_and_no_fault(tmp_path: Path) -> None:
    why = Failure(kind="model", message="fp8 needs compute capability 8.9")
    refused = [of_card("matmul_fp8", card(index), 0.0, status="failed", error=why) for index in range(8)]
    node = judged(tmp_path, [*healthy(), *refused])
    found = outcome(node, "matmul_fp8")
    assert (node.word, found.word, found.reason) == ("PASS", "NOT RUN", why.message)


# --- not run is never a pass


def test_a_probe_that_never_ran_leaves_the_node_not_run(tmp_path: Path) -> None:
    results = healthy()
    idle = [result for result in results if result.task.id == "memory.J0.3"]
    keep_run(
        tmp_path / "run",
        [result for result in results if result not in idle],
        [result.task for result in results],
        run=make_run(8),
    )
    (node,) = judge(tmp_path / "run", of_rules.load())
    assert (node.word, outcome(node, "memory_copy").missing) == ("NOT RUN", True)
    assert "memory copy: never started" in node.reason


def test_a_result_without_its_reading_is_not_run(tmp_path: Path) -> None:
    node = judged(tmp_path, [*healthy()[:-1], of_all("corruption", [card(0), card(1)], 1.0, {})])
    assert node.word == "NOT RUN"
    assert node.reason.startswith("node wrong results: the result has no reading 'wrong'")


def test_a_soak_that_is_stopped_in_a_later_pass_is_judged_by_the_earlier_ones(tmp_path: Path) -> None:
    results = healthy(2)
    later = [msgspec.structs.replace(result.task, id=f"{result.task.id}-2", repeat=1) for result in results]
    run = tmp_path / "run"
    keep_run(run, results, [*(result.task for result in results), *later], run=make_run(2))
    (node,) = judge(run, of_rules.load())
    assert node.word == "PASS"
    assert "stopped in a later pass: " in node.reason


def test_a_pass_says_what_was_not_run_and_why(tmp_path: Path) -> None:
    results = [result for result in healthy(1) if result.task.job.name in ("memory", "corruption")]
    node = judged(tmp_path, results, 1)
    assert node.word == "PASS"
    assert "it needs at least 2 GPUs" in node.reason
    assert node.reason.endswith("; not probed: matmul_bf16, host_to_device, peer_links, all_reduce")


def test_gpus_that_measure_nothing_fail_on_any_card(tmp_path: Path) -> None:
    node = judged(tmp_path, [of_card("memory", card(index, "X"), 0.0) for index in range(2)], 2)
    assert node.reason.startswith("GPU 0 (GPU-0000) memory copy 0 GB/s: 0 is a fault on any card")


def test_the_states_are_those_of_the_host_that_was_watched(tmp_path: Path) -> None:
    others = [
        msgspec.structs.replace(result, identity=msgspec.structs.replace(result.identity, host="hostB"))
        for result in healthy(2)
    ]
    rows = tuple(row_of(None, result) for result in (*healthy(2), *others))
    run = make_run(2)
    loaded = Loaded(tmp_path, run, True, rows, (), (), machines=run.machines)
    first, second = judge_loaded(loaded, state_of(2), of_rules.load())
    assert (first.host, second.host) == ("hostA", "hostB")
    assert {one.check for one in first.outcomes} - {one.check for one in second.outcomes} >= {"ecc", "pcie_link"}


def test_an_unknown_card_alone_is_not_run(tmp_path: Path) -> None:
    result = with_readings(of_card("memory", card(0, "NVIDIA Unheard"), 4000.0), READINGS["memory"])
    node = judged(tmp_path, [result], 1)
    assert (node.word, node.reason.partition(":")[0]) == ("NOT RUN", "no figure of a GPU could be judged")
    reason = "no floor is known for NVIDIA Unheard; there is no other GPU of its model to compare with"
    assert outcome(node, "memory_copy", "GPU 0").reason == reason
    assert outcome(node, "memory_copy", "GPU 0").value == pytest.approx(4000)


def test_a_node_without_gpus_is_judged_by_a_base_only(tmp_path: Path) -> None:
    """The host passes; the node does not, unless it is to have no GPU."""
    host = [make_result(task=make_task("jpeg", gpu=None, profile="probes"), rates=[900.0] * 30)]
    keep_run(tmp_path / "good", host, run=make_run(0))
    node = judged(tmp_path, host, 0, base=str(tmp_path / "good"))
    assert outcome(node, "jpeg", "node").word == "PASS"
    assert node.word == "NOT RUN"
    assert "on a node without GPUs give --gpus 0" in node.reason
    none = Watched(mode="accept", expected_gpus=0, before=NodeState(), after=NodeState())
    assert judged(tmp_path / "b", host, 0, str(tmp_path / "good"), none).word == "PASS"


# --- a base


def test_a_base_shows_what_peers_cannot(tmp_path: Path) -> None:
    """All GPUs are slower alike."""
    keep_run(tmp_path / "good", healthy(name="X"), run=make_run(8))
    slower = [of_card(job, card(gpu, "X"), 0.85 * rate) for job, rate in HEALTHY.items() for gpu in range(8)]
    node = judged(tmp_path, slower, base=str(tmp_path / "good"))
    found = outcome(node, "memory_copy")
    assert (node.word, found.word) == ("FAIL", "FAIL")
    assert "below the base's" in found.reason
    assert {r.rule: r.word for r in found.rulings} == {"floor": "NOT RUN", "peer": "PASS", "base": "FAIL"}


def test_a_base_of_another_card_is_not_compared_and_no_pass(tmp_path: Path) -> None:
    faster = [of_card("memory", card(gpu, "NVIDIA B200"), 7000.0) for gpu in range(2)]
    keep_run(tmp_path / "other", faster, run=make_run(2))
    node = judged(tmp_path, healthy(), base=str(tmp_path / "other"))
    assert node.word == "NOT RUN"
    assert "ran 'memory' on NVIDIA B200" in outcome(node, "base", "node").reason
    assert outcome(node, "memory_copy").word == "PASS"


def test_a_summary_as_a_base_has_rates_and_no_readings(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "good", healthy(), run=make_run(8))
    assert call("summary", tmp_path / "good", "-o", tmp_path / "good.json")[0] == 0
    node = judged(tmp_path, healthy(seed=2), base=str(tmp_path / "good.json"))
    assert {r.rule: r.word for r in outcome(node, "memory_copy").rulings}["base"] == "PASS"
    of_links = outcome(node, "peer_link", "link 0>1")
    assert next(r.reason for r in of_links.rulings if r.rule == "base").endswith(
        "name the run's folder instead of its summary"
    )


# --- the statistics


COPIES = Tolerance(spread=0.01, warn=0.03, fail=0.05)


def test_a_deviation_must_be_significant_over_all_tests_and_large_enough() -> None:
    for value, word in ((0.985, "PASS"), (0.956, "WARN"), (0.93, "FAIL")):
        found = [one for one in from_peers([value, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.01, "higher") if one]
        assert decide([(one, COPIES) for one in found])[0].word == word
    scattered = [one for one in from_peers([0.9, 1.1, 0.95, 1.05, 1.0, 1.08, 0.93], 0.01, "higher") if one]
    decided = decide([(one, COPIES) for one in scattered])
    assert {one.word for one in decided} == {"PASS", "WARN"}, "cards that differ so much show no fault of one"


def test_of_latencies_the_longer_one_is_worse() -> None:
    longest = from_peers([10.0, 10.0, 10.0, 14.0], 0.05, "lower")[3]
    assert longest
    assert longest.effect == pytest.approx(10 / 14 - 1)
    assert longest.p < FAMILY_ERROR


def test_a_figure_of_0_is_the_worst_of_all() -> None:
    dead, *others = from_peers([0.0, 50.0, 51.0, 49.0], 0.02, "higher")
    assert dead
    assert dead.effect == pytest.approx(-1)
    assert all(one and one.p > 0.01 for one in others)
    assert from_peers([0.0, 0.0], 0.02, "higher") == [None, None]


def matrix(gpus: int, rate: Callable[[int, int], float]) -> tuple[list[tuple[int, int]], list[float]]:
    ends = [(a, b) for a in range(gpus) for b in range(gpus) if a != b]
    return ends, [rate(*pair) for pair in ends]


def worst_links(gpus: int, rate: Callable[[int, int], float]) -> set[tuple[int, int]]:
    ends, values = matrix(gpus, rate)
    found = from_links(ends, values, 0.02, "higher", directed=True)
    return {pair for pair, one in zip(ends, found, strict=True) if one and one.p < 1e-6}


def bridged(a: int, b: int) -> float:
    """NVLink bridges in pairs, PCIe between the pairs."""
    return 260.0 if a // 2 == b // 2 else 24.0


def test_links_are_compared_with_those_of_their_kind() -> None:
    assert not worst_links(8, bridged)
    assert worst_links(8, lambda a, b: 0.5 * bridged(a, b) if (a, b) == (4, 5) else bridged(a, b)) == {(4, 5)}
    assert worst_links(8, lambda a, b: 300.0 if (a, b) == (1, 6) else 389.0) == {(1, 6)}


def test_a_gpu_with_slow_links_is_named_by_its_links(tmp_path: Path) -> None:
    """In one direction or both: the links of the other GPUs among themselves are well."""
    arriving = worst_links(8, lambda a, b: 200.0 if b == SICK else 389.0)
    assert arriving
    assert all(b == SICK for _, b in arriving)
    slow = {f"{a}>{b}": 200.0 for a in range(8) for b in range(8) if SICK in (a, b)}
    node = judged(tmp_path, healthy(links=slow))
    failed = [one for one in node.outcomes if one.word == "FAIL"]
    assert len(failed) == 14
    assert {one.cause for one in failed} == {"GPU 3 (GPU-0003), at which all 14 bad links end"}


def test_a_base_of_three_figures_has_its_own_scatter() -> None:
    steady, loose = from_base(0.9, [1.0, 1.0, 1.0], 0.01, "higher"), from_base(0.9, [1.2, 0.8, 1.0], 0.01, "higher")
    assert steady
    assert loose
    assert steady.p < 1e-6
    assert loose.p > 0.1
    assert from_base(0.9, [], 0.01, "higher") is None


# --- rules


BAD_RULES = {
    "checks: {x: {jobb: y}}": ("checks 'x'", "unknown field `jobb`".replace("`", "")),
    "checks: {x: {job: y, label: a}}": ("checks 'x'", "give 'reading'"),
    "checks: {x: {job: y, against: [peer], tolerance: copmute}}": ("did you mean 'compute'?", "tolerance"),
    "floors: {h20: {memory_copy: {reference: 1, source: x}}}": ("floors 'h20'", "did you mean"),
    "floors: {h200: {memory: {reference: 1, source: x}}}": ("floors 'h200'", "no check 'memory'"),
    "floors: {h200: {memory_copy: {reference: -1, source: x}}}": ("floors 'h200'", "memory_copy"),
    "checks: {x: {job: y}}": ("checks 'x'", "nothing judges it; give 'against', 'most' or 'expect'"),
    "checks: {x: [job]}": ("checks 'x'", "expected mapping, got list"),
    "floors: {h200: {memory_copy: []}}": ("memory_copy", "length >= 1"),
    "tolerances: {compute: {spread: 0.1, warn: 0.05, fail: 0.02}}": ("tolerances 'compute'", "less than 'warn'"),
    "limits: {}": ("unknown part 'limits'", ""),
}


@pytest.mark.parametrize("text", BAD_RULES)
def test_bad_rules_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError) as refused:
        of_rules.load(file)
    message = str(refused.value)
    assert message.startswith(str(file))
    assert all(part in message for part in BAD_RULES[text]), message


def test_own_floors_go_before_the_shipped_ones(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("floors: {h200: {memory_copy: {reference: 4500, source: our contract}}}")
    keep_run(tmp_path / "run", healthy(), run=make_run(8))
    code, out, _ = call("health", tmp_path / "run", "--rules", tmp_path / "own.yaml")
    assert code == 1
    assert "GB/s: floor 4,500; show: " in out
    assert "source: our contract" in out


def test_every_floor_is_of_a_known_card_with_a_source_and_below_its_peak() -> None:
    rules = of_rules.load()
    assert set(rules.floors) == {"h100_sxm", "h200", "a100_80gb_sxm", "a100_40gb"}
    for of_card_ in rules.floors.values():
        for floors in of_card_.values():
            assert all(floor.source and floor.limit("higher") <= floor.reference for floor in floors)


def test_an_own_check_of_a_job_that_did_not_run_is_listed(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("checks: {mine: {job: memroy, most: 1}}")
    keep_run(tmp_path / "run", healthy(2), run=make_run(2))
    assert "mine: the run has no job 'memroy'" in call("health", tmp_path / "run", "--rules", tmp_path / "own.yaml")[1]


# --- the command


def test_the_command_judges_folders_a_line_each(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "good", healthy(), run=make_run(8))
    keep_run(tmp_path / "bad", healthy(memory=(0.8, NEIGHBOUR)), run=make_run(8))
    code, out, err = call("health", tmp_path / "good", tmp_path / "bad")
    assert code == 1
    first, second = out.splitlines()[:2]
    assert first.startswith("hostA  PASS     ")
    assert second.startswith("hostA  FAIL     GPU 3 (GPU-0003) memory copy 3,3")
    assert err == "2 nodes: 1 FAIL, 1 PASS.\n"
    assert call("health", tmp_path / "good")[0] == 0


def test_json_plain_and_drain(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "bad", healthy(memory=(0.8, NEIGHBOUR)), run=make_run(8))
    code, out, _ = call("health", tmp_path / "bad", "--json")
    found = json.loads(out)
    assert (code, found["word"], found["nodes"][0]["host"]) == (1, "FAIL", "hostA")
    lines = [line.split("\t") for line in call("health", tmp_path / "bad", "--plain")[1].splitlines()]
    assert {len(cells) for cells in lines} == {11}
    assert ["hostA", "FAIL", "memory_copy", "GPU 3"] in [cells[:4] for cells in lines]
    code, out, err = call("health", tmp_path / "bad", "--drain")
    assert code == 1
    command, update, name, state, reason = shlex.split(out)
    assert (command, update, name, state) == ("scontrol", "update", "nodename=hostA", "state=drain")
    assert reason.startswith("reason=benchsuite health: GPU 3 memory copy 3,3")
    assert "another process computes on it: pid 4711" in reason
    assert "hostA  FAIL" in err


def test_warn_passes_unless_strict(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "run", healthy(memory=(1.0, NEIGHBOUR)), run=make_run(8))
    code, out, _ = call("health", tmp_path / "run")
    assert (code, out.split()[1]) == (0, "WARN")
    assert "neighbours: another process computes on it: pid 4711" in out
    assert call("health", tmp_path / "run", "--strict")[0] == 1


def test_probes_are_run_and_judged_pass_after_pass(tmp_path: Path) -> None:
    """A real run: the probe crashes in each pass of a soak."""
    profile = write_profile(
        tmp_path / "p.json", crashes={"params": {"kind": "exit", "after_s": 0.1}, "min_time_s": 0.2}
    )
    done = benchsuite("health", "--profile", str(profile), "--soak", "2s", "-o", "out", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (node,) = json.loads(done.stdout)["nodes"]
    crashed = [one for one in node["outcomes"] if one["check"] == "crashes"]
    assert {one["word"] for one in crashed} == {"FAIL"}
    assert len(re.findall(r"so far: \S+  FAIL  \S", done.stderr)) == len(crashed) - 1
    assert "Results: out" in done.stderr
    again = in_process("health", "out", cwd=tmp_path)
    assert again.returncode == 1
    assert "crashes: the probe failed" in again.stdout


def test_a_soak_goes_on_if_its_passes_so_far_cannot_be_judged(tmp_path: Path) -> None:
    (line,) = health._pass_lines(tmp_path / "gone", None, None)
    assert line.startswith("so far: not judged: benchsuite: ")
    assert "no such folder" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--quick", "--accept"), "--quick: does not go with --accept"),
        (("--json", "--drain"), "--json: does not go with --drain"),
        (("--soak", "long"), "expected a time such as 72h"),
        (("run", "--accept"), "--accept: does not go with OUT"),
        (("nowhere",), "no such folder"),
        (("--base", "nowhere"), "nowhere"),
        (("--rules", "nowhere"), "nowhere"),
    ],
)
def test_bad_usage_is_one_line_and_2(call: Call, words: tuple[str, ...], message: str) -> None:
    code, out, err = call("health", *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err
