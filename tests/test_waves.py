"""Tasks of a wave begin together and stop together; one that dies or is late keeps no other waiting for ever."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from support import side_by_side, wait_for

from benchsuite.describe.tasks import Task
from benchsuite.events import SliceClosed
from benchsuite.launch import supervise, together, waves
from benchsuite.launch.context import RunContext, WaveContext, WaveError
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.means import MEANS
from benchsuite.launch.outcome import classify
from benchsuite.launch.process import Tree
from benchsuite.launch.supervise import Exit
from benchsuite.launch.worker_events import ProcessEvents, TaskEvents
from benchsuite.measurement import Slice
from benchsuite.records import Failure


def test_they_begin_together_and_a_task_that_is_done_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = side_by_side(tmp_path, monkeypatch, quick={"min_time_s": 0.6}, slow={"min_time_s": 2.6})
    quick, slow = (found[name].measurement.streams[0] for name in ("quick", "slow"))
    assert abs(quick.origin_s - slow.origin_s) < 0.3
    held = [s for s in quick.slices if s.phase == "hold"]
    measured = [s for s in quick.slices if s.phase == "measure"]
    assert measured[-1].end_s == pytest.approx(1.0, abs=0.3), "its second slice passes 0.6 s"
    assert len(held) == 1, "hold is kept as one slice"
    assert held[0].elapsed_s > 1.0
    assert quick.origin_s + held[-1].end_s >= slow.origin_s + slow.slices[-1].end_s - 0.7
    phases = [s.phase for s in slow.slices]
    assert phases.count("hold") <= 2, "the last to be done holds only until it hears of it"
    assert phases == sorted(phases, reverse=True), "nothing is measured after hold"
    assert {r.status for r in found.values()} == {"ok"}


def test_one_that_dies_keeps_no_other_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    limits = {"max_time_s": 150.0, "timeout_s": 200.0}
    dies = {"params": {"kind": "sigkill", "after_s": 0.1}, **limits}
    found = side_by_side(tmp_path, monkeypatch, dies=dies, lives={"min_time_s": 1.0, **limits})
    assert {name: r.status for name, r in found.items()} == {"dies": "killed", "lives": "ok"}
    assert time.monotonic() - began < 100


def test_one_that_is_late_keeps_the_others_waiting_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "READY_LIMIT_S", 1.5)
    late = {"params": {"nap_s": 0.8}}  # five naps of warm-up
    found = side_by_side(tmp_path, monkeypatch, late=late, early={"min_time_s": 0.6})
    early, behind = found["early"].timeline, found["late"].timeline
    assert early.go_s is not None
    assert early.started_s is not None
    assert behind.go_s is not None
    assert behind.ready_s is not None
    assert 1.0 < early.go_s - early.started_s < 3.0
    assert behind.go_s > early.go_s + 1.0, "it goes as soon as it is ready"
    assert behind.go_s - behind.ready_s < 0.5
    assert {r.status for r in found.values()} == {"ok"}


@pytest.mark.parametrize("hangs", [{"start_s": 60.0}, {"kind": "hang", "after_s": 1.0}])
def test_one_that_hangs_takes_no_healthy_neighbour_with_it(
    hangs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {"timeout_s": 5.0, "min_time_s": 1.2}
    found = side_by_side(tmp_path, monkeypatch, sick={"params": hangs, **limit}, healthy=limit)
    assert {name: r.status for name, r in found.items()} == {"sick": "timeout", "healthy": "ok"}
    measured = [s for s in found["healthy"].measurement.streams[0].slices if s.phase == "measure"]
    assert sum(s.elapsed_s for s in measured) >= 1.2


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(not os.access(FREEZER / "tasks", os.W_OK), reason="needs the freezer of cgroup v1, and root")
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_stuck_in_the_kernel_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen process ends by no signal until it is thawed, like one that waits for a dead disk."""
    monkeypatch.setattr(supervise, "STUCK_S", 1.0)
    group = FREEZER / f"benchsuite-test-{os.getpid()}"
    group.mkdir()

    def freeze() -> None:
        def worker() -> int | None:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):  # children of earlier tests may be ending
                    if "stuck.a1." in " ".join(process.cmdline()):
                        return process.pid
            return None

        wait_for(lambda: worker() is not None)
        (group / "cgroup.procs").write_text(str(worker()))
        (group / "freezer.state").write_text("FROZEN")

    freezing = threading.Thread(target=freeze)
    freezing.start()
    try:
        jobs = {"stuck": {"params": {"kind": "hang"}, "timeout_s": 2.0, "min_time_s": 1.0}, "well": {"min_time_s": 1.0}}
        began = time.monotonic()
        found = side_by_side(tmp_path, monkeypatch, **jobs)
        took_s = time.monotonic() - began
    finally:
        freezing.join()
        (group / "freezer.state").write_text("THAWED")
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
    assert {name: r.status for name, r in found.items()} == {"stuck": "timeout", "well": "ok"}
    assert found["stuck"].error
    assert "SIGKILL does not end it" in found["stuck"].error.message
    assert took_s < 40


