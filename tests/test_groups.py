"""Groups of ranks for real, over gloo on the CPU: what they learn, when they stop, and how they fail."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import (
    PROGRAMS,
    QUICK,
    benchsuite,
    environ,
    kill_rank,
    nothing_left,
    one_line_error,
    read_results,
    start,
)

pytest.importorskip("torch")

import torch

from benchsuite.describe import entries
from benchsuite.events import PULSE_BYTES
from benchsuite.models import Share, polynome, recommendation, subpixel
from benchsuite.worker.device import Cpu
from benchsuite.worker.rank_slices import AgreedRule
from benchsuite.worker.step import Step
from benchsuite.worker.timing import Stop
from benchsuite.worker.warmup import WARM_UP_STEPS, warm_up
from benchsuite.worker.ways import make_step

pytestmark = pytest.mark.torch

SUPERVISED = [name for name in entries.names() if entries.declared(name, None).parallel and name != "loader"]
GROUP = {
    "placement": "cpu", "parallel": {"dp": 2},
    "warm_up_s": 0.0, "min_time_s": 2.0, "max_time_s": 30.0, "timeout_s": 90.0,
}  # fmt: skip


def ranks_of(program: str, count: int, *arguments: str) -> str:
    """Run a program as `count` ranks; the output of rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = environ(WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    words = [sys.executable, "-W", "error", str(PROGRAMS / program), *arguments]
    running = [
        subprocess.Popen(
            words, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(count)
    ]
    reported = [process.communicate(timeout=240) for process in running]
    assert [process.returncode for process in running] == [0] * count, "\n".join(err for _, err in reported)
    return reported[0][0]


def with_pulse(tmp_path: Path, count: int) -> str:
    pulse = tmp_path / "pulse"
    pulse.write_bytes(bytes(count * PULSE_BYTES))
    return str(pulse)


def test_every_supervised_model_learns_from_the_mean_of_two_ranks_gradients(tmp_path: Path) -> None:
    """Batch norm, dropout and noise are each rank's own, and played as such."""
    reported = json.loads(ranks_of("averaging.py", 2, with_pulse(tmp_path, 2), *SUPERVISED))
    assert set(reported["apart"]) == set(SUPERVISED)
    assert {name: far for name, far in reported["apart"].items() if far > 2e-5} == {}
    assert reported["beats"][0] == reported["beats"][1] > 2 * len(SUPERVISED)


def test_four_ranks_learn_alike(tmp_path: Path) -> None:
    names = ["polynome", "vae", "dcgan", "wlm"]
    reported = json.loads(ranks_of("averaging.py", 4, with_pulse(tmp_path, 4), *names))
    assert {name: far for name, far in reported["apart"].items() if far > 2e-5} == {}


def test_accumulated_and_compiled_gradients_are_averaged_alike(tmp_path: Path) -> None:
    """Models without noise of their own; the loss is compiled whole, inside the wrapper that averages."""
    words = ["polynome", "subpixel", "recommendation", '{"accumulate": 2, "compile": "aot_eager"}']
    reported = json.loads(ranks_of("averaging.py", 2, with_pulse(tmp_path, 2), *words))
    assert {name: far for name, far in reported["apart"].items() if far > 2e-5} == {}
    assert reported["breaks"] == 0


@pytest.mark.parametrize("model", [polynome, subpixel, recommendation])
def test_the_mean_of_the_ranks_gradients_is_that_of_their_joined_batch(model: Any) -> None:
    """Where a batch has no statistics of its own: what two ranks learn is what one learns from both their batches."""
    params = model.Params(**model.SMALL)

    def gradients(pick: Any) -> list[torch.Tensor]:
        torch.manual_seed(7)
        workload = model.build(params)
        both = [next(iter(workload.batches(Share(rank=rank, ranks=2)))) for rank in range(2)]
        make_step(workload).run(pick(both))
        return [p.grad.clone() for p in workload.modules["net"].parameters()]

    one, other = gradients(lambda both: both[0]), gradients(lambda both: both[1])
    joined = gradients(lambda both: tuple(torch.cat(parts) for parts in zip(*both, strict=True)))
    for a, b, whole in zip(one, other, joined, strict=True):
        assert torch.allclose((a + b) / 2, whole, atol=1e-6)


# --- the agreement on slices ------------------------------------------------------------------------------------------


class Played:
    """A group's rank whose agreement is a list: rank 0 appends, the other reads."""

    def __init__(self, rank: int, said: list[list[int]]) -> None:
        self.rank, self.ranks, self.said, self.said_stop = rank, 2, said, False

    def agree(self, said: list[int]) -> list[int]:
        if self.rank == 0:
            self.said.append(list(said))
            return said
        return self.said.pop(0)


def test_ranks_close_and_stop_at_the_same_steps_by_the_clock_of_the_first() -> None:
    said: list[list[int]] = []
    stop = Stop(min_time_ns=2_000_000_000)
    first = AgreedRule(Played(0, said), lambda: False, stop, 0)  # type: ignore[arg-type]
    other = AgreedRule(Played(1, said), lambda: False, stop, 0)  # type: ignore[arg-type]
    closed: list[tuple[int, bool]] = []
    now = steps = 0
    while first.met is None:
        take = first.due_steps - steps
        assert other.due_steps == first.due_steps, "both look after the same number of steps"
        now, steps = now + take * 10_000_000, first.due_steps
        own = first.closes(now, steps, 3 * steps)
        assert other.closes(now * 7 % 5, steps, 3 * steps) == own, "whatever its own clock says"
        closed.append((steps, own))
        if own:
            first.open(now)
            other.open(now)
            steps = 0
    assert first.met == other.met == "min_time"
    assert sum(own for _, own in closed) == 4
    assert all(50 <= count <= 52 for count, own in closed if own)


def test_a_count_is_that_of_all_ranks_together() -> None:
    said: list[list[int]] = []
    rule = AgreedRule(Played(0, said), lambda: False, Stop(max_items=40), 0)  # type: ignore[arg-type]
    assert not rule.closes(1_000_000, 1, 10)
    assert rule.closes(2_000_000, 2, 20)
    assert rule.met == "count"


def test_stop_is_heard_by_all() -> None:
    said: list[list[int]] = []
    ranks = Played(0, said), Played(1, said)
    rules = [AgreedRule(r, lambda: True, Stop(min_time_ns=1 << 50), 0) for r in ranks]  # type: ignore[arg-type]
    for rule in rules:
        rule.closes(600_000_000, 1, 1)
    assert [r.said_stop for r in ranks] == [True, True]


def test_ranks_take_the_same_steps_of_warm_up_by_the_clock_of_the_first() -> None:
    def warmed(rank: int, nap_s: float) -> int:
        step = Step(lambda _: (time.sleep(nap_s), 1)[1])
        return warm_up(step, itertools.repeat(None), Cpu(), 0.3, Played(rank, said)).steps  # type: ignore[arg-type]

    said: list[list[int]] = []
    taken = warmed(0, nap_s=0.01)
    assert 20 < taken <= 31
    assert warmed(1, nap_s=0.0) == taken, "whatever its own clock says"
    assert said == []


# --- runs -------------------------------------------------------------------------------------------------------------


def write(path: Path, **jobs: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"*": GROUP, **jobs}), encoding="utf-8")
    return path


