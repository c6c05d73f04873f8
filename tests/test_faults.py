"""Whatever becomes of a child, its task leaves exactly one result, with the slices that it finished."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psutil
import pytest
from support import benchsuite, environ, read_results, write_profile

from benchsuite.rundir import RunDir


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One run with every fault, then a job that is well."""
    folder = tmp_path_factory.mktemp("faults")
    slow = {"max_time_s": 60, "min_time_s": 50}
    late = {"max_time_s": 60, "min_time_s": 3, "timeout_s": 3}
    profile = write_profile(
        folder / "faults.json",
        raises={"params": {"kind": "raise"}, **slow},
        oom={"params": {"kind": "oom"}, **slow},
        silent={"params": {"kind": "silent"}, **slow},
        exits={"params": {"kind": "exit"}, **slow},
        sigkill={"params": {"kind": "sigkill"}, **slow},
        segv={"params": {"kind": "segv"}, **slow},
        hangs={"params": {"kind": "hang"}, **late},
        grandchild={"params": {"kind": "grandchild", "file": str(folder / "grandchild.json")}, **late},
        stubborn={"params": {"kind": "stubborn"}, **late},
        huge={"params": {"kind": "huge"}, **slow},
        scribbles={"params": {"kind": "scribbles"}, **slow},
        parses={"entry": "parses:build"},
        well={},
    )
    done = benchsuite("jobs", str(profile), "-o", "out", cwd=folder)
    return folder, done


EXPECTED = {
    "raises": ("failed", "ValueError", "a nap too far"),
    "oom": ("oom", "RuntimeError", "CUDA out of memory"),
    "silent": ("failed", "silent", "exited with 0 before its end"),
    "exits": ("failed", "exit", "exited with status 3"),
    "sigkill": ("killed", "SIGKILL", "killed by SIGKILL"),
    "segv": ("killed", "SIGSEGV", "killed by SIGSEGV"),
    "hangs": ("timeout", "timeout", "not ended within 3 s"),
    "grandchild": ("timeout", "timeout", "not ended within 3 s"),
    "stubborn": ("timeout", "timeout", "not ended within 3 s"),
    "huge": ("failed", "model", "a step returned 2**1328 or more for the items that it took"),
    "scribbles": ("failed", "events", "its event file: line "),
}


@pytest.mark.parametrize("job", EXPECTED)
def test_each_fault_leaves_one_failure_with_its_slices(job: str, faults: tuple[Path, object]) -> None:
    folder, _ = faults
    result = read_results(folder / "out")[job]
    status, kind, message = EXPECTED[job]
    assert result.status == status
    assert result.error
    assert result.error.kind == kind
    assert message in result.error.message
    slices = result.measurement.streams[0].slices
    assert len(slices) >= 2, "two slices of half a second fit into the 1.2 s before the fault"
    assert all(0.5 <= s.elapsed_s < 1.0 and s.items == s.steps > 0 for s in slices)
    names = [p.name for p in (folder / "out").glob(f"faults.{job}.J0.*.json")]
    assert len(names) == 1
    assert ".FAIL." in names[0]


def test_a_raised_error_keeps_its_traceback(faults: tuple[Path, object]) -> None:
    error = read_results(faults[0] / "out")["raises"].error
    assert error
    assert error.traceback
    assert "faults.py" in error.traceback


def test_a_command_line_that_a_model_parses_is_its_own_and_its_last_words_are_shown(
    faults: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = faults
    error = read_results(folder / "out")["parses"].error
    assert error
    last = "last line on stderr: usage of parses: error: no data is here"
    assert error.message == f"the model ended the process by sys.exit(2); {last}"
    assert last in done.stderr


def test_the_run_goes_on_and_says_so(faults: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = faults
    assert done.returncode == 1
    assert "raises on CPU, repeat 0: failed ValueError: a nap too far; log: out/logs/raises.J0" in done.stderr
    assert "13 tasks: 0 passed, 12 failed, 0 not run, 1 too short for a number" in done.stderr
    assert "benchsuite report out" in done.stderr
    well = read_results(folder / "out")["well"]
    assert well.status == "ok"
    assert well.error is None
    assert well.exit_code == 0


def test_every_start_has_an_end_with_its_file(faults: tuple[Path, object]) -> None:
    folder, _ = faults
    lines = RunDir(folder / "out").attempts()
    started = [a.task for a in lines if a.event == "start"]
    ended = {a.task: a for a in lines if a.event == "end"}
    assert started == [t.id for t in RunDir(folder / "out").plan().tasks]
    assert list(ended) == started
    assert all((folder / "out" / (a.result or "?")).is_file() for a in ended.values())


def test_nothing_is_left_running(faults: tuple[Path, object]) -> None:
    folder, _ = faults
    session = json.loads((folder / "grandchild.json").read_text())
    mark = session["environ"]["BENCHSUITE_TREE"]
    assert [p for p in psutil.process_iter() if _environ(p).get("BENCHSUITE_TREE") == mark] == []


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def test_output_is_drained_and_decoded_whatever_it_is(tmp_path: Path) -> None:
    """A child prints 5 MB to each stream and bytes that are not UTF-8, under a plain C locale."""
    locale = environ(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    profile = write_profile(
        tmp_path / "loud.json", noisy={"params": {"kind": "noisy"}}, bytes={"params": {"kind": "bytes"}}
    )
    done = benchsuite("jobs", str(profile), "-o", "out", cwd=tmp_path, env=locale)
    assert done.returncode == 0, done.stderr
    assert {r.status for r in read_results(tmp_path / "out").values()} == {"ok"}
    logs = tmp_path / "out" / "logs"
    assert (logs / "noisy.J0.a1.out").stat().st_size == 5_000_000
    assert (logs / "noisy.J0.a1.err").stat().st_size == 5_000_000
    assert b"\xff\xfe \xe2\x96\x88 50%\r" in (logs / "bytes.J0.a1.out").read_bytes()


def test_undecodable_last_lines_are_replaced_in_the_error(tmp_path: Path) -> None:
    log = tmp_path / "err"
    log.write_bytes(b"one\n\xff two\n")
    from benchsuite.launch.process import last_lines

    assert last_lines(log) == "one\n\N{REPLACEMENT CHARACTER} two"
