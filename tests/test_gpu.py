"""What only a real GPU can show."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import command, environ, kill_rank, nothing_left, read_results

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def gpu_environ(**more: str) -> dict[str, str]:
    env = environ(**more)
    if "CUDA_VISIBLE_DEVICES" not in more:
        del env["CUDA_VISIBLE_DEVICES"]
    return env


def run(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=cwd, env=gpu_environ(**more), capture_output=True, encoding="utf-8", check=False
    )


def test_each_visible_gpu_runs_its_own_task_under_its_own_name(tmp_path: Path) -> None:
    short = ["--", "--min-time-s", "3"]
    done = run("jobs", "smoke", "--name", "vae", "-o", "out", *short, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "out").glob("smoke.vae.J0.*.json"))
    assert len(files) == torch.cuda.device_count()
    for index, file in enumerate(files):
        result = json.loads(file.read_text())
        (gpu,) = result["machine"]["gpus"]
        assert gpu["uuid"].removeprefix("GPU-") == str(torch.cuda.get_device_properties(index).uuid)
        assert result["machine"]["software"]["gpu"] == gpu["name"] == torch.cuda.get_device_name(index)
        assert result["measurement"]["streams"][0]["device"] == "cuda:0"
        peak = result["measurement"]["streams"][0]["peak_memory"]
        assert 1 << 20 < peak["device_allocated_bytes"] <= peak["device_reserved_bytes"]


@pytest.mark.parametrize(("precision", "low", "high"), [("fp32", 0.0, 2e-6), ("tf32", 1e-5, 1e-2)])
def test_fp32_is_true_fp32_and_tf32_is_not(precision: str, low: float, high: float) -> None:
    script = f"""
