"""Result files: named, whole or not there at all, never over another."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest
from conftest import make_result, make_task

from benchsuite import default_out, rundir
from benchsuite.describe.tasks import Job
from benchsuite.errors import OutputError, ResultError
from benchsuite.events import LONGEST_LINE_BYTES, EventReader
from benchsuite.records import Result
from benchsuite.rundir import RunDir
from benchsuite.schema import from_json, to_json

WHEN = datetime(2020, 1, 6, 16, 0, 0, 123456, tzinfo=timezone.utc)


def test_names_are_milaruns(tmp_path: Path) -> None:
    task = make_task("vae", 0, 1, profile="standard")
    assert rundir.write_result(tmp_path, make_result(task=task), WHEN).name == (
        "standard.vae.J0.1.20200106-160000-123456.json"
    )
    failed = rundir.write_result(tmp_path, make_result(task=task, status="killed"), WHEN)
    assert failed.name == "standard.vae.J0.1.FAIL.20200106-160000-123456.json"
    for status in ("interrupted", "skipped"):
        assert ".FAIL." not in rundir.write_result(tmp_path, make_result(task=task, status=status), WHEN).name


def test_a_taken_name_advances_the_microseconds_and_replaces_nothing(tmp_path: Path) -> None:
    """Five results of one task are written at the same time of a frozen clock."""
    paths = [rundir.write_result(tmp_path, make_result(rates=[float(i)]), WHEN) for i in range(1, 6)]
    assert [p.name[-11:-5] for p in paths] == ["123456", "123457", "123458", "123459", "123460"]
    kept = [from_json(p.read_bytes(), Result).measurement.streams[0].slices[0].items for p in paths]
    assert kept == [round(i * 0.5) for i in range(1, 6)]


def test_eight_writers_at_once_leave_eight_files(tmp_path: Path) -> None:
    script = (
        "import os, sys; from datetime import datetime, timezone; from pathlib import Path\n"
        "from benchsuite.records import Result; from benchsuite.rundir import write_result\n"
        "from benchsuite.schema import from_json\n"
        "result, at = from_json(Path(sys.argv[1]).read_bytes(), Result), datetime(2020, 1, 6, tzinfo=timezone.utc)\n"
        "for _ in range(8):\n"
        "    if not os.fork():\n"
        "        for _ in range(20): write_result(Path(sys.argv[2]), result, at)\n"
        "        os._exit(0)\n"
        "sys.exit(str([status for _ in range(8) if (status := os.wait()[1])]).strip('[]') or None)"
    )
    (tmp_path / "one").write_bytes(to_json(make_result()))
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", script, str(tmp_path / "one"), str(tmp_path / "out")]
    subprocess.run(command, check=True)
    found = list(rundir.results(tmp_path / "out"))
    assert len(found) == 160
    assert all(isinstance(result, Result) for _, result in found)


REFUSALS = ("EPERM", "EACCES", "EXDEV", "EINVAL", "ENOTSUP", "ENOSYS", "EMLINK")


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_file_system_without_hard_links_is_served_too(
    refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: object, target: object) -> None:
        raise OSError(getattr(errno, refusal), os.strerror(getattr(errno, refusal)))

    monkeypatch.setattr(os, "link", no_links)
    paths = [rundir.write_result(tmp_path, make_result(), WHEN) for _ in range(2)]
    assert [p.name[-11:-5] for p in paths] == ["123456", "123457"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_a_name_that_is_reserved_but_cannot_be_given_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: object, target: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    def no_rename(source: object, target: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(Path, "replace", no_rename)
    with pytest.raises(OSError, match="Input/output error"):
        rundir.write_result(tmp_path, make_result(), WHEN)
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_nfs_makes_twice_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has made the link, its answer is lost, and the repeated call finds the name taken."""

    def twice(source: Path, target: Path, link: Callable[..., None] = os.link) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    path = rundir.write_result(tmp_path, make_result(), WHEN)
    assert path.name[-11:-5] == "123456"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("refusal", "served"), [(errno.EINVAL, True), (errno.ENOSYS, True), (errno.EIO, False)])
def test_a_file_system_that_cannot_flush_is_served_too(
    refusal: int, served: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_flush(fd: int) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "fsync", no_flush)
    with contextlib.nullcontext() if served else pytest.raises(OSError, match="Input/output error"):
        rundir.write_result(tmp_path, make_result(), WHEN)
    assert len(list(tmp_path.iterdir())) == served


def test_a_full_disk_leaves_neither_half_a_file_nor_a_lost_old_one(tmp_path: Path) -> None:
    """A limit on the size of files (`ulimit -f`) stands for the full disk."""
    old = rundir.write_result(tmp_path, make_result(rates=[1.0]), WHEN)
    before = old.read_bytes()
    big = make_result(rates=[100.0] * 400)
    assert len(to_json(big)) > 4096

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    script = (
        "import sys; from pathlib import Path; from datetime import datetime, timezone; "
        "from benchsuite.records import Result; from benchsuite.rundir import write_result; "
        "from benchsuite.schema import from_json; "
        "write_result(Path(sys.argv[2]), from_json(Path(sys.argv[1]).read_bytes(), Result), "
        "datetime(2020, 1, 6, 16, 0, 0, 123456, tzinfo=timezone.utc))"
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "big").write_bytes(to_json(big))
    command = [sys.executable, "-c", script, str(tmp_path / "src" / "big"), str(tmp_path)]
    done = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert old.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([old.name, "src"])


