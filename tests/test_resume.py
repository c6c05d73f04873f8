"""A run goes on after any kind of end: whole waves, failures stand, every task has exactly one counted result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import benchsuite, command, environ, one_line_error, write_profile

from benchsuite.launch import lock
from benchsuite.launch.forecast import Forecast, in_words
from benchsuite.launch.process import MARK
from benchsuite.plan import make_plan
from benchsuite.report.load import load
from benchsuite.rundir import LOCK, RunDir
from benchsuite.tasks import Job, Placement


def statuses(out: Path) -> dict[str, list[str]]:
    """Task -> status of each attempt in turn, from the result files."""
    found: dict[str, dict[int, str]] = {}
    for file in out.glob("*.json"):
        if file.name not in ("run.json", "plan.json"):
            result = json.loads(file.read_text())
            attempts = found.setdefault(result["task"]["id"], {})
            attempt = result["identity"]["attempt"]
            assert attempt not in attempts, f"two results of {result['task']['id']}, attempt {attempt}"
            attempts[attempt] = result["status"]
    return {task: [of[n] for n in sorted(of)] for task, of in found.items()}


def marked(mark: str) -> list[int]:
    """Living processes whose inherited mark contains this text."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.environ().get(MARK, "") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            pass
    return found


def test_twenty_kills_then_a_resume_leave_one_counted_result_a_task(tmp_path: Path) -> None:
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
    for _ in range(20):
        resume = ["--resume"] if (tmp_path / "out" / "plan.json").exists() else []
        if not resume and (tmp_path / "out").exists():
            subprocess.run(["rm", "-r", str(tmp_path / "out")], check=True)  # killed before there was a plan
        running = subprocess.Popen(
            command(*arguments, *resume), cwd=tmp_path, env=environ(), stdout=-3, stderr=subprocess.PIPE
        )
        try:
            running.wait(timeout=moments.uniform(0.2, 1.6))
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
    made = {f"benchsuite-{a.parent_pid}-{a.parent_ticks}" for a in lines if a.parent_pid}
    assert len(made) > 1
    assert [p for p in Path("/sys/fs/cgroup").rglob("benchsuite-*") if p.name in made] == []