def failing(kind: str, rank: int = 1, **fields: Any) -> dict[str, Any]:
    return {"entry": "group_faults:build", "params": {"kind": kind, "rank": rank}, "min_time_s": 30.0, **fields}


def test_a_group_is_one_task_with_the_slices_of_each_rank(tmp_path: Path) -> None:
    write(tmp_path / "p.json", v={"model": "vae", "params": {"batch_size": 16}, "warm_up_s": 1.0, "min_time_s": 5.5})
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path, env=environ(MASTER_PORT="29500", RANK="3"))
    assert done.returncode == 0, done.stderr
    result = read_results(tmp_path / "out")["v"]
    assert result.group is not None
    assert (result.group.ranks, result.group.backend) == (2, "gloo")
    assert result.group.port not in (None, 29500), "a port that is only inherited is not used"
    one, other = result.measurement.streams
    assert (one.rank, other.rank) == (0, 1)
    assert [(s.steps, s.items) for s in one.slices] == [(s.steps, s.items) for s in other.slices]
    assert all(s.items == 16 * s.steps for s in one.slices)
    assert one.losses != other.losses, "each has data of its own"
    assert one.warm_up and other.warm_up
    assert one.warm_up.steps == other.warm_up.steps > WARM_UP_STEPS, "both take the same steps before they measure"
    assert min(one.warm_up.elapsed_s, other.warm_up.elapsed_s) >= 1.0
    report = benchsuite("report", "--full", "out", cwd=tmp_path).stdout
    total = sum(s.items for stream in (one, other) for s in stream.slices)
    assert total > 0
    assert "batch of 16 for each of 2 ranks, 32 in all" in " ".join(report.split())
    nothing_left(tmp_path / "out")


