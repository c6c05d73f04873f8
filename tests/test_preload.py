"""Workers that are forked from a preloaded process: what they are, and which tasks have one."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support import benchsuite, environ, nothing_left, read_results, wait_for

from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import Job, Task, Trace
from benchsuite.isolation.tenant import Tenant
from benchsuite.launch import orphans, preload, process
from benchsuite.launch.context import WaveContext
from benchsuite.launch.fork_server import gpu_in_use, mapped_pages
from benchsuite.launch.preload import ForkServer, Preloader, forkable, packages
from benchsuite.provisions import Tenant as TenantFacts
from benchsuite.report.read.load import load
from benchsuite.report.stats.summarise import summarise

Started = Callable[..., tuple[process.Tree, Path]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    reading, writing = os.pipe()
    given = environ(CONTROL=str(reading))
    server = ForkServer(given, (), ("forked",), tmp_path_factory.mktemp("server") / "out")
    assert server.wait_loaded(lambda: False) is None
    with orphans.adopted(lambda: [server.pid]):
        yield server
        server.close()
    for fd in (reading, writing):
        os.close(fd)


@pytest.fixture
def forked(server: ForkServer, tmp_path: Path) -> Started:
    def start(name: str = "facts.json", affinity: tuple[int, ...] = ()) -> tuple[process.Tree, Path]:
        tenant = Tenant(TenantFacts(asked="share", reason="a test"), affinity=affinity)
        reading, writing = os.pipe()
        os.write(writing, b"go")
        control = int(environ_of(server)["CONTROL"])
        os.dup2(reading, control)
        tree = server.fork(tmp_path / name, tenant, "task", tmp_path / "out", tmp_path / "err", control)
        for fd in (reading, writing):
            os.close(fd)
        assert tree
        return tree, tmp_path / name

    return start


def environ_of(server: ForkServer) -> dict[str, str]:
    lines = Path(f"/proc/{server.pid}/environ").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def facts(started: tuple[process.Tree, Path]) -> dict[str, Any]:
    tree, file = started
    wait_for(lambda: tree.poll() is not None)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_forked_worker_is_a_child_of_the_run_in_a_session_of_its_own(server: ForkServer, forked: Started) -> None:
    started = forked()
    found = facts(started)
    assert (found["loaded_by"], found["parent"]) == (server.pid, os.getpid())
    assert found["pid"] == found["session"] == started[0].pid
    assert started[0].poll() == 7
    assert found["argv"] == [str(started[1])]
    assert found["pipe"], "signals are handled as in any Python"


def test_it_has_the_environment_of_the_server_and_its_own_mark(server: ForkServer, forked: Started) -> None:
    started = forked()
    found = facts(started)
    assert found["mark"] == started[0].mark
    assert found["shown"] == [f"BENCHSUITE_TREE={started[0].mark}"], "other processes see the mark"
    expected = environ_of(server)
    del expected["BENCHSUITE_TREE"]
    assert {name: found["variables"].get(name) for name in expected} == expected


def test_its_output_its_words_and_its_cpus_are_its_own(forked: Started, tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    found = facts(forked(affinity=(cpu,)))
    assert found["cpus"] == [cpu]
    assert found["heard"] == "go"
    assert (tmp_path / "out").read_text() == "to stdout\n"
    assert (tmp_path / "err").read_text() == "to stderr\n"


def test_two_workers_of_one_server_draw_other_numbers(forked: Started) -> None:
    assert facts(forked("1.json"))["drawn"] != facts(forked("2.json"))["drawn"]


def test_a_forked_worker_is_found_by_its_mark_and_ended(forked: Started) -> None:
    tree, file = forked("wait.json")
    wait_for(file.exists)
    assert [one.pid for one in tree.members()] == [tree.pid]
    tree.kill()
    assert tree.poll() == -signal.SIGKILL
    assert tree.members() == []


def test_a_worker_that_cannot_enter_its_group_says_so(server: ForkServer, tmp_path: Path) -> None:
    tenant = Tenant(TenantFacts(asked="share", reason="a test"))
    tenant.entered = (str(tmp_path / "missing/cgroup.procs"),), ()
    tree = server.fork(tmp_path / "x.json", tenant, "task", tmp_path / "out", tmp_path / "err", None)
    assert tree
    wait_for(lambda: tree.poll() is not None)
    assert tree.poll() == 125
    text = (tmp_path / "err").read_text()
    assert text.startswith("benchsuite: cannot start the task in its fence: ")
    assert "missing/cgroup.procs: No such file" in text


def test_a_server_whose_imports_fail_forks_nothing_and_says_where_to_look(tmp_path: Path) -> None:
    server = ForkServer(environ(), (), ("forked", "no_such_module"), tmp_path / "out")
    assert server.wait_loaded(lambda: False) == "its imports failed; its output says why"
    server.close()
    assert "No module named 'no_such_module'" in (tmp_path / "out").read_text()


def test_a_server_that_has_ended_forks_nothing_and_the_next_wave_starts_anew(tmp_path: Path) -> None:
    server = ForkServer(environ(), (), ("forked",), tmp_path / "out")
    assert server.wait_loaded(lambda: False) is None
    os.kill(server.pid, signal.SIGKILL)
    tenant = Tenant(TenantFacts(asked="share", reason="a test"))
    assert server.fork(tmp_path / "x.json", tenant, "task", tmp_path / "out", tmp_path / "err", None) is None
    assert server.wait_loaded(lambda: False) == "it does not answer any more"
    server.close()


def test_a_user_who_wants_the_end_does_not_wait_for_imports(tmp_path: Path) -> None:
    server = ForkServer(environ(), (), ("forked",), tmp_path / "out")
    os.kill(server.pid, signal.SIGSTOP)
    assert server.wait_loaded(lambda: True) == "the end was asked for"
    server.close()


def test_a_process_that_holds_a_gpu_must_not_fork(tmp_path: Path) -> None:
    assert gpu_in_use(str(tmp_path)) is None
    with (tmp_path / "nvidia0").open("w"):
        assert gpu_in_use(str(tmp_path)) == f"an import opens {tmp_path}/nvidia0, and CUDA does not survive a fork"


def test_the_pages_in_memory_are_listed_once() -> None:
    pages = mapped_pages()
    assert pages
    ends = [0, *(start + length for start, length, _ in pages)]
    assert all(start >= end for (start, _, _), end in zip(pages, ends, strict=False))


def task(**changed: Any) -> Task:
    job = msgspec.structs.replace(Job(name="job", model="vae"), **changed)
    return Task(id="job.J0", profile="p", repeat=0, job=job, cell="job", row="job", wave="w")


def test_plain_tasks_of_shipped_models_with_torch_are_forked() -> None:
    assert forkable(task())
    assert packages("vae") == ("torch", "torch._dynamo")
    assert "torchvision" in packages("convnet")
    assert packages("scaling") == packages("no_such_model") == ()


def test_all_other_tasks_start_anew() -> None:
    plain = task()
    replace = msgspec.structs.replace
    training = replace(plain.job.training, array=2)
    assert not forkable(task(model=None, entry="own:build"))
    assert not forkable(task(model="scaling")), "it does not use torch"
    assert not forkable(task(training=training))
    assert not forkable(task(sharing="mps"))
    assert not forkable(replace(plain, ranks=2))
    assert not forkable(replace(plain, skip="no GPU"))
    assert not forkable(replace(plain, trace=Trace(tool="ncu", steps=5)))


def test_a_task_is_forked_in_all_repeats_or_in_none(monkeypatch: pytest.MonkeyPatch) -> None:
    replace = msgspec.structs.replace
    server: Any = SimpleNamespace(wait_loaded=lambda asked: None, close=lambda: None)
    monkeypatch.setattr(preload, "worker_environ", lambda *given: {})
    monkeypatch.setattr(Preloader, "_server", lambda *given: server)
    alone = task(training=replace(task().job.training, intra_op_threads=1))
    preloader = Preloader(plan_of([task(), replace(task(), id="other.J0"), replace(alone, id="alone.J0")]))
    added = tuple(replace(one, repeat=3) for one in (task(), alone))
    wave = WaveContext(added, tenants=(Tenant(TenantFacts(asked="share", reason="a test")),) * 2)
    run: Any = SimpleNamespace(asked_to_stop=lambda: False)
    for one, forks in zip(added, (True, False), strict=True):
        with preloader.preload(run, dataclasses.replace(wave, tasks=(one,), tenants=wave.tenants[:1])) as provided:
            assert bool(provided.forkers) is forks


def test_without_a_plan_no_process_is_preloaded() -> None:
    assert Preloader().pids() == []


@pytest.mark.torch
def test_a_run_forks_its_workers_and_says_so(tmp_path: Path) -> None:
    job = {"model": "polynome", "placement": "cpu", "warm_up_s": 0, "min_time_s": 0.1, "max_time_s": 60}
    (tmp_path / "p.json").write_text(json.dumps({"one": job, "two": job}), encoding="utf-8")
    done = benchsuite(
        "jobs", "p.json", "--preload", "-o", "out", cwd=tmp_path, env=environ(OMP_NUM_THREADS="1"), timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = read_results(tmp_path / "out")
    assert [result.forked for result in found.values()] == [True, True]
    first, second = ([span.name for span in found[name].timeline.phases] for name in ("one", "two"))
    assert first[:2] == ["preload", "fork"]
    assert second[0] == "fork"
    assert {"first step", "measure", "exit"} <= {*second}
    nothing_left(tmp_path / "out")
    summary = summarise(load(tmp_path / "out"))
    assert summary.wall
    assert summary.wall.forked == 2
    assert sum(summary.wall.phases.values()) == pytest.approx(summary.wall.seconds, abs=0.02)
    assert 0 < summary.wall.measured_s < summary.wall.seconds