import torch
from benchsuite.worker.precision import set_precision
set_precision({precision!r}, "cuda:0")
torch.manual_seed(0)
a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
x, w = torch.randn(8, 64, 32, 32, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
for got, want in (((a @ b), (a.double() @ b.double())),
                  (torch.conv2d(x, w), torch.conv2d(x.double(), w.double()))):
    print(float((got.double() - want).norm() / want.norm()))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    errors = [float(line) for line in done.stdout.split()]
    assert len(errors) == 2
    assert all(low <= error <= high for error in errors), errors


def test_wall_time_of_a_slice_agrees_with_device_events() -> None:
    """The host runs ahead of the device: a slice must still be as long as its work."""
    from benchsuite.worker.loop import timed_loop
    from benchsuite.worker.timing import Stop, TimedSlice

    x = torch.randn(4096, 4096, device="cuda")
    marks: list[Any] = []

    def step(_: None) -> int:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        marks.append(event)
        torch.mm(x, x)
        return 1

    def forever() -> Any:
        while True:
            yield None

    slices: list[TimedSlice] = []
    torch.mm(x, x)
    timed_loop(step, forever(), Stop(min_time_ns=int(3e9)), slices.append, sync=torch.cuda.synchronize)
    last = torch.cuda.Event(enable_timing=True)
    last.record()
    torch.cuda.synchronize()
    device_s = marks[0].elapsed_time(last) / 1000
    wall_s = sum(s.end_ns - s.start_ns for s in slices) / 1e9
    assert wall_s == pytest.approx(device_s, rel=0.02)
    lengths = [(s.end_ns - s.start_ns) / 1e9 for s in slices[1:-1]]
    assert all(0.5 <= length <= 0.6 for length in lengths), lengths


def test_a_killed_worker_leaves_its_slices_and_no_memory_on_the_gpu(tmp_path: Path) -> None:
    running = subprocess.Popen(
        command("jobs", "smoke", "--name", "vae", "-o", "out", "--", "--min-time-s", "60", "--max-time-s", "90"),
        cwd=tmp_path,
        env=gpu_environ(CUDA_VISIBLE_DEVICES="0"),
        stderr=subprocess.PIPE,
        text=True,
    )
    events = tmp_path / "out" / "logs" / "vae.J0.0.a1.events.jsonl"
    deadline = time.monotonic() + 90
    while not events.exists() or len(events.read_text().splitlines()) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    pid = json.loads((tmp_path / "out" / "attempts.jsonl").read_text().splitlines()[0])["pid"]
    subprocess.run(["kill", "-9", str(pid)], check=True)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 1, stderr
    result = read_results(tmp_path / "out")["vae"]
    assert result.status == "killed"
    assert len(result.measurement.streams[0].slices) >= 4
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pid not in [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]


def test_out_of_memory_on_the_device_is_said_as_such(tmp_path: Path) -> None:
    done = run("run", "hoards:build", "-o", "oom.json", cwd=tmp_path)
    result = json.loads((tmp_path / "oom.json").read_text())
    assert (done.returncode, result["status"]) == (1, "oom"), result["error"]
    assert "out of memory" in result["error"]["message"].lower()


@pytest.mark.parametrize("precision", ["fp32", "tf32", "amp-fp16", "bf16"])
def test_every_precision_trains(precision: str, tmp_path: Path) -> None:
    words = ["--", "--precision", precision, "--batch-size", "32", "--min-time-s", "1.2", "--warm-up-s", "0"]
    done = run("run", "convnet", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (stream,) = json.loads(done.stdout)["measurement"]["streams"]
    assert stream["notes"] == []
    assert all(loss is not None for loss in stream["losses"])


def test_a_compiled_step_runs_and_reports_its_graphs(tmp_path: Path) -> None:
    words = ["--", "--compile", "reduce-overhead", "--min-time-s", "1.2", "--warm-up-s", "0"]
    done = run("run", "vae", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (stream,) = json.loads(done.stdout)["measurement"]["streams"]
    assert stream["compiled"]["graphs"] >= 1


# --- groups -----------------------------------------------------------------------------------------------------------

two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
GROUP = {"model": "convnet", "placement": "all_gpus", "precision": "bf16", "params": {"batch_size": 32}}


def begin(name: str, cwd: Path) -> subprocess.Popen[str]:
    words = command("jobs", f"{name}.json", "-o", name)
    return subprocess.Popen(words, cwd=cwd, env=gpu_environ(), stderr=subprocess.PIPE, text=True)


@two_gpus
def test_groups_train_over_nccl_and_two_at_once_do_not_meet(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"g": {**GROUP, "min_time_s": 5.0}}))
    running = [begin(name, tmp_path) for name in ("one", "two")]
    reported = [process.communicate(timeout=200)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], reported
    ports = set()
    for name in ("one", "two"):
        result = read_results(tmp_path / name)["g"]
        assert result.group is not None
        ports.add(result.group.port)
        assert (result.group.ranks, result.group.backend) == (torch.cuda.device_count(), "nccl")
        streams = result.measurement.streams
        assert [stream.device for stream in streams] == [f"cuda:{rank}" for rank in range(result.group.ranks)]
        counts = [[(one.steps, one.items) for one in stream.slices] for stream in streams]
        assert all(one == counts[0] for one in counts)
        nothing_left(tmp_path / name)
    assert len(ports) == 2


@two_gpus
def test_a_rank_killed_on_a_gpu_ends_its_group_and_frees_the_gpus(tmp_path: Path) -> None:
    job = {**GROUP, "min_time_s": 60.0, "max_time_s": 80.0, "timeout_s": 150.0}
    (tmp_path / "p.json").write_text(json.dumps({"g": job}))
    running = begin("p", tmp_path)
    victim = kill_rank(tmp_path / "p", "g.J0", 1)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 1, stderr
    result = read_results(tmp_path / "p")["g"]
    assert result.error is not None
    assert result.status == "killed"
    assert result.error.message == f"rank 1 of {torch.cuda.device_count()} was killed by SIGKILL"
    assert all(stream.slices for stream in result.measurement.streams)
    nothing_left(tmp_path / "p")
    import pynvml

    pynvml.nvmlInit()
    for index in range(torch.cuda.device_count()):
        used = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(index))
        assert victim not in [process.pid for process in used]