def test_job_and_profile_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    task = make_task("vae", profile="../../a b:c")
    task = msgspec.structs.replace(task, job=Job(name="../x/é", model="vae"))
    path = rundir.write_result(tmp_path / ".", make_result(task=task), WHEN)
    assert path.parent == tmp_path
    assert not set(path.name) & set("/: é")
    assert from_json(path.read_bytes(), Result).identity.job == "../x/é"


def test_half_a_line_in_attempts_is_passed_over(tmp_path: Path) -> None:
    folder = rundir.RunDir(tmp_path)
    folder.note_attempt(rundir.Attempt(event="start", task="a", attempt=1, at="now"))
    with (tmp_path / "attempts.jsonl").open("a") as file:
        file.write('{"event": "end", "ta')
    assert [a.event for a in folder.attempts()] == ["start"]


def test_walking_results_names_each_bad_file_and_passes_over_the_runs_own(tmp_path: Path) -> None:
    good = rundir.write_result(tmp_path, make_result(), WHEN)
    text = good.read_bytes()
    content = json.loads(text)
    bad: dict[str, tuple[bytes, str]] = {
        "empty": (b"", "the file is empty"),
        "cut": (text[: len(text) // 2], "not valid JSON"),
        "list": (b"[]", "not a result"),
        "latin": (b'{"kind": "r\xe4sult"}', "not valid JSON"),
        "newer": (json.dumps({**content, "schema": 99}).encode(), "newer benchsuite"),
        "schemaless": (json.dumps({k: v for k, v in content.items() if k != "schema"}).encode(), "no schema number"),
        "typed": (json.dumps({**content, "status": "fine"}).encode(), "not a valid result"),
    }
    for name, (data, _) in bad.items():
        (tmp_path / f"{name}.json").write_bytes(data)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    bad["gone"] = (b"", "no such file")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "vae.J0.a1.task.json").write_text("{}")
    for name in ("run.json", "plan.json", ".half.tmp.json", "notes.txt"):
        (tmp_path / name).write_text("{}")
    found = dict(rundir.results(tmp_path))
    assert set(found) == {good, *(tmp_path / f"{name}.json" for name in bad)}
    assert isinstance(found.pop(good), Result)
    for name, (_, reason) in bad.items():
        assert reason in str(found[tmp_path / f"{name}.json"]), name


def test_no_run_is_a_message_that_helps(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="benchsuite jobs smoke"):
        default_out.newest_run({"BENCHSUITE_OUT": str(tmp_path)})


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(OutputError, match="not empty"):
        rundir.RunDir.create(tmp_path, None, None)  # type: ignore[arg-type]


SLICE = '{"event":"slice","n":0,"origin_s":%s,"slice":[%s],"loss":null}'


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"event":"sl\xce"}', "(?i)utf-8"),
        (b"\xff", "malformed"),
        (b"", "truncated"),
        (b"\x00" * 4096, "malformed"),
        (b'{"event":"gone"}', "gone"),
        (b'{"event":"slice","x":' + b"[" * 99_999 + b"]" * 99_999 + b"}", "nested too deeply"),
        (b"x" * LONGEST_LINE_BYTES, "longer than"),
        ((SLICE % ("1.0", "0.0,0.5,1,null")).encode(), "null"),
        ((SLICE % ("1.0", "0.0,0.5,1,1" + "0" * 400)).encode(), "integer"),
        ((SLICE % ("1.0", "0.0,0.5,1,1e300")).encode(), "int"),
        ((SLICE % ("1.0", "0.0,0.5,1,-5")).encode(), "-5 items"),
        ((SLICE % ("1.0", "0.0,0.5,0,1")).encode(), "0 steps"),
        ((SLICE % ("1.0", "0.5,0.0,1,1")).encode(), "from 0.5 s to 0 s"),
        ((SLICE % ("1.0", "0.0,1e300,1,1")).encode(), "1e\\+300 s"),
        ((SLICE % ("1e300", "0.0,0.5,1,1")).encode(), "time 1e\\+300 s"),
        ((SLICE % ("1e999", "0.0,0.5,1,1")).encode(), "out of range"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_line_that_is_no_event_is_named_and_nothing_after_it_is_read(
    line: bytes, why: str, tmp_path: Path
) -> None:
    file, good = tmp_path / "events.jsonl", (SLICE % ("1.0", "0.0,0.5,1,1")).encode()
    file.write_bytes(good + b"\n" + line + b"\n" + good + b"\n")
    reader = EventReader(file)
    assert len(reader.new()) == 1
    assert reader.damaged
    assert reader.damaged.startswith("line 2 is ")
    assert re.search(why, reader.damaged)
    assert reader.new() == []


def test_many_events_are_read_at_once_and_half_a_line_waits(tmp_path: Path) -> None:
    file, good = tmp_path / "events.jsonl", (SLICE % ("1.0", "0.0,0.5,1,1")).encode() + b"\n"
    many = 2 * LONGEST_LINE_BYTES // len(good)
    file.write_bytes(good * many + good[:20])
    reader = EventReader(file)
    assert len(reader.new()) == many
    with file.open("ab") as more:
        more.write(good[20:])
    assert (len(reader.new()), reader.damaged) == (1, None)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("run.json", "plan.json", "attempts.jsonl"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(ResultError, match="not a regular file"):
        RunDir(tmp_path).run()
    assert RunDir(tmp_path).attempts() == []