def test_a_torn_line_takes_no_other_with_it(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    file = folder / "out" / "attempts.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    assert b'"fails.J0"' in lines[1]
    file.write_bytes(b"".join(lines[:1]) + lines[1][: len(lines[1]) // 2])  # as a full disk or a power cut leaves it
    done = benchsuite(*arguments, "--resume", cwd=folder)
    assert "3 tasks (1 of them before)" in done.stderr, done.stderr
    assert statuses(folder / "out")["fails.J0"] == ["failed"], "its result is there, so it is not done again"
    assert len([a for a in RunDir(folder / "out").attempts() if a.event == "end"]) == 4


def test_resuming_a_copy_leaves_the_run_in_progress_alone(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={"min_time_s": 6}))
    running = subprocess.Popen(command("jobs", profile, "-o", "a"), cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: (tmp_path / "a" / "attempts.jsonl").exists())
    subprocess.run(["cp", "-r", "a", "b"], cwd=tmp_path, check=True)
    other = subprocess.Popen(command("jobs", profile, "-o", "b", "--resume"), cwd=tmp_path, env=environ(), stderr=-3)
    assert running.wait(timeout=40) == 0
    other.send_signal(signal.SIGTERM)
    other.wait(timeout=20)
    assert statuses(tmp_path / "a") == {"job.J0": ["ok"]}


def test_a_refused_resume_changes_nothing(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    before = {p: p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file() and p.name != LOCK}
    fence = ["--require-isolation", "--isolation", "none"]
    one_line_error(benchsuite(*arguments, "--resume", "--repeat", "3", *fence, cwd=folder), "--require-isolation")
    run = json.loads((folder / "out" / "run.json").read_text())
    run["machine"]["host"] = "elsewhere"
    (folder / "copy").mkdir()
    for name in ("plan.json", "attempts.jsonl"):
        (folder / "copy" / name).write_bytes((folder / "out" / name).read_bytes())
    (folder / "copy" / "run.json").write_text(json.dumps(run))
    other = [*arguments[:-1], "copy", "--resume"]
    one_line_error(benchsuite(*other, cwd=folder), "another machine", "elsewhere")
    assert {p: p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file() and p.name != LOCK} == before


def test_a_dry_resume_prints_what_is_left(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    dry = benchsuite(*arguments, "--resume", "--dry-run", cwd=folder)
    assert dry.returncode == 0, dry.stderr
    assert [line.split(":")[0] for line in dry.stdout.splitlines() if ": job" in line] == ["# slow.J0", "# last.J0"]


def test_what_was_cut_off_keeps_the_facts_of_its_own_run(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={"min_time_s": 30}))
    running = subprocess.Popen(command("jobs", profile, "-o", "out"), cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: len(RunDir(tmp_path / "out").attempts()) == 1)
    time.sleep(2.0)
    running.kill()
    running.wait()
    again = subprocess.Popen(command("jobs", profile, "-o", "out", "--resume"), cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: [a.event for a in RunDir(tmp_path / "out").attempts()].count("start") == 2)
    again.send_signal(signal.SIGTERM)
    again.wait(timeout=20)
    (start, *_) = RunDir(tmp_path / "out").attempts()
    results = [json.loads(p.read_text()) for p in (tmp_path / "out").glob("p.job.*.json")]
    first = next(r for r in results if r["identity"]["attempt"] == 1)
    assert first["anchor"] == {"boot_id": start.boot_id, "wall": start.at, "monotonic_s": start.monotonic_s}
    assert first["tenant"]["reason"] == "not known: the run was cut off"
    assert first["timeline"]["queued_s"] <= first["timeline"]["ready_s"]


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Path, list[str]]:
    """A run stopped by a signal in its second of three jobs, the first of which failed."""
    profile = write_profile(
        tmp_path / "stop.json",
        fails={"params": {"kind": "raise", "after_s": 0.1}},
        slow={"params": {"file": str(tmp_path / "seen.json")}, "min_time_s": 2},
        last={},
    )
    arguments = ["jobs", str(profile), "-o", "out"]
    running = subprocess.Popen(command(*arguments), cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: (tmp_path / "seen.json").exists())
    time.sleep(1.0)
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=20) == 143
    return tmp_path, arguments


def wait_for(condition: Any, limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def test_failures_stand_and_the_interrupted_are_done_again(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    assert statuses(folder / "out") == {"fails.J0": ["failed"], "slow.J0": ["interrupted"]}
    done = benchsuite(*arguments, "--resume", cwd=folder)
    assert done.returncode == 1
    assert "3 tasks (1 of them before): 0 passed, 1 failed, 0 not run, 2 too short" in done.stderr
    assert statuses(folder / "out") == {"fails.J0": ["failed"], "slow.J0": ["interrupted", "ok"], "last.J0": ["ok"]}
    run = RunDir(folder / "out").run()
    assert len(run.resumed) == 1
    assert "--resume" in run.resumed[0][1]
    again = benchsuite(*arguments, "--resume", cwd=folder)
    assert again.returncode == 1
    assert "3 tasks (3 of them before): 2 passed, 1 failed, 0 not run" in again.stderr
    assert len(statuses(folder / "out")["fails.J0"]) == 1


def test_repeats_extend_a_run_and_cannot_shrink_it(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    done = benchsuite(*arguments, "--resume", "--repeat", "2", cwd=folder)
    assert "6 tasks (1 of them before): 0 passed, 2 failed, 0 not run, 4 too short" in done.stderr
    out = RunDir(folder / "out")
    assert [t.id for t in out.plan().tasks] == ["fails.J0", "slow.J0", "last.J0", "fails.J1", "slow.J1", "last.J1"]
    assert out.run().repeats == 2
    fewer = benchsuite(*arguments, "--resume", "--repeat", "1", cwd=folder)
    one_line_error(fewer, "out", "--repeat 1", "2 repeats already")
    alike = benchsuite(*arguments, "--resume", cwd=folder)
    assert "6 tasks (6 of them before)" in alike.stderr, "without --repeat, as many as are planned"


def test_another_profile_or_other_changes_are_refused(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    changed = benchsuite(*arguments, "--resume", "--", "--items", "7", cwd=folder)
    one_line_error(changed, "out", "another profile or other changes", "params.items 1 -> 7")
    one_line_error(benchsuite(*arguments, "--resume", "--exclude", "last", cwd=folder), "last: not run")
    assert statuses(folder / "out") == {"fails.J0": ["failed"], "slow.J0": ["interrupted"]}


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={}))
    one_line_error(benchsuite("jobs", profile, "-o", "none", "--resume", cwd=tmp_path), "none", "plan.json")
    one_line_error(benchsuite("jobs", profile, "--resume", cwd=tmp_path), "--resume needs", "-o OUT")
    one_line_error(benchsuite("jobs", profile, "-o", "-", "--resume", cwd=tmp_path), "--resume needs")


def test_two_runs_in_one_folder_are_refused_and_stop_ends_the_first(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={"min_time_s": 30}))
    running = subprocess.Popen(command("jobs", profile, "-o", "out"), cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: (tmp_path / "out" / "attempts.jsonl").exists())
    for more in ([], ["--resume"]):
        second = benchsuite("jobs", profile, "-o", "out", *more, cwd=tmp_path)
        one_line_error(second, "out", "a run is in progress", str(running.pid), "benchsuite stop out")
    ended = benchsuite("stop", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "--resume" in ended.stderr
    assert running.wait(timeout=5) == 143
    assert statuses(tmp_path / "out") == {"job.J0": ["interrupted"]}
    nothing = benchsuite("stop", "out", cwd=tmp_path)
    assert (nothing.returncode, "no run is in progress" in nothing.stderr) == (0, True)
    one_line_error(benchsuite("stop", "nowhere", cwd=tmp_path), "nowhere", "no such folder")


def test_stop_never_signals_a_process_that_is_not_the_runs(tmp_path: Path) -> None:
    """The lock is held, but names a pid whose start time is another's: a reused pid."""
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        with lock.locked(tmp_path):
            told = json.loads((tmp_path / LOCK).read_text())
            (tmp_path / LOCK).write_text(json.dumps({**told, "pid": bystander.pid, "ticks": 1}))
            one_line_error(benchsuite("stop", str(tmp_path), cwd=tmp_path), str(bystander.pid), "stop it there")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_a_killed_run_left_running_is_found_by_its_mark_and_ended(tmp_path: Path) -> None:
    """A grandchild outlives the worker, which the kernel ends with its parent."""
    params = {"kind": "grandchild", "after_s": 0.1, "file": str(tmp_path / "seen.json")}
    profile = str(write_profile(tmp_path / "p.json", job={"params": params, "timeout_s": 90}))
    arguments = ["jobs", profile, "-o", "out", "--isolation", "none"]  # a group's leftovers any other run would end
    running = subprocess.Popen(command(*arguments), cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: (tmp_path / "seen.json").exists() and (tmp_path / "seen.json").read_text().endswith("}"))
    mark = json.loads((tmp_path / "seen.json").read_text())["environ"][MARK]
    wait_for(lambda: len(marked(mark)) == 2)
    running.kill()
    running.wait()
    wait_for(lambda: len(marked(mark)) == 1)
    profile_time = ["--", "--timeout-s", "3"]
    one_line_error(benchsuite(*arguments, "--resume", *profile_time, cwd=tmp_path), "timeout_s")
    again = subprocess.Popen(
        command(*arguments, "--resume"),
        cwd=tmp_path,
        env=environ(),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: [a.event for a in RunDir(tmp_path / "out").attempts()].count("start") == 2)
    assert not marked(mark)
    again.send_signal(signal.SIGTERM)
    _, stderr = again.communicate(timeout=20)
    assert "was left running and has been killed" in stderr
    assert statuses(tmp_path / "out")["job.J0"][0] == "interrupted"


def test_the_forecast_comes_from_the_profile_then_from_the_run() -> None:
    timed = Job(name="a", entry="faults:build", min_time_s=20, placement=Placement(devices="none"))
    counted = Job(
        name="b", entry="faults:build", min_time_s=5, max_time_s=50, max_count=9, placement=Placement(devices="none")
    )
    tasks = make_plan("p", [timed, counted], [], environ={}, repeats=2).tasks
    forecast = Forecast()
    assert forecast.bounds_s(tasks) == (2 * (10 + 20) + 2 * (10 + 5), 2 * (10 + 20) + 2 * (10 + 50))
    forecast.learn("b", 12.5)
    assert forecast.bounds_s(tasks[2:]) == (30 + 12.5, 30 + 12.5)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [((11, 11), "about 11 s"), ((20, 70), "20 to 70 s"), ((60, 300), "1 to 5 min"), ((3600, 14400), "1.0 to 4.0 h")],
)
def test_forecasts_in_words(bounds: tuple[float, float], words: str) -> None:
    assert in_words(bounds) == words
