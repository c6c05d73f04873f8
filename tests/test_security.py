"""The files of a stranger do nothing beyond what they are read for, and end or change nothing of the user's."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from conftest import keep_run, make_gpu, make_result, make_run, make_task
from support import in_process, one_line_error

from benchsuite.doctor.gpus import _ASK_TORCH
from benchsuite.errors import ModelError
from benchsuite.host.cuda_order import _PROGRAM
from benchsuite.host.kernel_files import started_ticks
from benchsuite.launch import lock, process
from benchsuite.launch.lock import Holder
from benchsuite.launch.resume import _end_leftovers
from benchsuite.measurement import read_boot_id, read_host
from benchsuite.records import Failure
from benchsuite.rundir import LOCK, Attempt, RunDir, write_result

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
EVIL = f"=HYPERLINK(1)|<script>alert(1)</script>{ESCAPE}\r\n`rm -rf ~`$(id)../../../../tmp/x"


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user's that has nothing to do with benchsuite."""
    with subprocess.Popen(SLEEP) as running:
        yield running
        assert running.poll() is None, "it was ended"
        running.kill()


def test_a_lock_that_names_another_process_ends_nothing(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    """Whoever can write the folder can hold its lock, and write any process into it."""
    named = Holder(host=read_host(), boot_id=read_boot_id(), pid=bystander.pid, ticks=started_ticks(bystander.pid))
    with lock.locked(tmp_path):
        (tmp_path / LOCK).write_bytes(msgspec.json.encode(named))
        one_line_error(in_process("stop", str(tmp_path), cwd=tmp_path), f"process {bystander.pid}")


def test_a_lock_names_its_holder_who_has_it_open(tmp_path: Path) -> None:
    with lock.locked(tmp_path):
        holder = lock.holder(tmp_path)
        assert holder
        found = holder.process(tmp_path)
        assert found and found.pid == os.getpid()


def test_a_resume_ends_no_process_without_the_mark_of_the_run(bystander: subprocess.Popen[bytes]) -> None:
    line = Attempt(
        event="start", task="vae.J0", attempt=1, at="", boot_id=read_boot_id(), mark="a mark",
        pid=bystander.pid, ticks=started_ticks(bystander.pid),
    )  # fmt: skip
    assert _end_leftovers(line) == [
        f"vae.J0: process {bystander.pid} is recorded but has no mark of the run; it runs on"
    ]


def test_a_resume_ends_what_has_the_mark(tmp_path: Path) -> None:
    tree = process.start(SLEEP, environ=os.environ, mark="m.1.2", out=tmp_path / "out", err=tmp_path / "err")
    line = Attempt(
        event="start", task="vae.J0", attempt=1, at="", boot_id=read_boot_id(), mark="m.1.2",
        pid=tree.pid, ticks=tree.ticks,
    )  # fmt: skip
    assert _end_leftovers(line) == [f"vae.J0: process {tree.pid} was left running and has been killed"]
    assert tree.process.wait(10) == -9


@pytest.mark.parametrize("name", ["attempts.jsonl", LOCK])
def test_a_link_in_a_run_folder_leads_to_no_file_of_the_users(name: str, tmp_path: Path) -> None:
    victim = tmp_path / "bashrc"
    victim.write_text("mine\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(victim)
    rundir = RunDir(tmp_path / "run")
    with pytest.raises(Exception, match="it is a symbolic link"), lock.locked(rundir.path):
        rundir.note_attempt(Attempt(event="start", task="vae.J0", attempt=1, at=""))
    assert victim.read_text() == "mine\n"


def test_a_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine\n")
    (tmp_path / "out").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="it is a symbolic link"):
        process.start(["echo", "x"], environ=os.environ, mark="m", out=tmp_path / "out", err=tmp_path / "err")
    assert (tmp_path / "victim").read_text() == "mine\n"


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "..", ".", "-rf", "a/../../b", "\0", EVIL])
def test_no_name_leads_out_of_the_run_folder(name: str, tmp_path: Path) -> None:
    task = make_task(name, profile=name)
    rundir = RunDir(tmp_path)
    result = write_result(tmp_path, make_result(task=task), make_run_time())
    for path in (result, rundir.log(task, 1, "out"), rundir.checkpoints(task, 1)):
        assert path.resolve().is_relative_to(tmp_path)
        assert path.name.isprintable() and not path.name.startswith("-")


def make_run_time() -> object:
    from datetime import datetime, timezone

    return datetime(2026, 1, 5, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a stranger, whose every name and message is an attack."""
    folder = tmp_path_factory.mktemp("stranger") / "run"
    task = msgspec.structs.replace(make_task(EVIL), gpus=(make_gpu(0, EVIL),))
    failed = make_task(f"{EVIL}2")
    run = make_run()
    machine = msgspec.structs.replace(run.machine, host=EVIL, gpus=(make_gpu(0, EVIL),), packages={EVIL: EVIL})
    run = msgspec.structs.replace(run, machines=(machine,), command=("jobs", EVIL))
    error = Failure(kind="x", message=EVIL, traceback=f"{EVIL}\n{EVIL}")
    keep_run(
        folder, [make_result(task=task, host=EVIL), make_result(task=failed, status="failed", error=error)], run=run
    )
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["report", "--full"],
        ["report", "--md", "-"],
        ["report", "--csv", "-"],
        ["report", "--json", "-"],
        ["report", "--compare", "h200"],
        ["status"],
        ["summary"],
        ["verify", "--all"],
        ["health"],
        ["health", "--all"],
        ["health", "--json"],
        ["health", "--plain"],
        ["rerun"],
        ["jobs", "--resume"],
    ],
)
def test_the_files_of_a_stranger_put_no_control_character_on_the_terminal(
    words: list[str], stranger: Path, tmp_path: Path
) -> None:
    command, *rest = words
    done = in_process(command, str(stranger), *rest, cwd=tmp_path)
    printed = done.stdout + done.stderr
    assert printed
    assert {c for c in printed if not c.isprintable()} <= {"\n", "\t"}


def test_no_cell_of_a_table_is_a_formula(stranger: Path, tmp_path: Path) -> None:
    table = in_process("report", str(stranger), "--csv", "-", cwd=tmp_path).stdout
    assert "'=HYPERLINK" in table
    assert not [line for line in table.splitlines() if line.startswith(("=", '"='))]
    assert ",=" not in table and ',"=' not in table


class Payload:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.file,)


@pytest.mark.torch
def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    from benchsuite.describe.goal import EPOCH
    from benchsuite.worker import saved

    prefix = str(tmp_path / "p")
    with zipfile.ZipFile(saved.file_of(prefix, 1, 0), "w") as packed:
        packed.writestr("p/data.pkl", pickle.dumps(Payload(str(tmp_path / "owned")), protocol=2))
        packed.writestr("p/version", "3\n")
    with pytest.raises(ModelError):
        saved.read(f"{prefix}{EPOCH}1")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("program", [_PROGRAM, _ASK_TORCH])
def test_a_torch_in_the_current_folder_is_not_run(program: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('owned')")
    words = [sys.executable, "-S", "-c", program]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "owned" not in done.stderr
    assert "No module named 'torch'" in done.stderr
