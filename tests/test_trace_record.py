"""Recordings of a task: the profiler runs after the measurement, and the rate enters no report."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support import benchsuite, in_process, one_line_error

from benchsuite import manifest
from benchsuite.describe.tasks import Job, Task, Trace
from benchsuite.launch.profilers import profiler
from benchsuite.measurement import MEMORY_KINDS, MemoryCurve
from benchsuite.schema import to_json
from benchsuite.trace import memory
from benchsuite.worker.memory_history import Labels, curve_of

CAPTURED = Path(__file__).parent / "data" / "traces"


def task(**trace: Any) -> Task:
    asked = Trace(**trace) if trace else None
    return Task(id="x", profile="p", repeat=0, job=Job(name="j", model="vae"), cell="j", row="j", wave="w", trace=asked)


def test_ncu_starts_the_worker_without_touching_the_clocks() -> None:
    assert profiler(task(), "logs/x.a1.events.jsonl") == []
    assert profiler(task(tool="timeline", steps=1), "logs/x.a1.events.jsonl") == []
    words = profiler(task(tool="ncu", steps=1, kernels=7), "logs/x.a1.events.jsonl")
    assert words[0] == "ncu"
    assert {"--clock-control=none", "--profile-from-start=off", "--launch-count=7"} <= set(words)
    assert words[-1] == "--log-file=logs/x.a1.trace.ncu.csv"
    nsys = profiler(task(tool="nsys", steps=1), "logs/x.a1.events.jsonl")
    assert (nsys[0], nsys[-1]) == ("nsys", "--output=logs/x.a1.trace.nsys-rep")
    nvprof = profiler(task(tool="nvprof", steps=1), "logs/x.a1.events.jsonl")
    assert (nvprof[0], nvprof[-1]) == ("nvprof", "logs/x.a1.trace.nvvp")


def action(kind: str, address: int, size: int, at_us: float) -> dict[str, Any]:
    return {"action": kind, "addr": address, "size": size, "time_us": at_us}


def noted(labels: Labels, address: int, kind: Any, at_us: float) -> None:
    labels.seen.setdefault(address, []).append((at_us, kind))


def test_memory_is_divided_by_what_was_seen_in_each_block_during_its_life() -> None:
    labels = Labels()
    noted(labels, 1, "weights", 5)
    noted(labels, 30, "activations", 115)
    noted(labels, 30, "gradients", 145)  # the address is used again, for another kind
    held = {1: 1000, 2: 50}
    actions = [
        action("alloc", 30, 400, 110),
        action("alloc", 31, 100, 120),
        action("free_requested", 31, 100, 130),
        action("free_completed", 31, 100, 131),
        action("free_requested", 30, 400, 135),
        action("alloc", 30, 300, 140),
        action("free_requested", 2, 50, 150),
        action("segment_alloc", 99, 1 << 20, 151),
    ]
    curve = curve_of(held, actions, labels, 100.0, peak_bytes=1550, reserved_bytes=2048, device_used_bytes=4096)
    assert curve.at_peak == {
        "weights": 1000, "optimiser state": 0, "gradients": 0, "activations": 400, "temporary": 100, "other": 50,
    }  # fmt: skip
    assert sum(curve.at_peak.values()) == curve.peak_bytes
    assert memory.off(curve) == 0
    last = dict(zip(MEMORY_KINDS, curve.points[-1][1:], strict=True))
    assert (last["gradients"], last["activations"], last["temporary"], last["other"]) == (300, 0, 0, 0)


def curve(**changed: Any) -> MemoryCurve:
    points = ((0.0, 100.0, 0.0, 0.0, 0.0, 0.0, 0.0), (0.5, 100.0, 50.0, 20.0, 800.0, 30.0, 0.0))
    at_peak = dict(zip(MEMORY_KINDS, map(int, points[1][1:]), strict=True))
    given = {"points": points, "at_peak": at_peak, "peak_at_s": 0.5, "peak_bytes": 1000, "reserved_bytes": 2000}
    return MemoryCurve(**{**given, "device_used_bytes": 3000, **changed})


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_recordings_are_drawn(ending: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(to_json(curve()))
    for file in (tmp_path / "m.json", CAPTURED / "kineto_amp.json.gz", CAPTURED / "ncu60_amp.csv.gz"):
        picture = tmp_path / f"{file.name}.{ending}"
        done = in_process("trace", "--read", str(file), "--plot", str(picture), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert picture.stat().st_size > 5_000
        one_line_error(in_process("trace", "--read", str(file), "--plot", str(picture), cwd=tmp_path), "exists")
    one_line_error(in_process("trace", "--read", "m.json", "--plot", "x.txt", cwd=tmp_path), "ends in .png")


def test_a_recording_of_memory_names_the_largest_kind_and_a_peak_that_does_not_add_up(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_bytes(to_json(curve()))
    done = in_process("trace", "--read", str(file), cwd=tmp_path)
    assert "activations are 80.0 %" in done.stdout
    assert "off the allocator's own" not in done.stdout
    file.write_bytes(to_json(curve(peak_bytes=1100)))
    assert "-9.1 % off the allocator's own" in in_process("trace", "--read", str(file), cwd=tmp_path).stdout
    file.write_bytes(to_json(curve(points=((1.0, 2.0),))))
    one_line_error(in_process("trace", "--read", str(file), cwd=tmp_path), "a point needs a time and 6 sizes")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("vae", "--tool", "memory"), "--tool memory: it records a GPU"),
        (("vae", "--tool", "ncu"), "--tool ncu: it records a GPU"),
        (("nothing",), "nothing"),
        (("vae", "-p", "smoke", "--read", "x"), "give one of"),
        (("scaling", "-p", "standard"), "makes several tasks"),
        (("vea", "-p", "standard"), "no job 'vea'"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_starts(
    words: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    one_line_error(in_process("trace", *words, cwd=tmp_path), why)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("smoke", "--profile", "--profile-fp32"), "give one of them"),
        (("smoke", "--profile-fp32", "--name", "vae"), "no task of this run has one"),
    ],
)
def test_runs_with_recordings_are_refused_before_they_start(
    words: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    one_line_error(in_process("jobs", *words, cwd=tmp_path), why)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torch
def test_a_run_may_record_every_task(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = '{"model": "polynome", "placement": "cpu", "warm_up_s": 0, "min_time_s": 1}'
    (tmp_path / "p.json").write_text(f'{{"line": {job}}}')
    done = benchsuite("jobs", "p.json", "--profile", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "recorded 5 steps of" in done.stderr
    (recording,) = (tmp_path / "results" / "traces").glob("*/logs/*.trace.json.gz")
    with gzip.open(recording, "rt") as file:
        assert any(event.get("pid") == "benchsuite" for event in json.load(file)["traceEvents"])


@pytest.mark.torch
def test_a_traced_task_has_its_recording_and_enters_no_report(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = benchsuite(
        "trace", "polynome", "--start", "3", "--steps", "2", "-o", "out", "--", "--warm-up-s", "0", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "it holds no GPU" in done.stderr
    assert "recorded 2 steps of" in done.stderr
    (result,) = [json.loads(f.read_text()) for f in (tmp_path / "out").glob("trace.*.json")]
    (stream,) = result["measurement"]["streams"]
    assert stream["traced"]["steps"] == 2
    assert stream["traced"]["step_s"] > 0
    assert sum(one[2] for one in stream["slices"]) == 3
    with gzip.open(tmp_path / "out" / stream["traced"]["file"], "rt") as file:
        events = json.load(file)["traceEvents"]
    ours = {event["name"]: event for event in events if event["pid"] == "benchsuite" and event["ph"] == "X"}
    first = next(event for event in events if event["name"] == "ProfilerStep#0")
    assert {"start and warm-up", "measurement", "recording"} <= set(ours)
    assert ours["recording"]["ts"] <= first["ts"] <= ours["recording"]["ts"] + 5e6
    assert first["ts"] + first["dur"] <= ours["recording"]["ts"] + 5e6 + ours["recording"]["dur"]
    assert any(event["ph"] == "C" and event["pid"] == "benchsuite" for event in events)
    assert list(manifest.unseal(tmp_path / "out").words()) == []
    one_line_error(in_process("report", "out", cwd=tmp_path), "a profiler was at work")