def test_a_progression_on_the_cpu_is_a_job_for_each_number_of_ranks(tmp_path: Path) -> None:
    jobs = {"s": {"model": "polynome", "placement": "gpu_progression_or_cpu", "min_time_s": 4.8}}
    write(tmp_path / "p.json", **jobs)
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in (tmp_path / "out").glob("p.s.*.json"))
    assert [name.split(".2")[0] for name in files] == ["p.s.J0.0", "p.s.J0.1"]
    report = benchsuite("report", "out", cwd=tmp_path).stdout
    assert "s.1" in report and "s.2" in report


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        ("raise", "failed", "rank 1 of 2: no more naps"),
        ("sigkill", "killed", "rank 1 of 2 was killed by SIGKILL"),
        ("leave", "failed", "rank 1 of 2 exited with 0 before its end"),
    ],
)
def test_the_first_rank_to_fail_is_named_and_all_end(kind: str, status: str, message: str, tmp_path: Path) -> None:
    write(tmp_path / "p.json", g=failing(kind))
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1
    result = read_results(tmp_path / "out")["g"]
    assert result.error is not None
    assert (result.status, result.error.message) == (status, message)
    nothing_left(tmp_path / "out")
    report = benchsuite("report", "out", cwd=tmp_path).stdout
    assert "1 of 1 task" in report and "not ok" in report


@pytest.mark.parametrize("kind", ["hang", "hang_in_data"])
def test_a_rank_that_hangs_is_named_when_time_is_up(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "p.json", g=failing(kind, min_time_s=8.0, max_time_s=9.0, timeout_s=16.0))
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1
    result = read_results(tmp_path / "out")["g"]
    assert result.status == "timeout"
    assert result.error is not None
    assert "not ended within 16 s; rank 1 of 2 is behind the others" in result.error.message
    nothing_left(tmp_path / "out")


def test_a_rank_killed_by_hand_leaves_one_counted_failure_and_its_slices(tmp_path: Path) -> None:
    write(tmp_path / "p.json", g={"model": "polynome", "min_time_s": 60.0, "max_time_s": 80.0, "timeout_s": 100.0})
    running = start("jobs", "p.json", "-o", "out", cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True)
    kill_rank(tmp_path / "out", "g.J0", 1)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 1, stderr
    result = read_results(tmp_path / "out")["g"]
    assert result.status == "killed"
    assert len(result.measurement.streams) == 2
    assert all(stream.slices for stream in result.measurement.streams)
    nothing_left(tmp_path / "out")


@contextlib.contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        held.listen()
        yield held.getsockname()[1]