def test_what_was_measured_is_known_however_long_it_holds() -> None:
    reported = ProcessEvents()
    held = Slice(start_s=1.0, end_s=1.5, steps=1, items=1, phase="hold")
    first = msgspec.structs.replace(held, phase="measure")
    reported.take([SliceClosed(n=0, origin_s=0.0, slice=first, loss=None, last=True)])
    reported.take(SliceClosed(n=n, origin_s=0.0, slice=held, loss=None, last=False) for n in range(1, 1000))
    assert reported.measured


def test_a_task_alone_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = side_by_side(tmp_path, monkeypatch, alone={}).values()
    assert {s.phase for s in result.measurement.streams[0].slices} == {"measure"}


def test_a_result_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    side_by_side(tmp_path, monkeypatch, alone={"min_time_s": 0.6})
    (file,) = (tmp_path / "out").glob("p.alone.*.json")
    content = msgspec.json.decode(file.read_bytes())
    (stream,) = content["measurement"]["streams"]
    a_slice = len(msgspec.json.encode([119.123456, 119.623456, 12345, 1234567, "measure"]))
    assert file.stat().st_size + (240 - len(stream["slices"])) * (a_slice + 10) < 20_000, "with 2 minutes of slices"


@pytest.mark.parametrize(
    ("exit_code", "ended", "status", "kind"),
    [
        (0, "exited", "failed", "silent"),
        (3, "exited", "failed", "exit"),
        (-9, "exited", "killed", "SIGKILL"),
        (-99, "exited", "killed", "signal 99"),
        (-15, "timed_out", "timeout", "timeout"),
        (-15, "interrupted", "interrupted", "interrupted"),
        (None, "exited", "failed", "silent"),
    ],
)
def test_a_worker_without_events_is_never_ok(exit_code: int | None, ended: Any, status: str, kind: str) -> None:
    found, error = classify(TaskEvents(), Exit(exit_code, ended, 1.0), 5.0, "last words")
    assert (found, error.kind if error else None) == (status, kind)


def test_stubborn_tasks_are_ended_together_not_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, int]] = []

    def noted(tree: Tree, *limits: Any, how: str, send: Any, **more: Any) -> None:
        sent.append((how, tree.pid))
        send(tree, *limits, **more)

    for how in ("terminate", "kill"):
        monkeypatch.setattr(Tree, how, functools.partialmethod(noted, how=how, send=getattr(Tree, how)))
    stubborn = {"params": {"kind": "stubborn", "after_s": 0.2}, "timeout_s": 3.0}
    found = side_by_side(tmp_path, monkeypatch, **{f"t{i}": stubborn for i in range(4)})
    assert {r.status for r in found.values()} == {"timeout"}
    assert [how for how, _ in sent[:4]] == ["terminate"] * 4, "one limit, one grace, for all four"
    assert len({pid for _, pid in sent[:4]}) == 4


def test_a_mean_of_a_wave_serves_its_tasks_and_is_given_back_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a daemon that GPU processes share would be: one more entry of the list, and the runner stays as it is."""
    seen = tmp_path / "seen.json"
    order: list[str] = []

    @contextmanager
    def daemon(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
        order.append("given" if not seen.exists() else "given late")
        yield replace(wave, environ={**wave.environ, "MY_DAEMON": "it is here"})
        order.append("given back" if seen.exists() else "given back early")

    monkeypatch.setattr(waves, "MEANS", (MEANS[0], daemon, *MEANS[1:]))
    (result,) = side_by_side(tmp_path, monkeypatch, only={"params": {"file": str(seen)}}).values()
    assert result.status == "ok"
    assert json.loads(seen.read_text())["environ"]["MY_DAEMON"] == "it is here"
    assert order == ["given", "given back"]


def test_a_mean_that_cannot_be_provided_fails_the_wave_and_those_before_it_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    @contextmanager
    def first(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
        with ExitStack() as given_back:
            given_back.callback(order.append, "given back")
            yield wave

    @contextmanager
    def broken(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
        raise WaveError(Failure(kind="daemon", message="it does not start"))
        yield wave

    monkeypatch.setattr(waves, "MEANS", (first, broken, *MEANS))
    found = side_by_side(tmp_path, monkeypatch, one={}, two={})
    assert [(r.status, r.error and r.error.kind) for r in found.values()] == [("failed", "daemon")] * 2
    assert order == ["given back"]
    assert not list((tmp_path / "out" / "logs").glob("*")), "nothing was started"


def test_a_start_that_cannot_be_noted_is_one_failure_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Ledger, event: str, task: Task, tree: Tree) -> None:
        trees.append(tree)
        raise OSError(28, "No space left on device")

    trees: list[Tree] = []
    monkeypatch.setattr(Ledger, "began", full)
    (result,) = side_by_side(tmp_path, monkeypatch, only={}).values()
    assert result.status == "failed"
    assert result.error is not None
    assert "could not be noted: no space left on device" in result.error.message
    assert [tree.members() for tree in trees] == [[]]
