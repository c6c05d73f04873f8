"""Every call into NVML with every kind of fault: each command goes on, and the other card is measured as ever."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import MIB, card, play

import benchsuite
from benchsuite.describe.tasks import Gpu
from benchsuite.doctor import gpus as doctor
from benchsuite.host import machine, nvml
from benchsuite.host import monitor as watching
from benchsuite.host.digest import Window, summarise
from benchsuite.host.monitor import Monitor
from benchsuite.host.series import write_series
from benchsuite.host.visible import visible
from benchsuite.schema import to_json

ALWAYS = (0.0, float("inf"))
LIMIT_S = 0.15
HANG = {"sleep_s": 3600}  # in a thread that ends with the process
FAULTS: dict[str, Any] = {
    "hang": HANG,
    "hang midway": {"then": [None, None, HANG]},
    "error": {"error": 999},
    "lost": {"error": 15},
    "lost midway": {"then": [None, None, {"error": 15}]},
    "bad bytes": {"bytes": "f80080"},
    "undecodable": {"undecodable": "f80080"},
}
WHOLE = {
    "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 41},
    "nvmlDeviceGetPowerUsage": 350_500,
    "nvmlDeviceGetTotalEnergyConsumption": 1_234_567,
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetTemperatureV": 61,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetRemappedRows": [0, 0, 0, 0],
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetApplicationsClock": 1980,
    "nvmlDeviceGetDefaultApplicationsClock": 1980,
    "gpm": {"2": 82.7},
}
MIG = {"nvmlDeviceGetMigMode": [1, 1], "mig": [card(7, "Part", nvmlDeviceGetUUID="MIG-7"), None]}
CALLS = (
    *(name for name in WHOLE if name.startswith("nvml")),
    "nvmlInit",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
)
# Without these there is no GPU at all; the last belongs to no card.
# Read by `benchsuite health` alone; see test_fitness.
OF_FITNESS = {
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetPcieReplayCounter",
}
OF_ALL, OF_NONE = ("nvmlInit", "nvmlDeviceGetCount"), "nvmlGpmSampleAlloc"


def test_the_table_has_every_call_of_the_program() -> None:
    sources = [path for part in ("host", "doctor") for path in (Path(benchsuite.__file__).parent / part).glob("*.py")]
    named = {name for path in sources for name in re.findall(r'"(nvml[A-Z]\w+)"', path.read_text(encoding="utf-8"))}
    assert named == set(CALLS) | OF_FITNESS


@pytest.fixture(name="quick", autouse=True)
def quick_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIMIT_S", LIMIT_S)
    monkeypatch.setattr(nvml, "_turns", nvml.Turns(limit_s=0.01))
    monkeypatch.setattr(watching, "STOP_LIMIT_S", LIMIT_S)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_no_fault_of_a_call_ends_a_command_or_harms_another_card(
    call: str, fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = {**card(0), **WHOLE, **(MIG if "Mig" in call else {})}
    play(monkeypatch, first, card(1, **WHOLE), faults={call: FAULTS[fault]})
    began_s = time.monotonic()
    here = machine.describe({})
    used, _ = visible(here.gpus, {})
    to_json(list(doctor.findings(here, used, set())))
    followed = sampled(used, tmp_path, limit_s=0.1 if call == OF_NONE else 2.0)
    assert time.monotonic() - began_s < 8
    to_json(here)
    if call in OF_ALL:
        # What nvmlInit answers has no meaning, and midway neither is asked again.
        assert len(here.gpus) == 2 or (here.gpu_note or "").startswith("NVML: ")
    elif call == OF_NONE:
        assert set(followed) == {"GPU-00", "GPU-11"}
    else:
        assert followed["GPU-11"].unsampled == ()
        assert followed["GPU-11"].spreads["memory_used_bytes"].max == 200 * MIB
        assert len(followed) == 2 or "GPU 0" in (here.gpu_note or ""), "a card that is left out is named"


def sampled(gpus: list[Gpu], folder: Path, limit_s: float = 2.0) -> dict[str, Any]:
    """UUID -> what a result would record."""
    start_s, every_s = time.monotonic(), 0.003
    with Monitor(gpus, every_s=every_s, stuck_s=LIMIT_S) as monitor:
        deadline_s = start_s + limit_s
        while len(monitor.device_series("GPU-11", *ALWAYS)) < 6 and gpus and time.monotonic() < deadline_s:
            time.sleep(0.002)
    window = Window(start_s, time.monotonic(), 1.0)
    series = {gpu: monitor.device_series(gpu.uuid, *ALWAYS) for gpu in gpus}
    write_series(folder / "series.jsonl", [(g, s, monitor.device_reasons(g.uuid)) for g, s in series.items()])
    found = {g.uuid: summarise(g, s, monitor.device_reasons(g.uuid), (), window) for g, s in series.items()}
    to_json(list(found.values()))
    return found


@pytest.mark.parametrize("fault", ["bad bytes", "undecodable", "error"])
def test_a_name_that_cannot_be_read_leaves_the_card_in_use(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = dict.fromkeys(("nvmlDeviceGetName", "nvmlSystemGetDriverVersion"), FAULTS[fault])
    play(monkeypatch, card(0), faults={**faults, "nvmlDeviceGetPciInfo": FAULTS[fault]})
    here = machine.describe({})
    assert [gpu.uuid for gpu in here.gpus] == ["GPU-00"]
    assert here.gpus[0].name == ("unknown" if fault == "error" else "\ufffd")
    assert here.driver == (None if fault == "error" else "\ufffd")
    assert here.gpus[0].pci == "unknown"
    assert here.gpu_note is None


def test_an_instance_is_a_gpu_with_its_own_memory_and_its_cards_place(monkeypatch: pytest.MonkeyPatch) -> None:
    part = card(6, "Card MIG 1g.10gb", nvmlDeviceGetUUID="MIG-6", nvmlDeviceGetMemoryInfo={"total": MIB, "used": 7})
    unnamed = {**part, "nvmlDeviceGetUUID": "MIG-8", "nvmlDeviceGetName": {"error": 3}}
    play(monkeypatch, card(0), {**card(1), **MIG, "mig": [part, None, unnamed]})
    here = machine.describe({})
    assert [(gpu.visible_index, gpu.nvml_index, gpu.uuid, gpu.parent, gpu.memory_bytes) for gpu in here.gpus] == [
        (0, 0, "GPU-00", None, 8 << 30),
        (1, 1, "MIG-6", "GPU-11", MIB),
        (2, 1, "MIG-8", "GPU-11", MIB),
    ]
    assert [gpu.name for gpu in here.gpus] == ["Card", "Card MIG 1g.10gb", "Card MIG"]
    assert here.visible == ("GPU-00", "MIG-6", "MIG-8")


def test_power_of_a_divided_card_is_counted_for_none_of_its_instances(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = card(6, nvmlDeviceGetUUID="MIG-6", **WHOLE)
    play(monkeypatch, {**card(0), **MIG, "mig": [part]}, card(1))
    found = sampled(list(machine.describe({}).gpus), tmp_path)["MIG-6"]
    assert (found.energy_j, found.spreads["power_w"]) == (None, None)
    assert found.reasons["power_w"] == "MIG: known of the whole card only"
    assert found.spreads["temperature_c"].max == 61


def test_a_divided_card_without_an_instance_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, {**card(0), **MIG, "mig": [None]}, card(1))
    here = machine.describe({})
    assert [gpu.uuid for gpu in here.gpus] == ["GPU-11"]
    assert here.gpu_note == "NVML: GPU 0 is left out: MIG is on, and it has no instance"
    about = {finding.about: finding for finding in doctor.findings(here, here.gpus, set())}
    assert (about["GPUs"].state, about["GPUs"].text) == ("bad", here.gpu_note)


def test_cards_that_hang_cost_the_time_of_one_and_are_named_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvml, "LIMIT_S", 2.0)
    monkeypatch.setattr(nvml, "SAY_S", 0.2)
    dead = [card(index, nvmlDeviceGetUUID=HANG) for index in range(6)]
    play(monkeypatch, *dead, card(6))
    began_s = time.monotonic()
    here = machine.describe({})
    assert time.monotonic() - began_s < 6 * 2.0
    assert [gpu.uuid for gpu in here.gpus] == ["GPU-66"]
    assert all(f"GPU {index} does not answer and is left out" in (here.gpu_note or "") for index in range(6))
    names = ", ".join(f"GPU {index}" for index in range(6))
    assert capsys.readouterr().err == (
        f"benchsuite: waiting for NVML: no answer to {names} after 0.2 s; the limit is 2 s\n"
    )
