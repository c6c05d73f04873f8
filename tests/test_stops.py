"""However a run is stopped, from outside or within, nothing of it is left and what was finished is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from support import QUICK, benchsuite, environ, read_results, start, wait_for, write_profile

from benchsuite.records import Result
from benchsuite.rundir import RunDir


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_tree_and_keeps_what_is_finished(signum: int, tmp_path: Path) -> None:
    profile = write_profile(
        tmp_path / "stop.json",
        first={},
        second={"params": {"kind": "grandchild", "after_s": 0.8, "file": str(tmp_path / "pid.json")}, "timeout_s": 99},
        third={},
    )
    running = start("jobs", str(profile), "-o", "out", cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "pid.json").exists() and (tmp_path / "pid.json").read_text().endswith("}"))
    time.sleep(1.5)
    running.send_signal(signum)
    _, stderr = running.communicate(timeout=90)  # less than the second job's own limit
    assert running.returncode == 128 + signum
    assert "3 tasks: 0 passed, 0 failed, 2 not run, 1 too short for a number" in stderr
    found = read_results(tmp_path / "out")
    assert {job: r.status for job, r in found.items()} == {"first": "ok", "second": "interrupted"}
    mark = json.loads((tmp_path / "pid.json").read_text())["environ"]["BENCHSUITE_TREE"]
    assert [p for p in psutil.process_iter() if _environ(p).get("BENCHSUITE_TREE") == mark] == []


def test_a_child_does_not_outlive_a_killed_benchsuite(tmp_path: Path) -> None:
    profile = write_profile(
        tmp_path / "orphan.json", only={"params": {"file": str(tmp_path / "pid.json")}, "min_time_s": 30}
    )
    running = start("jobs", str(profile), "-o", "out", cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: (tmp_path / "pid.json").exists() and (tmp_path / "pid.json").read_text().endswith("}"))
    child = psutil.Process(json.loads((tmp_path / "pid.json").read_text())["pid"])
    running.kill()
    running.wait()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    lines = RunDir(tmp_path / "out").attempts()
    assert [a.event for a in lines] == ["start"]
    assert lines[0].pid == child.pid


def test_kill_of_a_worker_from_outside_is_one_counted_failure(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "k.json", job={"params": {"file": str(tmp_path / "pid.json")}, "min_time_s": 30})
    running = start("jobs", str(profile), "-o", "out", cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(_events(tmp_path / "out")) >= 4)
    os.kill(json.loads((tmp_path / "pid.json").read_text())["pid"], signal.SIGKILL)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 1
    result = read_results(tmp_path / "out")["job"]
    assert isinstance(result, Result)
    assert result.status == "killed"
    assert len(result.measurement.streams[0].slices) >= 3
    assert "1 failed" in stderr


def _events(out: Path) -> list[str]:
    file = out / "logs" / "job.J0.a1.events.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def test_prepare_runs_first_and_its_failure_or_limit_stops_its_job_only(tmp_path: Path) -> None:
    """The time limit ends the shell and the processes that it started; the runner does not wait for their output."""
    profile = write_profile(
        tmp_path / "p.json",
        good={"prepare": [["sh", "-c", "echo made > made.txt"]]},
        fails={"prepare": [["sh", "-c", "echo no luck; exit 4"], ["touch", "never.txt"]]},
        missing={"prepare": [["no-such-program"]]},
        late={"prepare": "setsid sleep 600 & echo started; wait", "timeout_s": 2},
        last={},
    )
    done = benchsuite("jobs", str(profile), "-o", "out", cwd=tmp_path, timeout=240)
    assert done.returncode == 1
    found = read_results(tmp_path / "out")
    assert {job: r.status for job, r in found.items()} == {
        "good": "ok", "fails": "failed", "missing": "failed", "late": "failed", "last": "ok"
    }  # fmt: skip
    assert (tmp_path / "made.txt").exists()
    assert not (tmp_path / "never.txt").exists()
    messages = {job: r.error.message for job, r in found.items() if r.error}
    assert "exited with status 4" in messages["fails"]
    assert "no luck" in (found["fails"].error.traceback or "")  # type: ignore[union-attr]
    assert "no-such-program" in messages["missing"]
    assert "did not end within 2 s" in messages["late"]
    assert "started" in (tmp_path / "out" / "logs" / "late.J0.a1.prepare").read_text()
    assert not [p for p in psutil.process_iter() if _environ(p).get("BENCHSUITE_TREE", "").startswith("prepare.")]


PROGRAM = """
import itertools, os, signal, subprocess, time
from dataclasses import dataclass
from benchsuite.models import Workload

