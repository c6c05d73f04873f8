"""A process tree is asked to end, killed after its grace, given up if nothing ends it; and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support import marked, wait_for

from benchsuite.launch import supervise
from benchsuite.launch.interrupt import Interrupt
from benchsuite.launch.process import Tree, start
from benchsuite.launch.supervise import Exit, Supervision, bounded

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
# The shell ends at once on SIGTERM; what it started takes half a second to clean up.
CLEANS_UP = "(trap 'sleep 0.5; echo cleaned; exit' TERM; echo ready; while :; do sleep 0.05; done) & wait"


@pytest.fixture(name="begin")
def begin_fixture(tmp_path: Path) -> Iterator[Callable[..., Tree]]:
    """Starts a command as a tree, whose output goes to the file `out`."""
    marks = []

    def begin(*command: str) -> Tree:
        marks.append(f"{os.getpid()}.supervise.{time.monotonic_ns()}")
        out, err = tmp_path / "out", tmp_path / "err"
        return start(command, environ=os.environ, mark=marks[-1], out=out, err=err)

    yield begin
    assert [pid for mark in marks for pid in marked(mark)] == [], "nothing is left"


def never() -> None:
    return None


@pytest.mark.parametrize("code", [0, 3])
def test_a_tree_that_ends_by_itself_has_its_exit_code(begin: Callable[..., Tree], code: int) -> None:
    tree = begin("sh", "-c", f"sleep 60 & exit {code}")
    assert supervise.supervise(tree, never) == Exit(code)


@pytest.mark.parametrize(("stops", "ended"), [(True, "interrupted"), (False, "timed_out")])
def test_a_tree_that_must_end_says_why(begin: Callable[..., Tree], stops: bool, ended: str) -> None:
    tree = begin("sleep", "60")
    deadline_s = time.monotonic() + (60.0 if stops else 0.3)
    found = supervise.supervise(tree, bounded(deadline_s, lambda: stops))
    assert (found.code, found.ended, found.stuck) == (-15, ended, False)
    assert found.asked_s is not None


@pytest.mark.parametrize(("late_s", "ended"), [(0.0, "interrupted"), (0.2, "interrupted"), (9.0, "exited")])
def test_a_tree_that_ends_by_sigterm_is_interrupted_if_the_run_gets_it_too(
    begin: Callable[..., Tree], late_s: float, ended: str
) -> None:
    """A batch system sends SIGTERM to all processes of a job, in no order."""
    tree = begin("sh", "-c", "kill $$")
    wait_for(lambda: tree.poll() is not None)
    asked_s = time.monotonic() + late_s
    found = supervise.supervise(tree, bounded(asked_s + 60, lambda: time.monotonic() >= asked_s))
    assert (found.code, found.ended) == (-15, ended)


def test_one_that_ignores_the_request_is_killed_after_the_grace(
    begin: Callable[..., Tree], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "GRACE_S", 0.5)
    monkeypatch.setattr(supervise, "STUCK_S", 120.0)
    tree = begin(sys.executable, "-c", STUBBORN)
    wait_for(lambda: (tmp_path / "out").read_text())
    began_s = time.monotonic()
    found = supervise.supervise(tree, lambda: "interrupted")
    assert (found.code, found.stuck) == (-9, False)
    assert time.monotonic() - began_s > 0.5


def test_one_that_ignores_the_request_is_killed_at_once_in_a_hurry(
    begin: Callable[..., Tree], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "GRACE_S", 120.0)
    tree = begin(sys.executable, "-c", STUBBORN)
    wait_for(lambda: (tmp_path / "out").read_text())
    began_s = time.monotonic()
    found = supervise.supervise(tree, lambda: "interrupted", hurried=lambda: True)
    assert (found.code, found.ended) == (-9, "interrupted")
    assert time.monotonic() - began_s < supervise.GRACE_S


def test_a_second_signal_hurries_unless_it_is_an_echo_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with Interrupt() as interrupt:
        for again_s, hurried in ((9.0, False), (9.0, False), (0.0, True)):
            monkeypatch.setattr("benchsuite.launch.interrupt.AGAIN_S", again_s)
            os.kill(os.getpid(), signal.SIGINT)
            assert (interrupt.asked(), interrupt.hurried()) == (True, hurried)
    assert interrupt.signum == signal.SIGINT


def test_what_outlives_the_root_has_the_rest_of_the_grace(begin: Callable[..., Tree], tmp_path: Path) -> None:
    tree = begin("sh", "-c", CLEANS_UP)
    wait_for(lambda: "ready" in (tmp_path / "out").read_text())
    found = supervise.supervise(tree, lambda: "interrupted")
    assert found.code == -15
    assert "cleaned" in (tmp_path / "out").read_text()


def test_several_trees_are_supervised_side_by_side(
    begin: Callable[..., Tree], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four that ignore SIGTERM take one grace together; no step waits for its tree."""
    monkeypatch.setattr(supervise, "GRACE_S", 1.0)
    monkeypatch.setattr(supervise, "STUCK_S", 120.0)
    trees = [begin(sys.executable, "-c", STUBBORN) for _ in range(4)]
    wait_for(lambda: (tmp_path / "out").read_text().count("1") == 4)
    running = list(map(Supervision, trees))
    with monkeypatch.context() as patch:
        patch.delattr(time, "sleep")
        for one in running:
            assert not one.step(lambda: "timed_out")
    supervise.wait(lambda: all([one.step(never) for one in running]))
    assert [one.finish().code for one in running] == [-9] * 4


class Scattered(Tree):
    """A tree whose processes are found late, as on a node with many others."""

    def members(self) -> list[psutil.Process]:
        time.sleep(0.05)
        return super().members()


def test_a_tree_is_killed_however_long_the_search_for_its_processes_takes(begin: Callable[..., Tree]) -> None:
    tree = begin("sleep", "600")
    Scattered(tree.process, tree.ticks, tree.mark).kill(limit_s=0.01)
    assert tree.process.wait(120) == -9


class Immortal(Tree):
    """A tree that the kernel does not let go of, whatever signal it gets."""

    def poll(self) -> int | None:
        return None

    def terminate(self) -> None: ...

    def kill(self, limit_s: float = 0.0) -> None: ...


def test_one_that_nothing_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "GRACE_S", 0.1)
    monkeypatch.setattr(supervise, "STUCK_S", 0.2)
    with subprocess.Popen(["true"]) as ended:
        tree = Immortal(ended, None, "mark")
        supervision = Supervision(tree)
        supervise.wait(lambda: supervision.step(lambda: "timed_out"))
        found = supervision.finish()
    assert (found.code, found.ended, found.stuck) == (None, "timed_out", True)
