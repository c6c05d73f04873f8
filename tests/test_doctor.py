"""The doctor names each trouble with its remedy, and finds none where there is none."""

from __future__ import annotations

import json
import os
import py_compile
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import card, play
from support import benchsuite

from benchsuite.doctor import gpus, host
from benchsuite.findings import Finding
from benchsuite.host import machine
from benchsuite.host.visible import visible

GIB = 1 << 30
WELL: dict[str, Any] = {
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetRemappedRows": [0, 0, 0, 0],
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetCurrentClocksEventReasons": 0,
}


def of_cards(
    monkeypatch: pytest.MonkeyPatch, *cards: dict[str, Any], own: set[int] | None = None, **scenario: Any
) -> list[Finding]:
    play(monkeypatch, *cards, **scenario)
    here = machine.describe({})
    return list(gpus.findings(here, visible(here.gpus, {})[0], own or set()))


def test_a_card_that_is_well_gives_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, gpu = of_cards(monkeypatch, card(0, **WELL))
    assert (driver.about, driver.state) == ("driver", "ok")
    assert (gpu.about, gpu.state) == ("GPU 0", "ok")
    assert "persistence mode, ECC, MIG, power limit, clock events well; not reported: processes" in gpu.text


def test_a_card_that_answers_little_is_not_blamed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, gpu = of_cards(monkeypatch, card(0))
    assert (driver.state, gpu.state) == ("ok", "ok")
    assert "not reported: persistence mode, ECC" in gpu.text


TROUBLES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "persistence": ({"nvmlDeviceGetPersistenceMode": 0}, "note", "persistence mode is off", "-pm 1"),
    "ecc off": ({"nvmlDeviceGetEccMode": [0, 0]}, "note", "ECC is off", "ECC"),
    "ecc errors": (
        {"nvmlDeviceGetTotalEccErrors": {"by": {"1": 3, "0": 0}}},
        "bad",
        "3 uncorrected memory errors",
        "reset",
    ),
    "rows": ({"nvmlDeviceGetRemappedRows": [0, 0, 1, 0]}, "bad", "rows wait", "reset"),
    "mig": ({"nvmlDeviceGetMigMode": [1, 1]}, "bad", "MIG is on", "-mig 0"),
    "slow-down": ({"nvmlDeviceGetCurrentClocksEventReasons": 0x8 | 0x40}, "bad", "hw_slowdown", "cooling"),
    "power cap": ({"nvmlDeviceGetCurrentClocksEventReasons": 0x4}, "ok", "clock events well", ""),
    "power": ({"nvmlDeviceGetEnforcedPowerLimit": 400_000}, "bad", "400 W of 700 W", "-pl 700"),
    "strangers": ({"nvmlDeviceGetComputeRunningProcesses": [{"pid": 77}]}, "bad", "compute on it: 77", "let them end"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_each_trouble_of_a_card_is_named_with_its_remedy(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, state, text, remedy = TROUBLES[trouble]
    found = [f for f in of_cards(monkeypatch, card(0, **{**WELL, **answers})) if f.about == "GPU 0"]
    assert [f.state for f in found] == [state], found
    assert text in found[0].text
    assert remedy in (found[0].remedy or "")


def test_our_own_process_is_no_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {**WELL, "nvmlDeviceGetComputeRunningProcesses": [{"pid": 77}]}
    assert [f.state for f in of_cards(monkeypatch, card(0, **ours), own={77})] == ["ok", "ok"]


def test_cards_of_one_model_with_unlike_limits_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**WELL, "nvmlDeviceGetEnforcedPowerLimit": 600_000, "nvmlDeviceGetPowerManagementDefaultLimit": 600_000}
    found = of_cards(monkeypatch, card(0, **WELL), card(1, **other))
    assert [(f.about, f.state) for f in found if f.state != "ok"] == [("GPUs", "bad")]


def test_no_driver_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = of_cards(monkeypatch, init=9)
    assert found.state == "bad"
    assert "driver not loaded" in found.text


def test_a_governor_a_quota_and_little_memory_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu, governor in ((0, "powersave"), (1, "performance")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu0 800 0 0 9000 0 0 0 200 0 0\n")
    monkeypatch.setattr(host.cpus, "usable_cpus", lambda root: (0, 1, 2, 3))
    monkeypatch.setattr(host.cpus, "usable_count", lambda root: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (7.0, 0.0, 0.0))
    found = {f.about: f for f in host.cpu_findings(tmp_path)}
    assert "a quota leaves 2 of 4" in found["processors"].text
    assert "performance, powersave" in found["governor"].text
    assert "7.0 processors were busy" in found["load"].text
    assert "withheld 20.0 % of the processor time" in found["stolen CPU"].text


def test_what_the_kernel_hides_is_listed_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_load() -> tuple[float, float, float]:
        raise OSError("Load averages are unobtainable")

    monkeypatch.setattr("os.getloadavg", no_load)
    found = {f.about: f.text for f in (*host.cpu_findings(tmp_path), *host.memory_findings(1, tmp_path))}
    assert "the kernel does not report it" in found["load"]
    assert "the kernel does not report CPU times" in found["stolen CPU"]
    assert "unknown of " in found["memory"]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/gone\n")
    assert (
        "the group /gone, which is not visible" in {f.about: f.text for f in host.fence_findings(1, tmp_path)}["limits"]
    )


@pytest.mark.parametrize(("shm_bytes", "state"), [(64 << 20, "bad"), (32 * GIB, "ok")])
def test_shared_memory_too_small_for_loaders_is_bad(
    shm_bytes: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"total": shm_bytes, "free": shm_bytes})
    monkeypatch.setattr(host.shutil, "disk_usage", lambda path: usage)
    found = {f.about: f.state for f in host.memory_findings(8)}
    assert found.get("shared memory") == state


def test_a_full_disk_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"total": GIB, "free": 100 << 20})
    monkeypatch.setattr(host.shutil, "disk_usage", lambda path: usage)
    found = next(f for f in host.disk_findings(tmp_path / "out") if f.about == "disk")
    assert found.state == "bad"
    assert "BENCHSUITE_OUT" in (found.remedy or "")


