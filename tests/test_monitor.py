"""Watching GPUs and tasks from outside, with NVML in its moods and cards that fail beside others that do not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import psutil
import pytest
from conftest import make_gpu
from fake_nvml import MIB, card, play

from benchsuite.describe.tasks import Gpu
from benchsuite.host import cards, nvml
from benchsuite.host import monitor as watching
from benchsuite.host.device import Device
from benchsuite.host.digest import summarise
from benchsuite.host.monitor import Monitor
from benchsuite.host.nvml import GpuLost
from benchsuite.host.visible import visible
from benchsuite.telemetry import GPM_GAUGES, DeviceSample, GpuProcess

ALWAYS = (0.0, float("inf"))


@pytest.fixture(name="fake")
def fake_fixture(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    return partial(play, monkeypatch)


def until(reached: Callable[[], Any], limit_s: float = 5.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline_s, "not reached in time"
        time.sleep(0.005)


def samples(monitor: Monitor, index: int) -> list[DeviceSample]:
    return monitor.device_series(f"GPU-{index}{index}", *ALWAYS)


def reported(monitor: Monitor, gpu: Gpu) -> Any:
    series = monitor.device_series(gpu.uuid, *ALWAYS)
    return summarise(gpu, series, monitor.device_reasons(gpu.uuid), monitor.own_pids())


# --- the GPU that is watched is the one that is used ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("2", [(0, 2, 300)]), ("3,1", [(0, 3, 400), (1, 1, 200)]), (None, [(i, i, 100 * (i + 1)) for i in range(4)])],
)
def test_a_visible_index_is_watched_at_its_physical_card(
    fake: Any, wanted: str | None, expected: list[tuple[int, int, int]]
) -> None:
    fake(*map(card, range(4)))
    usable, why = visible(cards.gpus()[0], {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted})
    assert why is None
    with Monitor(usable, every_s=0.01) as monitor:
        until(lambda: all(len(monitor.device_series(gpu.uuid, *ALWAYS)) > 1 for gpu in usable))
    for gpu, (logical, physical, used_mib) in zip(usable, expected, strict=True):
        found = reported(monitor, gpu)
        assert (found.visible_index, found.uuid) == (logical, f"GPU-{physical}{physical}")
        assert found.pci == f"00000000:0{physical + 1}:00.0"
        memory = found.spreads["memory_used_bytes"]
        assert (memory.min, memory.mean, memory.max) == (used_mib * MIB,) * 3
    others = {f"GPU-{i}{i}" for i in range(4)} - {gpu.uuid for gpu in usable}
    assert not any(monitor.device_series(uuid, *ALWAYS) for uuid in others)


def test_a_card_is_found_by_uuid_also_where_numbers_have_moved(fake: Any) -> None:
    fake(card(0), card(1), card(2))
    gpu = cards.gpus()[0][1]
    fake(card(2), card(0), card(1))
    assert Device(gpu, {}).sample().memory_used_bytes == 200 * MIB


# --- an absent reading is null, with a reason, and the others are kept ------------------------------------------------


def test_unsupported_readings_are_null_with_their_reasons_and_the_rest_is_kept(fake: Any) -> None:
    fake(card(0, nvmlDeviceGetUtilizationRates={"error": 3}, nvmlDeviceGetPowerUsage={"error": 999}))
    (gpu,), _ = cards.gpus()
    with Monitor([gpu], every_s=0.01) as monitor:
        until(lambda: len(samples(monitor, 0)) > 2)
    assert monitor.notes == []
    found = reported(monitor, gpu)
    assert found.spreads["memory_used_bytes"].max == 100 * MIB
    for name in ("gpu_percent", "memory_busy_percent"):
        assert found.spreads[name] is None
        assert found.reasons[name] == "not supported"
    assert (found.spreads["power_w"], found.reasons["power_w"]) == (None, "unknown error")
    assert (found.energy_j, found.clock_events_s, found.ecc_corrected, found.foreign) == (None,) * 4
    assert {"energy_j", "clock_events_s", "ecc_corrected", "ecc_uncorrected", "foreign"} <= set(found.reasons)
    null = {name for name, spread in found.spreads.items() if spread is None}
    assert null <= set(found.reasons)
    assert "memory_used_bytes" not in found.reasons


def test_no_nvml_is_one_note_and_no_samples(fake: Any) -> None:
    fake(card(0), card(1), init=9)
    gpus = [make_gpu(0), make_gpu(1)]
    with Monitor(gpus, every_s=0.01) as monitor:
        time.sleep(0.05)
    assert monitor.notes == ["NVML: driver not loaded"]
    assert monitor.device_series(gpus[0].uuid, *ALWAYS) == []
    found = reported(monitor, gpus[0])
    assert found.samples == 0
    assert set(found.reasons.values()) == {"NVML: driver not loaded"}


def test_no_gpu_is_one_note_and_tasks_are_watched_all_the_same(fake: Any) -> None:
    fake()
    with Monitor([], every_s=0.01) as monitor:
        monitor.follow("task", lambda: [os.getpid()])
        until(lambda: monitor.tenant_series("task", *ALWAYS))
    assert monitor.notes == ["no GPU to watch"]


@pytest.mark.parametrize("number", [0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF])
def test_nvmls_own_mark_for_no_value_is_not_a_number(fake: Any, number: int) -> None:
    fake(card(0, nvmlDeviceGetPowerUsage=number, nvmlDeviceGetTotalEnergyConsumption=number))
    reasons: dict[str, str] = {}
    sample = Device(cards.gpus()[0][0], reasons).sample()
    assert (sample.power_w, sample.energy_j) == (None, None)
    assert reasons["power_w"] == "NVML has no value for it"


def test_an_older_driver_is_asked_by_the_older_names(fake: Any) -> None:
    events, throttles = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    fake(card(0, nvmlDeviceGetTemperatureV={"error": 13}, nvmlDeviceGetTemperature=55, **{throttles: 8}))
    older = Device(cards.gpus()[0][0], {}).sample()
    assert (older.temperature_c, older.clock_events) == (55, ("hw_slowdown",))
    fake(card(0, nvmlDeviceGetTemperatureV=56, nvmlDeviceGetTemperature=0, **{events: 4, throttles: 8}))
    newer = Device(cards.gpus()[0][0], {}).sample()
    assert (newer.temperature_c, newer.clock_events) == (56, ("sw_power_cap",))


def test_all_that_a_card_tells_is_read_in_its_unit(fake: Any) -> None:
    fake(
        card(
            0,
            nvmlDeviceGetUtilizationRates={"gpu": 97, "memory": 41},
            nvmlDeviceGetPowerUsage=350_500,
            nvmlDeviceGetTotalEnergyConsumption=1_234_567,
            nvmlDeviceGetClockInfo={"by": {"1": 1980, "2": 2619}},
            nvmlDeviceGetTemperatureV=61,
            nvmlDeviceGetCurrentClocksEventReasons=0x44,
            nvmlDeviceGetTotalEccErrors={"by": {"0": 7, "1": 2}},
            nvmlDeviceGetComputeRunningProcesses=[{"pid": os.getpid(), "usedGpuMemory": 5 * MIB}],
        )
    )
    sample = Device(cards.gpus()[0][0], {}).sample()
    assert (sample.gpu_percent, sample.memory_busy_percent) == (97.0, 41.0)
    assert (sample.power_w, sample.energy_j) == (350.5, 1234.567)
    assert (sample.sm_clock_mhz, sample.memory_clock_mhz, sample.temperature_c) == (1980, 2619, 61)
    assert sample.clock_events == ("sw_power_cap", "hw_thermal")
    assert (sample.ecc_corrected, sample.ecc_uncorrected) == (7, 2)
    assert sample.processes == (GpuProcess(pid=os.getpid(), memory_bytes=5 * MIB, here=True),)


# --- cards that hang or are lost --------------------------------------------------------------------------------------


def test_calls_take_turns_and_pass_one_that_hangs() -> None:
    """Two calls at once have crashed NVML; one that never returns must not hold up the others for ever."""
    turns, inside, most = nvml.Turns(limit_s=0.2), 0, 0

    def call() -> None:
        nonlocal inside, most
        for _ in range(200):
            with turns.taken():
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)
    let_go = threading.Event()

    def hang() -> None:
        with turns.taken():
            let_go.wait(30)

    hanging = threading.Thread(target=hang, daemon=True)
    hanging.start()
    time.sleep(0.05)
    began = time.monotonic()
    for _ in range(5):
        with turns.taken():
            pass
    assert 0.1 < time.monotonic() - began < 2, "it was waited for once, not once a call"
    let_go.set()
    hanging.join()


def test_a_hanging_card_holds_up_neither_the_others_nor_the_end(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "STOP_LIMIT_S", 0.3)
    monkeypatch.setattr(nvml, "_turns", nvml.Turns(limit_s=0.1))
    fake(card(0, nvmlDeviceGetPowerUsage={"sleep_s": 30}), card(1))
    monitor = Monitor(cards.gpus()[0], every_s=0.01, stuck_s=0.3)
    monitor.start()
    monitor.follow("task", lambda: [os.getpid()])
    until(lambda: monitor.notes)
    before = len(samples(monitor, 1))
    until(lambda: len(samples(monitor, 1)) > before + 5)
    assert len(monitor.tenant_series("task", *ALWAYS)) > 5
    started_s = time.monotonic()
    monitor.stop()
    assert time.monotonic() - started_s < 20, "less than the call hangs"
    assert samples(monitor, 0) == []
    (note,) = monitor.notes
    assert note.startswith("GPU 0 (GPU-00) stopped answering at ")
    assert note.removeprefix("GPU 0 (GPU-00) ") == reported(monitor, cards.gpus()[0][0]).reasons["power_w"]


def test_a_card_that_answers_again_is_watched_on(fake: Any) -> None:
    fake(card(0, nvmlDeviceGetPowerUsage={"then": [1000, {"sleep_s": 0.8}, 3000]}))
    with Monitor(cards.gpus()[0], every_s=0.01, stuck_s=0.3) as monitor:
        until(lambda: len(samples(monitor, 0)) > 3)
    stopped, again = monitor.notes
    assert stopped.startswith("GPU 0 (GPU-00) stopped answering at ")
    assert again.startswith("GPU 0 (GPU-00) answered again after ")
    assert samples(monitor, 0)[3].power_w == 3.0


@pytest.mark.parametrize("code", [15, 16, 28])
def test_a_lost_card_is_noted_once_and_asked_no_more(fake: Any, code: int) -> None:
    stub = fake(card(0, nvmlDeviceGetPowerUsage={"then": [1000, 1000, {"error": code}]}), card(1))
    with Monitor(cards.gpus()[0], every_s=0.01) as monitor:
        until(lambda: monitor.notes)
        until(lambda: len(samples(monitor, 1)) > 8)
    assert len(samples(monitor, 0)) == 2
    assert stub.calls["nvmlDeviceGetPowerUsage", 0] == 3
    (note,) = monitor.notes
    assert note.startswith("GPU 0 (GPU-00): ")
    assert note.endswith("no longer watched")


def test_a_card_whose_queries_all_fail_is_noted_until_they_answer_again(fake: Any) -> None:
    fails = {"then": [{"total": 1, "used": 1}] * 2 + [{"error": 999}] * 2 + [{"total": 1, "used": 1}]}
    fake(card(0, nvmlDeviceGetMemoryInfo=fails, nvmlDeviceGetPowerUsage={"error": 999}))
    with Monitor(cards.gpus()[0], every_s=0.005) as monitor:
        until(lambda: len(monitor.notes) > 1)
        assert monitor.news() == [
            "GPU 0 (GPU-00): no query has an answer: unknown error",
            "GPU 0 (GPU-00): queries have answers again",
        ]
    assert monitor.news() == []


def test_a_card_that_went_before_it_was_opened_is_noted(fake: Any) -> None:
    fake(card(0), card(1))
    gpus = cards.gpus()[0]
    fake(card(1))
    with Monitor(gpus, every_s=0.01) as monitor:
        until(lambda: monitor.notes and len(samples(monitor, 1)) > 1)
    assert monitor.notes == ["GPU 0 (GPU-00): not found; it is no longer watched"]
    with pytest.raises(GpuLost, match="not found"):
        Device(gpus[0], {})


# --- GPM --------------------------------------------------------------------------------------------------------------


def test_gpm_figures_come_between_two_samples_and_their_memory_is_freed(fake: Any) -> None:
    metrics = {"2": 82.7, "3": 41.6, "5": 9.3, "10": 54.2, "11": 0.0, "12": 1.4, "20": 12.5, "21": 800.0, "60": 5.0}
    stub = fake(card(0, gpm=metrics))
    reasons: dict[str, str] = {}
    device = Device(cards.gpus()[0][0], reasons)
    first = device.sample()
    assert {getattr(first, name) for name in GPM_GAUGES} == {None}
    assert reasons["sm_percent"] == "GPM: needs two samples"
    for _ in range(5):
        later = device.sample()
        assert {name: getattr(later, name) for name in GPM_GAUGES} == {
            "sm_percent": 82.7,
            "occupancy_percent": 41.6,
            "tensor_percent": 9.3,
            "fp64_percent": 0.0,
            "fp32_percent": 1.4,
            "fp16_percent": None,
            "dram_percent": 54.2,
            "pcie_tx_mib_s": 12.5,
            "pcie_rx_mib_s": 800.0,
            "nvlink_tx_mib_s": None,
            "nvlink_rx_mib_s": 5.0,
        }
    assert reasons["fp16_percent"] == "GPM: this device does not give it"
    assert len(stub.living_samples) == 2
    device.close()
    assert stub.living_samples == set()


def test_a_card_without_gpm_says_so_for_each_figure(fake: Any) -> None:
    fake(card(0))
    reasons: dict[str, str] = {}
    Device(cards.gpus()[0][0], reasons).sample()
    assert {reasons[name] for name in GPM_GAUGES} == {"GPM: not supported by this device"}


# --- tasks, bounds and cost -------------------------------------------------------------------------------------------


def test_a_followed_task_is_sampled_until_forgotten_and_its_processes_stay_ours(fake: Any) -> None:
    fake()
    with Monitor([], every_s=0.01) as monitor:
        monitor.follow("one", lambda: [os.getpid()], cpus=os.sched_getaffinity(0))
        monitor.follow("bad", lambda: (_ for _ in ()).throw(psutil.NoSuchProcess(1)))
        until(lambda: len(monitor.tenant_series("one", *ALWAYS)) > 3 and monitor.tenant_series("bad", *ALWAYS))
        assert monitor.tenant_series("bad", *ALWAYS)[0].processes == 0
        counted = [(s.cpus_busy_s, s.cpus_stolen_s) for s in monitor.tenant_series("one", *ALWAYS)]
        assert all(busy_s and stolen_s is not None for busy_s, stolen_s in counted)
        assert "process" in monitor.tenant_reasons("bad")["processes"]
        monitor.forget("one")
        assert monitor.tenant_series("one", *ALWAYS) == []
        assert os.getpid() in monitor.own_pids()


def test_the_monitor_lets_go_of_what_is_older(fake: Any) -> None:
    fake(card(0))
    with Monitor(cards.gpus()[0], every_s=0.01) as monitor:
        monitor.follow("task", lambda: [os.getpid()])
        until(lambda: len(samples(monitor, 0)) > 5 and len(monitor.tenant_series("task", *ALWAYS)) > 5)
    middle_s = samples(monitor, 0)[3].monotonic_s
    monitor.trim(middle_s)
    assert samples(monitor, 0)[0].monotonic_s == middle_s
    assert all(s.monotonic_s >= middle_s for s in monitor.tenant_series("task", *ALWAYS))


def test_watching_eight_cards_costs_less_than_one_per_cent_of_a_processor(fake: Any) -> None:
    stub = fake(*(card(i, gpm={"2": 1.0}, nvmlDeviceGetPowerUsage=1) for i in range(8)))
    devices = [Device(gpu, {}) for gpu in cards.gpus()[0]]
    rounds = 50
    started_s = time.thread_time()
    for _ in range(rounds):
        for device in devices:
            device.sample()
    assert stub.calls["nvmlDeviceGetPowerUsage", 7] == rounds
    assert (time.thread_time() - started_s) / rounds < 0.01