@dataclass(frozen=True)
class Params:
    kind: str = "daemon"

def build(params):
    if params.kind == "daemon":
        subprocess.run(["sh", "-c", "env -i sleep 307 & env -i setsid sleep 308 &"])
    if params.kind == "protests":
        def protest(signum, frame):
            raise RuntimeError("I was told to stop")
        signal.signal(signal.SIGTERM, protest)
    if params.kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    def step(_):
        time.sleep(0.01)
        return 1
    return Workload(unit="x", batches=lambda s: itertools.repeat(None), items=lambda b: 0, step=step)
"""


def sleeping(seconds: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline() == ["sleep", seconds] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            pass
    return found


def write_program(folder: Path, **jobs: dict[str, object]) -> Path:
    (folder / "mine.py").write_text(PROGRAM)
    common = {"entry": "mine:build", "placement": "cpu", **QUICK, "timeout_s": 60}
    (folder / "p.json").write_text(json.dumps({"*": common, **jobs}))
    return folder / "p.json"


def test_a_daemon_that_left_everything_behind_is_ended_without_any_group(tmp_path: Path) -> None:
    profile = write_program(tmp_path, job={}, after={"params": {"kind": "quiet"}})
    done = benchsuite("jobs", str(profile), "-o", "out", "--isolation", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (sleeping("307"), sleeping("308")) == ([], [])
    assert "had left its task and has been killed" in done.stderr


def test_what_a_preparation_leaves_is_ended_too(tmp_path: Path) -> None:
    profile = write_program(
        tmp_path, job={"prepare": "env -i setsid sleep 309 & sleep 0.2", "params": {"kind": "quiet"}}
    )
    for isolation in ("none", "auto"):
        done = benchsuite("jobs", str(profile), "-o", isolation, "--isolation", isolation, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert sleeping("309") == []


def test_a_preparation_ends_with_a_killed_benchsuite(tmp_path: Path) -> None:
    profile = write_program(tmp_path, job={"prepare": [["sleep", "310"]]})
    running = start("jobs", str(profile), "-o", "out", cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: sleeping("310"))
    running.kill()
    running.wait()
    wait_for(lambda: not sleeping("310"))


def test_a_model_that_protests_against_being_stopped_is_interrupted(tmp_path: Path) -> None:
    profile = write_program(tmp_path, job={"params": {"kind": "protests"}, "min_time_s": 30})
    running = start("jobs", str(profile), "-o", "out", cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: len(_events(tmp_path / "out")) >= 2)
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=120) == 143
    assert read_results(tmp_path / "out")["job"].status == "interrupted"


def test_a_terminal_that_is_gone_costs_no_result(tmp_path: Path) -> None:
    """The window is closed: SIGHUP, and every further word to the terminal fails."""
    profile = write_program(tmp_path, job={"params": {"kind": "quiet"}, "min_time_s": 30})
    master, slave = os.openpty()
    running = start(
        "jobs",
        str(profile),
        "-o",
        "out",
        cwd=tmp_path,
        env=environ(TERM="xterm"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    wait_for(lambda: len(_events(tmp_path / "out")) >= 2)
    os.close(master)
    running.send_signal(signal.SIGHUP)
    assert running.wait(timeout=120) == 129
    assert read_results(tmp_path / "out")["job"].status == "interrupted"
