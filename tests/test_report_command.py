"""`benchsuite report` and `benchsuite summary` from the front door: output, exit status, messages."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from conftest import Call, keep_results, keep_run, make_result, make_run, make_task
from outputs import line_of, unwrapped

from benchsuite.report.read.summary_file import read_summary
from benchsuite.rundir import LOCK


def row(out: str, job: str) -> list[str]:
    return next(line for line in out.splitlines() if line.startswith(f"{job} ")).split()


def test_one_success(call: Call, tmp_path: Path) -> None:
    """One value has no standard deviation: std% is n/a, and the score is not lowered for it."""
    keep_results(tmp_path, [make_result(rates=[50] * 30)])
    code, out, err = call("report", "--full", tmp_path, "--compare", tmp_path)
    assert (code, err) == (0, "")
    assert row(out, "vae")[:7] == ["vae", "1", "0", "50.00", "image/s", "n/a", "50.00"]
    short = f"...{tmp_path.name[-21:]}" if len(tmp_path.name) > 24 else tmp_path.name
    assert unwrapped(out).startswith(
        f"{tmp_path.name} (1 GPU) is 1.00x (SAME) {short} as a machine and a GPU; no failures. "
        f"Against {tmp_path}: per GPU 1.00x, whole machine 1.00x (1 GPU against 1). Both SAME (identical content)."
    )


def test_all_failed_is_exit_status_1(call: Call, tmp_path: Path) -> None:
    """The report has a row and a failure rate, but no throughput."""
    keep_run(tmp_path / "run", [make_result(gpu=gpu, status="failed", rates=()) for gpu in range(3)])
    code, out, err = call("report", "--full", tmp_path / "run")
    assert (code, err) == (1, "")
    assert out.splitlines()[0] == "vae FAILS in 3 of 3 tasks on 3x Test; 3 of 3 tasks failed; no score."
    assert line_of(out, "vae  ")[:4] == ["vae", "3", "3", "n/a"]
    assert "100.0 %   FAIL" in out


def test_failures_and_rates_of_zero(call: Call, tmp_path: Path) -> None:
    """First the rate of `x` is 0, then that of all jobs: the geometric mean has no logarithm of 0."""
    idle = make_result("x", rates=[0] * 30)
    keep_results(tmp_path / "a", [make_result("a"), make_result("c", rates=[26] * 30), idle])
    code, out, err = call("report", "--full", tmp_path / "a")
    assert (code, err) == (0, "")
    assert "a (1 GPU) has no score: perf_adj of x is 0; no failures." in out
    assert "--partial scores the other jobs" in out
    keep_results(tmp_path / "b", [idle])
    code, out, err = call("report", "--full", tmp_path / "b", "--compare", tmp_path / "b")
    assert (code, err) == (0, "")
    assert "has no score: perf_adj of x is 0" in out
    assert "No ratio" in out
    assert "no weighed job can be compared" in out
    assert "--partial" not in out


def test_a_missing_job_marks_the_score(call: Call, tmp_path: Path) -> None:
    """`b` has a weight and no result: there is no score, and only a part on request. Other weights are complete."""
    keep_results(tmp_path / "run", [make_result("a", task=make_task("a", profile="s"))])
    weights = tmp_path / "w.json"
    weights.write_text('{"s.a": {"weight": 1}, "s.b": {"weight": 3}}')
    code, out, _ = call("report", tmp_path / "run", "--weights", weights)
    assert code == 0
    assert "has no score: not in this run: s.b; no failures." in out
    assert "Score n/a INCOMPLETE no score" in unwrapped(out)
    assert "not in this run: s.b; 25 % of the weight has numbers; --partial scores the other jobs" in out
    part = call("report", tmp_path / "run", "--weights", weights, "--partial")[1]
    assert "score 100.0 (PROVISIONAL) over 1 of 2 jobs only; no failures." in part
    assert "The score is over 1 of 2 jobs only: not in this run: s.b." in part
    assert "100.0   INCOMPLETE   PROVISIONAL   over 1 of 2 jobs only" in part
    weights.write_text('{"a": 2}')
    assert "INCOMPLETE" not in call("report", tmp_path / "run", "--weights", weights)[1]


def test_a_mess_is_reported_on(call: Call, tmp_path: Path) -> None:
    """Empty, cut, foreign and undecodable files are listed, and the good files are used."""
    good = keep_results(tmp_path, [make_result(gpu=gpu) for gpu in range(3)])
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "cut.json").write_bytes(good[0].read_bytes()[:300])
    (tmp_path / "list.json").write_bytes(b"[]")
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe")
    (tmp_path / "left.json.tmp").write_bytes(b"{")
    code, out, err = call("report", "--full", tmp_path)
    assert (code, err) == (0, "")
    assert row(out, "vae")[:3] == ["vae", "3", "0"]
    assert all(name in out for name in ("empty.json", "cut.json", "list.json", "latin.json"))
    assert "4 files could not be used" in out


def test_only_bad_files_is_exit_status_1(call: Call, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"")
    code, out, _ = call("report", tmp_path)
    assert code == 1
    assert "the file is empty" in out


@pytest.mark.parametrize("command", ["report", "summary"])
def test_bad_input_is_one_line_and_exit_status_2(call: Call, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.json").write_text("[]")
    for path, expected in (
        (tmp_path / "empty", "no results in this folder"),
        (tmp_path / "none", "no such folder"),
        (tmp_path / "list.json", "not a summary of benchsuite"),
    ):
        code, out, err = call(command, path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert expected in err


def test_the_json_of_a_report_is_not_read_and_the_remedy_is_a_summary(call: Call, tmp_path: Path) -> None:
    keep_results(tmp_path / "run", [make_result()])
    for name, options in (("report.json", ()), ("systems.json", ("--systems",))):
        assert call("report", *options, tmp_path / "run", "--json", tmp_path / name)[0] == 0
        code, _, err = call("report", tmp_path / name)
        assert (code, err.count("\n")) == (2, 1)
        assert "benchsuite summary OUT -o FILE" in err


def test_bad_weights_are_exit_status_2(call: Call, tmp_path: Path) -> None:
    keep_results(tmp_path / "run", [make_result()])
    (tmp_path / "w.json").write_text('{"vae": "8"}')
    code, out, err = call("report", tmp_path / "run", "--weights", tmp_path / "w.json")
    assert (code, out) == (2, "")
    assert "w.json: vae: the weight must be a number, found '8'" in err


def test_the_newest_run_is_the_default(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHSUITE_OUT", str(tmp_path))
    assert call("report")[0] == 2
    keep_run(tmp_path / "z-old", [make_result("old")])
    later = msgspec.structs.replace(make_run(), created="2026-02-01T00:00:00+00:00")
    keep_run(tmp_path / "a-new", [make_result("new")], run=later)
    assert str(tmp_path / "a-new") in unwrapped(call("report")[1]).replace(" ", "")
    assert json.loads(call("summary")[1])["source"] == "a-new"


def test_a_summary_stands_for_its_folder(call: Call, tmp_path: Path) -> None:
    folder, file = tmp_path / "run", tmp_path / "s.json"
    results = [make_result(gpu=gpu, repeat=r, rates=[100 + 2 * r] * 30) for r in range(3) for gpu in range(2)]
    keep_run(folder, [*results, make_result("x", status="killed", rates=())])
    assert call("summary", folder, "-o", file)[0] == 0
    assert read_summary(file).jobs[0].perf == 102.0
    from_folder, from_file = (
        unwrapped(call("report", "--full", of)[1]).replace(str(of), "IT") for of in (folder, file)
    )
    logs = " All that the tasks printed: IT/logs/TASK.aATTEMPT.out and .err"
    assert from_folder.replace(logs, "") == from_file
    assert logs in from_folder
    (folder / "logs").rmdir()
    assert "All that the tasks printed" not in call("report", "--full", folder)[1]
    against = call("report", folder, "--compare", file)[1]
    assert (
        f"No ratio over all jobs to {file}: this run has no score; the baseline: x fails in 1 of 1 task."
        in unwrapped(against)
    )


def test_a_summary_is_printed_and_overwrites_nothing(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result()])
    printed = call("summary", tmp_path / "run")[1]
    assert (json.loads(printed)["kind"], json.loads(printed)["schema"]) == ("summary", 4)
    assert call("summary", tmp_path / "run", "-o", "-")[1] == printed
    (tmp_path / "s.json").write_text("mine")
    code, out, err = call("summary", tmp_path / "run", "-o", tmp_path / "s.json")
    assert (code, out) == (2, "")
    assert "exists already" in err
    assert (tmp_path / "s.json").read_text() == "mine"


def test_a_summary_in_the_run_folder_is_no_bad_file(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result()])
    assert call("summary", tmp_path / "run", "-o", tmp_path / "run" / "s.json")[0] == 0
    assert "cannot be used" not in call("report", tmp_path / "run")[1]


def test_names_that_look_like_markup_are_shown_as_they_are(call: Call, tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result("[bold]a[/bold]:smile:")])
    assert "[bold]a[/bold]:smile:" in call("report", tmp_path)[1]


def test_an_output_that_cannot_write_a_sign_does_not_stop_it(tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(repeat=r) for r in range(3)])
    environ = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-W", "error", "-m", "benchsuite", "report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, env=environ, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"100.0" in done.stdout


def test_a_run_in_progress_has_exit_status_0_with_a_figure_and_1_without(call: Call, tmp_path: Path) -> None:
    tasks = [make_task(gpu=gpu) for gpu in range(2)]
    keep_run(tmp_path / "some", [make_result()], tasks)
    keep_run(tmp_path / "none", [], tasks)
    for name, status in (("some", 0), ("none", 1)):
        with (tmp_path / name / LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            code, out, err = call("report", tmp_path / name)
            assert (code, err) == (status, "")
            assert "UNFINISHED" in out
            kept = json.loads(call("summary", tmp_path / name)[1])
        (tmp_path / "kept.json").write_text(json.dumps(kept))
        assert "UNFINISHED" in call("report", tmp_path / "kept.json")[1]
        assert "\nContinue: " in call("report", tmp_path / name)[1]


def test_a_printed_summary_does_not_steer_the_terminal(call: Call, tmp_path: Path) -> None:
    name = "\x1b[2J\x9b31m\u202e\U000e0001\x7fé\n"
    keep_results(tmp_path, [make_result(name)])
    printed = call("summary", tmp_path)[1]
    assert all(c.isprintable() for c in printed.replace("\n", ""))
    assert json.loads(printed)["jobs"][0]["name"] == name
    assert "é" in printed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["report", "summary"])
def test_a_full_disk_is_one_line(tmp_path: Path, command: str) -> None:
    keep_results(tmp_path, [make_result()])
    call = [sys.executable, "-W", "error", "-m", "benchsuite", command, str(tmp_path)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "benchsuite: output: no space left on device\n")


@pytest.mark.parametrize("command", ["report", "summary"])
def test_help_is_light(command: str) -> None:
    code = (
        "import sys; from benchsuite.cli import main\n"
        f"try: main(['{command}', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'pandas', 'scipy', 'torch', 'rich', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
