"""A run goes on after any kind of end: whole waves, failures stand, every task has exactly one counted result."""

from __future__ import annotations

import gc
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import make_task
from support import (
    PROGRAMS,
    benchsuite,
    environ,
    in_process,
    one_line_error,
    start,
    statuses,
    wait_for,
    write_profile,
)

from benchsuite.commands import rerun
from benchsuite.describe import work
from benchsuite.describe.plan import make_plan
from benchsuite.describe.tasks import Job, Placement
from benchsuite.errors import ModelError
from benchsuite.host.machine import describe
from benchsuite.launch.forecast import Forecast, in_words
from benchsuite.records import Result
from benchsuite.report.stats.differences import trained_changes
from benchsuite.report.verify.check import RECORDS, check
from benchsuite.rundir import LOCK, RunDir, results
from benchsuite.worker.build import module_of


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped by a signal in its second of three jobs, the first of which failed."""
    folder = tmp_path_factory.mktemp("stopped")
    profile = write_profile(
        folder / "stop.json",
        fails={"params": {"kind": "raise", "after_s": 0.1}},
        slow={"params": {"file": str(folder / "seen.json")}, "min_time_s": 2},
        last={},
    )
    running = start("jobs", str(profile), "-o", "out", cwd=folder, stderr=-3)
    wait_for(lambda: (folder / "seen.json").exists())
    time.sleep(1.0)
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=120) == 143
    return folder


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """A copy of the stopped run, and the words that started it."""
    shutil.copytree(stopped_once, tmp_path, dirs_exist_ok=True)
    return tmp_path, ["jobs", str(tmp_path / "stop.json"), "-o", "out"]


def test_a_torn_line_takes_no_other_with_it(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    file = folder / "out" / "attempts.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    assert b'"fails.J0"' in lines[1]
    file.write_bytes(b"".join(lines[:1]) + lines[1][: len(lines[1]) // 2])  # as a full disk or a power cut leaves it
    done = benchsuite(*arguments, "--resume", cwd=folder)
    assert "3 tasks (1 of them in earlier invocations)" in done.stderr, done.stderr
    assert statuses(folder / "out")["fails.J0"] == ["failed"], "its result is there, so it is not done again"
    assert len([a for a in RunDir(folder / "out").attempts() if a.event == "end"]) == 4


def test_a_refused_resume_changes_nothing(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    before = {p: p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file() and p.name != LOCK}
    fence = ["--require-isolation", "--isolation", "none"]
    refused = benchsuite(*arguments, "--resume", "--repeat", "3", *fence, cwd=folder)
    one_line_error(refused, "--isolation none", "started with --isolation auto")
    run = json.loads((folder / "out" / "run.json").read_text())
    run["machines"][0]["host"] = "elsewhere"
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


def test_failures_stand_and_the_interrupted_are_done_again(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    assert statuses(folder / "out") == {"fails.J0": ["failed"], "slow.J0": ["interrupted"]}
    done = benchsuite(*arguments, "--resume", cwd=folder)
    assert done.returncode == 1
    assert "3 tasks (1 of them in earlier invocations): 0 passed, 1 failed, 0 not run, 2 too short" in done.stderr
    assert statuses(folder / "out") == {"fails.J0": ["failed"], "slow.J0": ["interrupted", "ok"], "last.J0": ["ok"]}
    run = RunDir(folder / "out").run()
    assert len(run.resumed) == 1
    assert "--resume" in run.resumed[0][1]
    again = benchsuite(*arguments, "--resume", cwd=folder)
    assert again.returncode == 1
    assert "3 tasks (3 of them in earlier invocations): 2 passed, 1 failed, 0 not run" in again.stderr
    assert "Nothing to do" in again.stderr and "Nothing to do" not in done.stderr
    assert len(statuses(folder / "out")["fails.J0"]) == 1


def test_logs_may_be_removed_before_a_run_goes_on(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    shutil.rmtree(folder / "out" / "logs")
    benchsuite(*arguments, "--resume", cwd=folder)
    assert statuses(folder / "out") == {"fails.J0": ["failed"], "slow.J0": ["interrupted", "ok"], "last.J0": ["ok"]}


def test_repeats_extend_a_run_and_cannot_shrink_it(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    done = benchsuite(*arguments, "--resume", "--repeat", "2", cwd=folder)
    assert "6 tasks (1 of them in earlier invocations): 0 passed, 2 failed, 0 not run, 4 too short" in done.stderr
    out = RunDir(folder / "out")
    assert [t.id for t in out.plan().tasks] == ["fails.J0", "slow.J0", "last.J0", "fails.J1", "slow.J1", "last.J1"]
    assert out.run().repeats == 2
    fewer = benchsuite(*arguments, "--resume", "--repeat", "1", cwd=folder)
    one_line_error(fewer, "out", "--repeat 1", "2 repeats already")
    alike = benchsuite(*arguments, "--resume", cwd=folder)
    assert "6 tasks (6 of them in earlier invocations)" in alike.stderr, "without --repeat, as many as are planned"


def test_another_profile_or_other_changes_are_refused(stopped: tuple[Path, list[str]]) -> None:
    folder, arguments = stopped
    changed = benchsuite(*arguments, "--resume", "--", "--items", "7", cwd=folder)
    one_line_error(changed, "out", "another profile or other changes", "params.items 1 -> 7")
    one_line_error(benchsuite(*arguments, "--resume", "--exclude", "last", cwd=folder), "last: not run")
    assert statuses(folder / "out") == {"fails.J0": ["failed"], "slow.J0": ["interrupted"]}


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={}))
    needs = "--resume needs the folder of a run: benchsuite jobs --resume OUT"
    one_line_error(in_process("jobs", profile, "-o", "none", "--resume", cwd=tmp_path), "none: no such folder", needs)
    one_line_error(in_process("jobs", "smoke", "--resume", cwd=tmp_path), "smoke: no such folder", needs)
    one_line_error(in_process("jobs", profile, "-o", "-", "--resume", cwd=tmp_path), needs)
    one_line_error(in_process("jobs", "--resume", cwd=tmp_path), needs)
    (tmp_path / "empty").mkdir()
    one_line_error(in_process("jobs", "--resume", "empty", cwd=tmp_path), "empty/plan.json", "no such file")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `my out`: one of two jobs of a user's own model, with a change, without isolation."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "own.py").write_text((PROGRAMS / "faults.py").read_text())
    write_profile(folder / "p.json", one={"entry": "own:build"}, other={"entry": "own:build"})
    arguments = ("--name", "one", "--isolation", "none", "--", "--items", "3")
    done = benchsuite("jobs", "p.json", "-o", "my out", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_resume_needs_the_folder_only(begun: Path, tmp_path: Path) -> None:
    """Neither the profile nor its folder is there: the record of the run has names, changes and isolation."""
    (begun / "p.json").rename(begun / "moved.json")
    done = benchsuite("jobs", "--resume", str(begun / "my out"), "--repeat", "2", cwd=tmp_path)
    (begun / "moved.json").rename(begun / "p.json")
    assert done.returncode == 0, done.stderr
    assert RunDir(begun / "my out").run().resumed[-1][1].endswith(f" jobs --resume '{begun / 'my out'}' --repeat 2")
    kept = [result for _, result in results(begun / "my out") if isinstance(result, Result)]
    assert sorted(result.task.id for result in kept) == ["one.J0", "one.J1"]
    assert {(r.task.job.params["items"], r.tenant.isolation) for r in kept} == {(3, "none")}


def test_options_given_again_agree_with_the_record(begun: Path) -> None:
    for same in (["--name", "one"], ["--isolation", "none"], ["--no-cgexec"], ["-o", "my out", "p.json"]):
        out = [] if "-o" in same else ["my out"]
        done = in_process("jobs", "--resume", *out, *same, "--dry-run", cwd=begun)
        assert (done.returncode, done.stderr) == (0, ""), same
    changes = in_process("jobs", "--resume", "my out", "--dry-run", "--", "--items", "3", cwd=begun)
    assert changes.returncode == 0, changes.stderr


@pytest.mark.parametrize(
    ("again", "parts"),
    [
        (["--name", "other"], ["one: not run", "other: added"]),
        (["--", "--items", "4"], ["params.items 3 -> 4"]),
        (["--isolation", "cgroup"], ["--isolation cgroup", "started with --isolation none"]),
        (["-d", "."], ["-d ", "has no data folder", "leave out -d"]),
    ],
)
def test_options_that_differ_from_the_record_are_refused(begun: Path, again: list[str], parts: list[str]) -> None:
    one_line_error(in_process("jobs", "--resume", "my out", "--dry-run", *again, cwd=begun), *parts)


def test_a_printed_command_can_be_pasted(begun: Path) -> None:
    """The shell splits the command of a full folder into the words that start a resume."""
    full = in_process("jobs", "p.json", "-o", "my out", cwd=begun).stderr
    line = next(line for line in full.splitlines() if "jobs --resume" in line)
    words = shlex.split(line[line.index("benchsuite jobs") :])
    assert words == ["benchsuite", "jobs", "--resume", "my out"]
    assert in_process(*words[1:], "--dry-run", cwd=begun).returncode == 0


def test_an_interrupted_run_prints_the_command_that_continues_it(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", slow={"min_time_s": 20})
    for end in ("a signal", "stop"):
        out = f"out of {end}"
        running = start("jobs", "p.json", "-o", out, cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True)
        wait_for(lambda out=out: (tmp_path / out / "attempts.jsonl").exists())
        printed = ""
        if end == "stop":
            printed = in_process("stop", out, cwd=tmp_path).stderr
        else:
            running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=120)
        assert running.returncode == (143 if end == "stop" else 130)
        for text in filter(None, (stderr, printed)):
            assert f"jobs --resume '{out}'\n" in text


def test_the_forecast_comes_from_the_profile_then_from_the_run() -> None:
    timed = Job(name="a", entry="faults:build", warm_up_s=3, min_time_s=20, placement=Placement(devices="none"))
    counted = Job(
        name="b", entry="faults:build", min_time_s=5, max_time_s=50, max_count=9, placement=Placement(devices="none")
    )
    tasks = make_plan("p", [timed, counted], [], environ={}, repeats=2).tasks
    forecast = Forecast()
    assert forecast.bounds_s(tasks) == (2 * (13 + 20) + 2 * (12 + 5), 2 * (13 + 20) + 2 * (12 + 50))
    forecast.learn("b", 12.5)
    assert forecast.bounds_s(tasks[2:]) == (33 + 12.5, 33 + 12.5)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [((11, 11), "about 11 s"), ((20, 70), "20 to 70 s"), ((60, 300), "1 to 5 min"), ((3600, 14400), "1.0 to 4.0 h")],
)
def test_forecasts_in_words(bounds: tuple[float, float], words: str) -> None:
    assert in_words(bounds) == words


def test_a_models_file_that_changes_makes_another_workload(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(begun, tmp_path / "changed"))
    original = next(result for _, result in results(folder / "my out") if isinstance(result, Result))
    with (folder / "own.py").open("a") as file:
        file.write("# changed\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])

    again = rerun._again(original, folder / "one.json", describe({}), (), False)
    (change,) = again.rerun_of.changes if again.rerun_of else ()
    assert change.startswith("the file of own:build, sha256 ")
    assert f"changed: {change}" in capsys.readouterr().err
    settings = [work.settings(task.job, task.entry_sha256) for task in (original.task, again)]
    assert work.workload(settings[0]) != work.workload(settings[1])
    assert len(trained_changes(settings[1], settings[0])) == 1

    (said,) = (finding for finding in check(folder / "my out")[RECORDS] if finding.about == "model")
    assert said.text.startswith("own:build: its file is another one here")
    with pytest.raises(ModelError, match=r"own.py is not the file with which the run was planned"):
        module_of(original.task)
    sys.modules.pop("own", None)


@pytest.mark.parametrize("own", [None, (900, 9, 9)])
def test_a_models_import_collects_no_garbage_and_keeps_the_settings_that_it_makes(
    own: tuple[int, int, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"import gc\nDURING = gc.get_threshold()[0]\n{f'gc.set_threshold(*{own})' if own else ''}\n"
    text += "class Params: pass\ndef build(params): pass\n"
    (tmp_path / "collects.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    before = gc.get_threshold()
    try:
        module = module_of(make_task(job=Job(name="a", entry="collects:build", placement=Placement(devices="none"))))
        assert module.DURING == 0
        assert gc.get_threshold() == (own or before)
    finally:
        gc.set_threshold(*before)
        sys.modules.pop("collects", None)
