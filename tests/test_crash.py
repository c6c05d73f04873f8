"""However benchsuite itself dies, or two of it meet: every task has exactly one counted result, and nothing is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from support import benchsuite, environ, marked, one_line_error, start, statuses, wait_for, write_profile

from benchsuite.launch import lock
from benchsuite.launch.process import MARK
from benchsuite.report.read.load import load
from benchsuite.rundir import LOCK, RunDir


def test_eight_kills_then_a_resume_leave_one_counted_result_a_task(tmp_path: Path) -> None:
    """kill -9 of benchsuite at random moments; the seed is printed, so that a failure can be looked at."""
    seed = int(os.environ.get("RESUME_SEED", time.time()))
    print("RESUME_SEED", seed)
    moments = random.Random(seed)
    quick = {"min_time_s": 0.15}
    profile = write_profile(
        tmp_path / "kill9x.json",
        one=quick,
        two={"params": {"kind": "exit", "after_s": 0.1}, **quick},
        three=quick,
    )
    arguments = ["jobs", str(profile), "-o", "out", "--repeat", "2"]
    noted = tmp_path / "out" / "attempts.jsonl"

    def size() -> int:
        return noted.stat().st_size if noted.exists() else 0

    for kill in range(8):
        resume = ["--resume"] if (tmp_path / "out" / "plan.json").exists() else []
        if not resume and (tmp_path / "out").exists():
            subprocess.run(["rm", "-r", str(tmp_path / "out")], check=True)  # killed before there was a plan
        running = start(*arguments, *resume, cwd=tmp_path, env=environ(), stdout=-3, stderr=subprocess.PIPE)
        if kill % 2:  # among its tasks, however long a start takes here
            before = size()
            wait_for(lambda before=before, running=running: size() > before or running.poll() is not None)
        try:
            running.wait(timeout=moments.uniform(0.0, 0.7) if kill % 2 else moments.uniform(0.2, 1.6))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
        _, stderr = running.communicate()
        assert running.returncode in (-9, 0, 1), stderr
    last = benchsuite(*arguments, "--resume", cwd=tmp_path)
    assert last.returncode == 1, last.stderr
    assert "2 failed, 0 not run" in last.stderr
    found = statuses(tmp_path / "out")
    assert set(found) == {f"{job}.J{repeat}" for job in ("one", "two", "three") for repeat in (0, 1)}
    for task, attempts in found.items():
        assert attempts[:-1] == ["interrupted"] * (len(attempts) - 1), (
            "each is alone in its wave, so ends with its first"
        )
        assert attempts[-1] == ("failed" if task.startswith("two") else "ok")
    assert Counter(row.status for row in load(tmp_path / "out").rows) == {"insufficient": 4, "failed": 2}
    lines = RunDir(tmp_path / "out").attempts()
    ends = Counter((a.task, a.attempt) for a in lines if a.event == "end")
    assert set(ends.values()) == {1}
    assert {(a.task, a.attempt) for a in lines if a.event == "start"} <= set(ends)
    time.sleep(0.2)
    assert [a.mark for a in lines if a.mark and marked(a.mark)] == []
    made = tuple(f"benchsuite-{a.parent_pid}-{a.parent_ticks}" for a in lines if a.parent_pid)
    assert len(made) > 1
    assert [p for p in Path("/sys/fs/cgroup").rglob("benchsuite-*") if p.name.startswith(made)] == []


def test_resuming_a_copy_leaves_the_run_in_progress_alone(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={"min_time_s": 6}))
    running = start("jobs", profile, "-o", "a", cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: (tmp_path / "a" / "attempts.jsonl").exists())
    subprocess.run(["cp", "-r", "a", "b"], cwd=tmp_path, check=True)
    other = start("jobs", profile, "-o", "b", "--resume", cwd=tmp_path, env=environ(), stderr=-3)
    assert running.wait(timeout=120) == 0
    other.send_signal(signal.SIGTERM)
    other.wait(timeout=120)
    assert statuses(tmp_path / "a") == {"job.J0": ["ok"]}


def test_what_was_cut_off_keeps_the_facts_of_its_own_run(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={"min_time_s": 30}))
    running = start("jobs", profile, "-o", "out", cwd=tmp_path, env=environ(), stderr=-3)
    logs = tmp_path / "out" / "logs"
    wait_for(lambda: any(b"ready" in file.read_bytes() for file in logs.glob("*.events.jsonl")))
    running.kill()
    running.wait()
    again = start("jobs", profile, "-o", "out", "--resume", cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: [a.event for a in RunDir(tmp_path / "out").attempts()].count("start") == 2)
    again.send_signal(signal.SIGTERM)
    again.wait(timeout=120)
    (begun, *_) = RunDir(tmp_path / "out").attempts()
    results = [json.loads(p.read_text()) for p in (tmp_path / "out").glob("p.job.*.json")]
    first = next(r for r in results if r["identity"]["attempt"] == 1)
    clock = {"boot_id": begun.boot_id, "wall": begun.at, "monotonic_s": begun.monotonic_s}
    assert first["timeline"]["clock"] == {"host": first["identity"]["host"], **clock}
    assert first["tenant"]["reason"] == "not known: the run was cut off"
    assert first["timeline"]["queued_s"] <= first["timeline"]["ready_s"]


def test_what_a_killed_run_left_running_is_found_by_its_mark_and_ended(tmp_path: Path) -> None:
    """A grandchild outlives the worker, which the kernel ends with its parent."""
    params = {"kind": "grandchild", "after_s": 0.1, "file": str(tmp_path / "seen.json")}
    profile = str(write_profile(tmp_path / "p.json", job={"params": params, "timeout_s": 90}))
    arguments = ["jobs", profile, "-o", "out", "--isolation", "none"]  # a group's leftovers any other run would end
    running = start(*arguments, cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: (tmp_path / "seen.json").exists() and (tmp_path / "seen.json").read_text().endswith("}"))
    mark = json.loads((tmp_path / "seen.json").read_text())["environ"][MARK]
    wait_for(lambda: len(marked(mark)) == 2)
    running.kill()
    running.wait()
    wait_for(lambda: len(marked(mark)) == 1)
    profile_time = ["--", "--timeout-s", "3"]
    one_line_error(benchsuite(*arguments, "--resume", *profile_time, cwd=tmp_path), "timeout_s")
    again = start(
        *arguments,
        "--resume",
        cwd=tmp_path,
        env=environ(),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: [a.event for a in RunDir(tmp_path / "out").attempts()].count("start") == 2)
    assert not marked(mark)
    again.send_signal(signal.SIGTERM)
    _, stderr = again.communicate(timeout=120)
    assert "was left running and has been killed" in stderr
    assert statuses(tmp_path / "out")["job.J0"][0] == "interrupted"


def test_two_runs_in_one_folder_are_refused_and_stop_ends_the_first(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={"min_time_s": 30}))
    running = start("jobs", profile, "-o", "out", cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: (tmp_path / "out" / "attempts.jsonl").exists())
    for more in ([], ["--resume"]):
        second = benchsuite("jobs", profile, "-o", "out", *more, cwd=tmp_path)
        one_line_error(second, "out", "a run is in progress", str(running.pid), "benchsuite stop out")
    ended = benchsuite("stop", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "--resume" in ended.stderr
    assert running.wait(timeout=120) == 143
    assert statuses(tmp_path / "out") == {"job.J0": ["interrupted"]}
    nothing = benchsuite("stop", "out", cwd=tmp_path)
    assert (nothing.returncode, "no run is in progress" in nothing.stderr) == (0, True)
    one_line_error(benchsuite("stop", "nowhere", cwd=tmp_path), "nowhere", "no such folder")


def test_stop_never_signals_a_process_that_is_not_the_runs(tmp_path: Path) -> None:
    """The lock is held, but names a pid whose start time is another's: a reused pid."""
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        with lock.locked(tmp_path):
            reported = json.loads((tmp_path / LOCK).read_text())
            (tmp_path / LOCK).write_text(json.dumps({**reported, "pid": bystander.pid, "ticks": 1}))
            one_line_error(benchsuite("stop", str(tmp_path), cwd=tmp_path), str(bystander.pid), "stop it there")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