def test_a_port_of_the_profile_is_used_as_given_or_its_loss_is_said(tmp_path: Path) -> None:
    with listening() as free:
        pass
    job = {"model": "polynome", "parallel": {"dp": 2, "port": free}}
    write(tmp_path / "p.json", g=job)
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    group = read_results(tmp_path / "out")["g"].group
    assert group is not None
    assert group.port == free
    with listening() as taken:
        write(tmp_path / "p.json", g={**job, "parallel": {"dp": 2, "port": taken}})
        done = benchsuite("jobs", "p.json", "-o", "again", cwd=tmp_path)
    assert done.returncode == 1
    error = read_results(tmp_path / "again")["g"].error
    assert error is not None
    assert f"port {taken} (parallel.port) cannot be used: address already in use" in error.message


def test_two_groups_at_once_do_not_meet(tmp_path: Path) -> None:
    with contextlib.suppress(OSError), listening(29500):
        for name in ("one", "two"):
            write(tmp_path / f"{name}.json", g={"model": "polynome", "min_time_s": 4.8})
        running = [
            start(
                "jobs",
                f"{name}.json",
                "-o",
                name,
                cwd=tmp_path,
                env=environ(),
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in ("one", "two")
        ]
        reported = [process.communicate(timeout=120)[1] for process in running]
        assert [process.returncode for process in running] == [0, 0], reported
        groups = [read_results(tmp_path / name)["g"].group for name in ("one", "two")]
        assert len({group.port for group in groups if group}) == 2


@pytest.mark.parametrize(
    ("job", "parts"),
    [
        ({"model": "minigrid"}, ("'minigrid' steps by itself", "per_gpu")),
        ({"model": "vae", "placement": "per_gpu"}, ("each task has one GPU", "all_gpus")),
        ({"model": "vae", "parallel": {"pp": 2}}, ("parallel", "pp")),
        ({"model": "vae", "env": {"MASTER_PORT": "1"}}, ("MASTER_PORT", "parallel")),
    ],
)
def test_what_cannot_be_a_group_is_refused(job: dict[str, Any], parts: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path / "p.json", g=job)
    one_line_error(benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path), "job 'g'", *parts)
    assert not (tmp_path / "out").exists()


def test_a_batch_that_no_rank_can_fill_is_refused(tmp_path: Path) -> None:
    done = benchsuite("prepare", "mnist", "-d", "data", "--synthetic", "--size", "small", cwd=tmp_path)
    assert done.returncode == 0
    write(tmp_path / "p.json", g={"model": "vae", "data": "mnist", "params": {"batch_size": 2001}})
    parts = ("batch_size 2,001 is over its 2,000 images for each of 2 ranks", "lower batch_size to 2,000 or less")
    one_line_error(benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path), "job 'g'", *parts)
    assert not (tmp_path / "out").exists()
    done = benchsuite("jobs", "p.json", "-o", "out", "--", "--batch-size", "2000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_rerun_of_a_group_is_a_group(tmp_path: Path) -> None:
    write(tmp_path / "p.json", g={"model": "polynome"})
    assert benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path).returncode == 0
    (file,) = (tmp_path / "out").glob("p.g.*.json")
    done = benchsuite("rerun", str(file), "-o", "again.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "again.json").read_text())["group"]["ranks"] == 2


def test_a_group_that_was_killed_while_it_was_started_is_resumed(tmp_path: Path) -> None:
    """The FIFO of the killed attempt lies there already; the resumed run takes its place and leaves none behind."""
    job = {"model": "polynome", "placement": "cpu", "parallel": {"dp": 2}, **QUICK, "timeout_s": 90}
    (tmp_path / "p.json").write_text(json.dumps({"g": job}))
    script = (
        "import os, signal, sys; from benchsuite.launch import child; from benchsuite import cli\n"
        "child.write_new = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cli.main(['jobs', 'p.json', '-o', 'out'])"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environ(), check=False, timeout=90)
    assert killed.returncode == -9
    fifo = tmp_path / "out" / "logs" / "g.J0.a1.events.control"
    assert fifo.is_fifo()
    done = benchsuite("jobs", "p.json", "-o", "out", "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not fifo.exists()
