"""A full disk costs no result: what is finished waits in memory, no task starts, and what is given up is repeated."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import keep_run, make_result, make_task
from support import side_by_side

from benchsuite import rundir
from benchsuite.launch import room
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.progress import Progress
from benchsuite.launch.room import Keeper
from benchsuite.records import Result
from benchsuite.report.read.load import load
from benchsuite.rundir import Attempt, RunDir

TASKS = [make_task(gpu=gpu) for gpu in range(3)]


class Disk:
    """A disk that is full while `full` is true."""

    def __init__(self) -> None:
        self.full = True

    def write_aside(self, folder: Path, content: bytes) -> Path:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        return WRITE_ASIDE(folder, content)


WRITE_ASIDE = rundir.write_aside


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.over: list[tuple[str, bool]] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def ended(self, result: Result, path: Path | None, problem: str | None) -> None:
        self.over.append((result.task.id, path is not None))


@pytest.fixture(name="disk")
def disk_fixture(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(rundir, "write_aside", disk.write_aside)
    monkeypatch.setattr(room, "write_aside", disk.write_aside)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
    return disk


def keeper_of(folder: Path, listener: Listener, stopping: Callable[[], bool] = lambda: False) -> Keeper:
    keep_run(folder, [], TASKS)
    for task in TASKS:
        RunDir(folder).note_attempt(Attempt(event="start", task=task.id, attempt=1, at="now"))
    return Keeper(Ledger(RunDir(folder)), listener, stopping)


def statuses(folder: Path) -> list[str]:
    return [row.status for row in load(folder).rows]


def test_results_wait_for_room_and_are_written_in_order(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_of(tmp_path / "run", listener := Listener())
    for task in TASKS[:2]:
        keeper.keep(make_result(task=task))
    assert (listener.over, statuses(tmp_path / "run")) == ([], ["interrupted"] * 3)

    def rest(seconds: float) -> None:
        disk.full = False

    monkeypatch.setattr(room.time, "sleep", rest)
    assert keeper.wait_for_room()
    keeper.keep(make_result(task=TASKS[2]))
    keeper.close()
    assert listener.over == [(task.id, True) for task in TASKS]
    assert "no space left; the run waits up to 10 min; results in memory: 2" in listener.said[0]
    assert statuses(tmp_path / "run") == ["ok"] * 3
    ends = [line.task for line in RunDir(tmp_path / "run").attempts() if line.event == "end"]
    assert ends == [task.id for task in TASKS]


def test_a_result_that_is_given_up_counts_as_interrupted(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LIMIT_S", 0.0)
    keeper = keeper_of(tmp_path / "run", listener := Listener())
    keeper.keep(make_result(task=TASKS[0]))
    assert not keeper.wait_for_room()
    keeper.close()
    assert listener.over == [(TASKS[0].id, False)]
    assert "no space left; the run ends" in listener.said[-1]
    assert statuses(tmp_path / "run")[0] == "interrupted", "so that --resume repeats its wave"


def test_a_result_that_is_given_up_counts_once(tmp_path: Path) -> None:
    without_figure: Any = SimpleNamespace(words="no number", has_figure=False)
    progress = Progress(lambda result: without_figure)
    progress.ended(make_result(task=TASKS[0]), None, "no space left")
    assert (dict(progress.counts), progress.thin) == ({"lost": 1}, 0)


def test_a_signal_ends_the_wait(tmp_path: Path, disk: Disk) -> None:
    keeper = keeper_of(tmp_path / "run", Listener(), stopping=lambda: True)
    assert not keeper.wait_for_room()


def test_no_wave_starts_on_a_disk_that_has_no_room_for_its_records(tmp_path: Path, disk: Disk) -> None:
    keeper = keeper_of(tmp_path / "run", Listener(), stopping=lambda: True)
    disk.full = False
    assert keeper.wait_for_room(), "the figure alone, which may leave out root's reserve, does not decide"
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_no_matter_of_room(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(folder: Path, content: bytes) -> Path:
        raise OSError(error, "refused", str(folder))

    monkeypatch.setattr(room, "write_aside", refuse)
    keeper = keeper_of(tmp_path / "run", listener := Listener())
    assert keeper.wait_for_room()
    assert listener.said == []


def test_a_run_on_a_full_disk_ends_without_starting_a_task(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rundir, "write_aside", WRITE_ASIDE)  # the disk becomes full once the run's folder is made
    monkeypatch.setattr(room, "LIMIT_S", 0.0)
    assert side_by_side(tmp_path, monkeypatch, job={}) == {}
    assert RunDir(tmp_path / "out").attempts() == []
