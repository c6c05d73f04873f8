"""The state of a GPU and the errors in the kernel's log show whether it is fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_nvml import card, play

from benchsuite.host import machine
from benchsuite.host.fitness import GpuState, gpu_state, xid_log
from benchsuite.host.visible import visible

ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 8,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetPcieReplayCounter": 3,
    "nvmlDeviceGetTotalEccErrors": {"by": {"0": 7, "1": 2}},
    "nvmlDeviceGetRemappedRows": [1, 2, 1, 0],
    "nvmlDeviceGetClockInfo": 1200,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetTemperature": 84,
    "nvmlDeviceGetEnforcedPowerLimit": 400_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x44,
}


def states(monkeypatch: pytest.MonkeyPatch, *cards: dict[str, Any]) -> list[GpuState]:
    play(monkeypatch, *cards)
    here = machine.describe({})
    return [gpu_state(gpu) for gpu in visible(here.gpus, {})[0]]


def test_each_field_is_that_of_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = states(
        monkeypatch, card(0, **ANSWERS), card(1, **{**ANSWERS, "nvmlDeviceGetCurrPcieLinkWidth": 16})
    )
    assert (first.pcie_generation, first.pcie_generation_max) == (5, 5)
    assert (first.pcie_width, first.pcie_width_max, second.pcie_width) == (8, 16, 16)
    assert (first.ecc_corrected, first.ecc_uncorrected, first.pcie_replays) == (7, 2, 3)
    assert (first.remapped_corrected, first.remapped_uncorrected) == (1, 2)
    assert (first.remap_pending, first.remap_failed) == (True, False)
    assert (first.power_limit_w, first.power_limit_default_w) == (400.0, 700.0)
    assert (first.sm_clock_mhz, first.max_sm_clock_mhz, first.temperature_c) == (1200, 1980, 84)
    assert first.slowed_by == ("hw_thermal",), "a power cap is no fault"
    assert first.reasons == {}


def test_a_field_that_is_not_reported_has_a_reason_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = {"nvmlDeviceGetCurrPcieLinkWidth": {"error": 3}, "nvmlDeviceGetRemappedRows": 5}
    (state,) = states(monkeypatch, card(0, **{**ANSWERS, **odd}))
    assert (state.pcie_width, state.reasons["pcie_width"]) == (None, "not supported")
    assert (state.remap_failed, state.reasons["remap_failed"]) == (None, "NVML's answer cannot be read")
    assert state.pcie_generation == 5


def test_the_older_name_of_the_clock_events_is_asked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    older = {key: value for key, value in ANSWERS.items() if "ClocksEvent" not in key}
    (state,) = states(monkeypatch, card(0, **older, nvmlDeviceGetCurrentClocksThrottleReasons=0x8))
    assert state.slowed_by == ("hw_slowdown",) and "slowed_by" not in state.reasons


def test_a_card_that_is_gone_says_so_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, card(0, **ANSWERS))
    (gpu,) = visible(machine.describe({}).gpus, {})[0]
    play(monkeypatch, {**card(0, **ANSWERS), "lost": True})
    state = gpu_state(gpu)
    assert "lost" in state.reasons["gpu"] and state.pcie_width is None


def test_xid_errors_are_found_in_the_kernels_log(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(
        "6,339,5140900,-;NET: Registered PF_INET6\n"
        "4,340,5140901,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
        "4,341,5140902,-;NVRM: Xid (PCI:0000:86:00): 31\n"
    )
    found = xid_log(log)
    assert found.readable
    assert [(one.pci, one.code, one.text) for one in found.events] == [
        ("0000:3b:00", 79, "pid=1234, GPU has fallen off the bus."),
        ("0000:86:00", 31, ""),
    ]


def test_a_log_that_cannot_be_read_is_not_a_log_without_errors(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for file in (empty, tmp_path / "absent", tmp_path):
        found = xid_log(file)
        assert (found.readable, found.events) == (False, ())
        assert found.reason and str(file) in found.reason
