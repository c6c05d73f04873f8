"""What the machine is, under NVML's moods: present, partly silent, or not there at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import make_gpu, make_task
from fake_nvml import play
from support import PROGRAMS, benchsuite, environ, in_process, one_line_error

from benchsuite.commands.rerun import _moved
from benchsuite.describe.plan import Place
from benchsuite.errors import UsageError
from benchsuite.host import machine

STUBS = PROGRAMS.parent / "stubs"
TORCH_WITHOUT_GPU = """
__version__ = "2.11"
class version:
    cuda = None
class cuda:
    is_available = staticmethod(lambda: False)
"""


def card(index: int, name: str = "Card", **answers: Any) -> dict[str, Any]:
    return {
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetUUID": f"GPU-{index}{index}",
        "nvmlDeviceGetPciInfo": {"busId": f"00000000:0{index + 1}:00.0"},
        "nvmlDeviceGetMemoryInfo": {"total": 8 << 30},
        **answers,
    }


def with_nvml(scenario: dict[str, Any], at: Path = STUBS, **variables: str) -> dict[str, str]:
    """An environment with the stub of NVML; modules in the folder `at` are found first."""
    env = environ(FAKE_NVML=json.dumps(scenario), **variables)
    env["PYTHONPATH"] = os.pathsep.join([str(at), str(STUBS), env["PYTHONPATH"]])
    if "CUDA_VISIBLE_DEVICES" not in variables:
        del env["CUDA_VISIBLE_DEVICES"]
    return env


def described(scenario: dict[str, Any], **variables: str) -> dict[str, Any]:
    code = "import os, msgspec; from benchsuite.host.machine import describe; "
    code += "print(msgspec.json.encode(describe(os.environ)).decode())"
    env = with_nvml(scenario, **variables)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = {**json.loads(done.stdout), "stderr": done.stderr}
    return found


def test_cards_are_described_and_what_is_unsupported_is_null() -> None:
    found = described({"devices": [card(0, nvmlDeviceGetEnforcedPowerLimit=350_000), card(1, "Other")]})
    assert [(g["name"], g["uuid"], g["pci"]) for g in found["gpus"]] == [
        ("Card", "GPU-00", "00000000:01:00.0"),
        ("Other", "GPU-11", "00000000:02:00.0"),
    ]
    assert [g["power_limit_w"] for g in found["gpus"]] == [350.0, None]
    assert [g["max_sm_clock_mhz"] for g in found["gpus"]] == [None, None]
    assert found["visible"] == ["GPU-00", "GPU-11"]
    assert found["driver"] == "580.0"


def test_no_nvml_is_a_reason_and_not_an_error() -> None:
    found = described({"init": 9})
    assert found["gpus"] == []
    assert found["gpu_note"] == "NVML: driver not loaded"
    assert "Traceback" not in found["stderr"]


def test_a_machine_without_cards_says_so() -> None:
    assert described({"devices": []})["gpu_note"] == "NVML lists no GPU"


@pytest.mark.parametrize("fault", [{"lost": True}, {"nvmlDeviceGetUUID": {"error": 15}}])
def test_a_lost_card_harms_no_other_and_is_said(fault: dict[str, Any]) -> None:
    found = described({"devices": [{**card(0), **fault}, card(1)]})
    assert [g["uuid"] for g in found["gpus"]] == ["GPU-11"]
    assert "GPU 0 does not answer" in found["gpu_note"]


@pytest.mark.torch
def test_a_dry_run_names_cards_by_uuid_in_the_users_order(tmp_path: Path) -> None:
    env = with_nvml({"devices": [card(0), card(1), card(2)]}, CUDA_VISIBLE_DEVICES="2,0")
    done = benchsuite("jobs", "standard", "--name", "vae", "--dry-run", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [word for line in lines for word in line.split() if "VISIBLE" in word] == [
        "CUDA_VISIBLE_DEVICES=GPU-22",
        "CUDA_VISIBLE_DEVICES=GPU-00",
    ]
    assert "vae.J0.1: job vae, repeat 0, on GPU 1 (Card, GPU-00)" in done.stdout


def test_a_rerun_finds_its_card_by_uuid_and_takes_another_only_if_asked(tmp_path: Path) -> None:
    """A torch that sees no GPU is made up here, since the real one takes seconds to import in each run."""
    (tmp_path / "torch.py").write_text(TORCH_WITHOUT_GPU)
    two = with_nvml({"devices": [card(0), card(1)]}, at=tmp_path)
    first = benchsuite(
        "run", "faults:build", "-o", "r.json", "--", "--max-count", "1", "--warm-up-s=0", cwd=tmp_path, env=two
    )
    assert first.returncode == 1, "no real GPU is there, which the worker says"
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["status"] == "failed"
    assert "sees no GPU" in result["error"]["message"]
    assert result["machine"]["gpus"][0]["uuid"] == "GPU-00"
    swapped = with_nvml({"devices": [card(1), card(0)]}, at=tmp_path)
    again = benchsuite("rerun", "r.json", "-o", "-", cwd=tmp_path, env=swapped)
    assert json.loads(again.stdout)["machine"]["gpus"][0]["uuid"] == "GPU-00"
    assert json.loads(again.stdout)["identity"]["devices"] == [1]
    assert "note" not in again.stderr
    elsewhere = with_nvml({"devices": [card(7)]}, at=tmp_path)
    refused = benchsuite("rerun", "r.json", "-o", "-", cwd=tmp_path, env=elsewhere)
    one_line_error(refused, "its GPU 0 (Card, GPU-00) is not here; --other-gpu runs it on visible GPU 0 (Card, GPU-77)")
    result["identity"]["host"], result["machine"]["driver"] = "first-host", "1.0"
    (tmp_path / "r.json").write_text(json.dumps(result))
    other = benchsuite("rerun", "r.json", "--other-gpu", "-o", "-", cwd=tmp_path, env=elsewhere)
    kept = json.loads(other.stdout)
    assert kept["machine"]["gpus"][0]["uuid"] == "GPU-77"
    changes = [
        "gpu GPU-00 (Card) -> GPU-77 (Card)",
        f"host first-host -> {kept['identity']['host']}",
        f"driver 1.0 -> {kept['machine']['driver']}",
    ]
    assert kept["task"]["rerun_of"]["changes"] == changes
    assert all(f"changed: {change}" in other.stderr for change in changes)


def test_a_rerun_with_another_placement_keeps_its_card_and_never_takes_another_unasked() -> None:
    cards = [make_gpu(index) for index in range(3)]
    old = make_task(gpu=2)
    each = [Place((card,)) for card in cards]
    file = Path("r.json")
    assert _moved(old, each, file, other_gpu=False) == (each[2], ())
    every = Place(tuple(cards), 3)
    place, (change,) = _moved(old, [every], file, other_gpu=False)
    assert (place, change[:42]) == (every, "gpu GPU-0002 (NVIDIA Test) -> GPU-0000 (NV")
    with pytest.raises(UsageError, match=r"GPU-0002 \(NVIDIA Test\) is not here; --other-gpu runs it on GPU-0000"):
        _moved(old, each[:2], file, other_gpu=False)
    assert _moved(old, each[:2], file, other_gpu=True)[0] == each[0]
    assert _moved(old, [Place()], file, other_gpu=False)[1] == ("gpu GPU-0002 (NVIDIA Test) -> none",)


@pytest.mark.torch
def test_a_card_that_is_lost_in_mid_run_is_said_on_the_terminal_and_in_the_result(tmp_path: Path) -> None:
    going = card(0, nvmlDeviceGetPowerUsage={"then": [1000, {"error": 15}]})
    done = benchsuite(
        "run", "faults:build", "--", "--max-count", "1", cwd=tmp_path, env=with_nvml({"devices": [going]})
    )
    assert "GPU 0 (GPU-00): gpu is lost; it is no longer watched" in done.stderr
    result = json.loads(done.stdout)
    assert "sees no GPU" in result["error"]["message"], "the real torch says so"
    (device,) = result["telemetry"]["devices"]
    assert device["samples"] < 2
    assert device["reasons"]["samples"] == "gpu is lost"
    assert device["unsampled"][-1][1] > 1


def test_a_list_that_names_a_card_twice_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, card(0), card(1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
    for command in (("jobs", "smoke", "-o", "out"), ("jobs", "smoke", "--dry-run"), ("run", "polynome")):
        one_line_error(in_process(*command, cwd=tmp_path), "CUDA_VISIBLE_DEVICES='0,0' names 0 twice")
    assert not (tmp_path / "out").exists()


def test_gpus_that_a_run_does_not_use_are_said_at_its_start_in_report_and_verify(tmp_path: Path) -> None:
    env = with_nvml({"devices": [card(0), card(1)]}, CUDA_VISIBLE_DEVICES="-1")
    chosen = ("faults:build", "-o", "out", "--", "--max-count", "1", "--warm-up-s=0", "--min-time-s=0.1")
    done = benchsuite("run", *chosen, cwd=tmp_path, env=env)
    why = "CUDA_VISIBLE_DEVICES='-1' hides all GPUs"
    assert f"no GPU is used: {why}" in done.stderr
    report = " ".join(in_process("report", "out", cwd=tmp_path).stdout.split())
    assert f"GPUs: {why}." in report
    assert why in in_process("verify", "out", cwd=tmp_path).stdout


def test_this_machine_is_described_in_full() -> None:
    found = machine.describe({})
    assert found.cpus >= found.cpus_usable >= 1
    assert found.memory_bytes > 1 << 28
    assert found.host
    assert found.kernel
    assert found.cpu
    assert len(found.boot_id) == 36
    assert {"msgspec", "psutil", "pyyaml"} <= set(found.packages)


def test_the_hash_of_the_facts_changes_with_them() -> None:
    import msgspec

    one = machine.describe({})
    assert one.sha256 == machine.describe({}).sha256
    assert one.sha256 != msgspec.structs.replace(one, host="other").sha256


@pytest.mark.parametrize(
    ("kept", "printed"),
    [
        ('{"commit": "1a2b3c4d5e6f7081", "dirty": true}', "benchsuite 0.1.0 (1a2b3c4d5e6f+dirty)\n"),
        ('{"commit": "1a2b3c4d5e6f7081", "dirty": false}', "benchsuite 0.1.0 (1a2b3c4d5e6f)\n"),
        ("not JSON", "benchsuite 0.1.0\n"),
        (None, "benchsuite 0.1.0\n"),
    ],
)
def test_the_version_has_the_commit_of_which_the_package_was_built(
    kept: str | None, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside a checkout, git is not asked: the package may lie in the repository of something else."""
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "benchsuite" / "host" / "machine.py"))
    (tmp_path / "benchsuite" / "share").mkdir(parents=True)
    if kept is not None:
        (tmp_path / "benchsuite" / machine.BUILT_FROM).write_text(kept)
    assert in_process("--version", cwd=tmp_path).stdout == printed


def test_code_in_a_checkout_names_its_commit() -> None:
    found = machine.code()
    in_checkout = (Path(machine.__file__).parents[2] / ".git").exists()
    assert (found.commit is not None) == in_checkout
    assert found.commit is None or len(found.commit) == 40