def test_a_missing_extra_names_its_models_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchsuite.describe.entries._found", lambda module: module != "gymnasium")
    (found,) = host.extras_findings()
    assert found.state == "bad"
    assert "cart_pole" in found.text
    assert found.remedy == "pip install 'benchsuite[rl]'"


def test_files_that_each_task_compiles_anew_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slowly.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (found,) = host.start_findings("slowly")
    assert (found.state, "PYTHONDONTWRITEBYTECODE" in found.text) == ("note", True)
    assert "unset PYTHONDONTWRITEBYTECODE" in (found.remedy or "")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert list(host.start_findings("slowly")) == []
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    py_compile.compile(str(tmp_path / "slowly.py"))
    assert list(host.start_findings("slowly")) == []
    assert list(host.start_findings("no_such_package")) == []


def test_a_torch_that_breaks_or_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_ASK_TORCH", "raise RuntimeError('broken build')")
    (broken,) = gpus.torch_findings([], {})
    assert (broken.state, "broken build" in broken.text) == ("bad", True)
    monkeypatch.setattr(gpus, "_ASK_TORCH", "import time; time.sleep(60)")
    monkeypatch.setattr(gpus, "TORCH_LIMIT_S", 1)
    (slow,) = gpus.torch_findings([], {})
    assert (slow.state, "did not answer within 1 s" in slow.text) == ("bad", True)


def test_data_sets_are_found_ready_missing_or_damaged_with_the_command_for_each(tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    (missing,) = host.data_findings(folder)
    assert (missing.state, "no folder" in missing.text) == ("note", True)
    made = ["mnist", "wikitext2", "-d", str(folder), "--synthetic", "--size", "small", "--workers", "1"]
    done = benchsuite("prepare", *made, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = folder.rglob("train-images*")
    os.truncate(file, 10)
    ready, absent, damaged = host.data_findings(folder)
    assert ready.state == "ok"
    assert "1 of 7 data sets of the standard profile are ready" in ready.text
    assert "wikitext2 (synthetic, small, 3 files)" in ready.text
    assert absent.state == "note"
    assert "missing: fake_imagenet, bsds500, wmt16, coco, ml20m" in absent.text
    assert damaged.state == "bad"
    assert "mnist is damaged" in damaged.text
    assert damaged.remedy == f"benchsuite prepare mnist -d '{folder}' --synthetic --size small"


@pytest.mark.torch
def test_the_command_says_each_finding_and_its_remedy(tmp_path: Path) -> None:
    printed = benchsuite("doctor", cwd=tmp_path)
    listed = benchsuite("doctor", "--json", cwd=tmp_path)
    findings = json.loads(listed.stdout)
    assert {"driver", "torch", "isolation", "processors", "memory", "disk", "data", "extras"} <= {
        f["about"] for f in findings
    }
    bad = [f for f in findings if f["state"] == "bad"]
    assert listed.returncode == printed.returncode == (1 if bad else 0)
    for finding in findings:
        if finding["about"] != "load":
            assert finding["about"] in printed.stdout
    assert all(f["remedy"] for f in bad)
