"""Runs of groups of ranks over gloo on the CPU: how they measure, how they fail, and who is named."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import benchsuite, environ, kill_rank, nothing_left, one_line_error, read_results, start

pytest.importorskip("torch")

from benchsuite.records import Result
from benchsuite.rundir import results
from benchsuite.worker.warmup import WARM_UP_STEPS

pytestmark = pytest.mark.torch

GROUP = {
    "placement": "cpu", "parallel": {"dp": 2},
    "warm_up_s": 0.0, "min_time_s": 1.0, "max_time_s": 30.0, "timeout_s": 90.0,
}  # fmt: skip


def write(path: Path, **jobs: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"*": GROUP, **jobs}), encoding="utf-8")
    return path


FIFO = "out/logs/g.J0.a1.events.control"


def failing(kind: str, rank: int = 1, **fields: Any) -> dict[str, Any]:
    return {"entry": "group_faults:build", "params": {"kind": kind, "rank": rank}, "min_time_s": 30.0, **fields}


def ended_together(folder: Path, env: dict[str, str], *profiles: str) -> list[tuple[int, str]]:
    """Run profiles at the same time, each into a folder of its name: exit status and stderr of each."""
    running = [
        start("jobs", f"{name}.json", "-o", name, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
        for name in profiles
    ]
    return [(process.returncode, err) for process in running for err in [process.communicate(timeout=240)[1]]]


@contextlib.contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        held.listen()
        yield held.getsockname()[1]


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs that went on at the same time: a group, and a progression up to a group."""
    folder = tmp_path_factory.mktemp("at_once")
    vae = {"model": "vae", "params": {"batch_size": 16}, "warm_up_s": 2.0, "min_time_s": 4.8}
    write(folder / "group.json", v={**vae, "loss_band": [1, 1000]})
    idle = {"entry": "group_faults:build", "params": {"after": 1_000_000}}
    write(folder / "steps.json", s={**idle, "placement": "gpu_progression_or_cpu", "min_time_s": 4.8})
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.enter_context(listening(29500))
        ended = ended_together(folder, environ(MASTER_PORT="29500", RANK="3"), "group", "steps")
    assert [status for status, _ in ended] == [0, 0], ended
    return folder


def test_a_group_is_one_task_with_the_slices_of_each_rank(at_once: Path) -> None:
    result = read_results(at_once / "group")["v"]
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
    assert min(one.warm_up.elapsed_s, other.warm_up.elapsed_s) >= 2.0
    layers = [784 * 400, *(2 * [400 * 20]), 20 * 400, 400 * 784]
    assert one.model_flops
    assert one.model_flops.per_item == 6 * sum(layers) - 2 * layers[0], "images get no gradient"
    report = benchsuite("report", "--full", "group", cwd=at_once).stdout
    total = sum(s.items for stream in (one, other) for s in stream.slices)
    assert total > 0
    assert "batch of 16 for each of 2 ranks, 32 in all" in " ".join(report.split())
    nothing_left(at_once / "group")


def test_a_progression_on_the_cpu_is_a_job_for_each_number_of_ranks(at_once: Path) -> None:
    files = sorted(path.name for path in (at_once / "steps").glob("steps.s.*.json"))
    assert [name.split(".2")[0] for name in files] == ["steps.s.J0.0", "steps.s.J0.1"]
    report = benchsuite("report", "steps", cwd=at_once).stdout
    assert "s.1" in report and "s.2" in report


def test_two_groups_at_once_do_not_meet(at_once: Path) -> None:
    found = [result for name in ("group", "steps") for _, result in results(at_once / name)]
    ports = [result.group.port for result in found if isinstance(result, Result) and result.group]
    assert len(ports) == 2
    assert len({*ports, None, 29500}) == 4, "two ports that are free"


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [("raise", "failed", "rank 1 of 2: no more naps"), ("leave", "failed", "rank 1 of 2 exited with 0 before its end")],
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


def test_a_rank_that_hangs_is_named_when_time_is_up(tmp_path: Path) -> None:
    kinds = ("hang", "hang_in_data")
    for kind in kinds:
        write(tmp_path / f"{kind}.json", g=failing(kind, max_time_s=40.0, timeout_s=75.0))
    assert [status for status, _ in ended_together(tmp_path, environ(), *kinds)] == [1, 1]
    for kind in kinds:
        result = read_results(tmp_path / kind)["g"]
        assert result.status == "timeout"
        assert result.error is not None
        assert "not ended within 75 s; rank 1 of 2 is behind the others" in result.error.message
        nothing_left(tmp_path / kind)


def test_a_rank_killed_by_hand_leaves_one_counted_failure_and_its_slices(tmp_path: Path) -> None:
    write(tmp_path / "p.json", g={"model": "polynome", "min_time_s": 60.0, "max_time_s": 80.0, "timeout_s": 100.0})
    running = start("jobs", "p.json", "-o", "out", cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True)
    kill_rank(tmp_path / "out", "g.J0", 1)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 1, stderr
    result = read_results(tmp_path / "out")["g"]
    assert result.error is not None
    assert (result.status, result.error.message) == ("killed", "rank 1 of 2 was killed by SIGKILL")
    assert len(result.measurement.streams) == 2
    assert all(stream.slices for stream in result.measurement.streams)
    nothing_left(tmp_path / "out")


@pytest.fixture(scope="module")
def on_a_port(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The folder with the run `out` of a group whose profile gives a port, and the port.

    The run was killed while its group was started, and then resumed.
    """
    folder = tmp_path_factory.mktemp("port")
    with listening() as free:
        pass
    write(folder / "p.json", g={"model": "polynome", "parallel": {"dp": 2, "port": free}})
    script = (
        "import os, signal, sys; from benchsuite.launch import child; from benchsuite import cli\n"
        "child.write_new = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cli.main(['jobs', 'p.json', '-o', 'out'])"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environ(), check=False, timeout=90)
    assert killed.returncode == -9
    assert (folder / FIFO).is_fifo()
    done = benchsuite("jobs", "p.json", "-o", "out", "--resume", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, free


def test_a_port_of_the_profile_is_used_as_given(on_a_port: tuple[Path, int]) -> None:
    folder, port = on_a_port
    group = read_results(folder / "out")["g"].group
    assert group is not None
    assert group.port == port


def test_a_port_of_the_profile_that_is_taken_is_named(tmp_path: Path) -> None:
    with listening() as taken:
        write(tmp_path / "p.json", g={"model": "polynome", "parallel": {"dp": 2, "port": taken}})
        done = benchsuite("jobs", "p.json", "-o", "again", cwd=tmp_path)
    assert done.returncode == 1
    error = read_results(tmp_path / "again")["g"].error
    assert error is not None
    assert f"port {taken} (parallel.port) cannot be used: address already in use" in error.message


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
    done = benchsuite("jobs", "p.json", "-o", "out", "--dry-run", "--", "--batch-size", "2000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_rerun_of_a_group_is_a_group(on_a_port: tuple[Path, int]) -> None:
    folder, _ = on_a_port
    (file,) = (folder / "out").glob("p.g.*.json")
    done = benchsuite("rerun", str(file), "-o", "again.json", "--", "--min-time-s", "0.6", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "again.json").read_text())["group"]["ranks"] == 2


def test_a_group_that_was_killed_while_it_was_started_is_resumed(on_a_port: tuple[Path, int]) -> None:
    """The FIFO of the killed attempt lay there already; the resumed run took its place and left none behind."""
    folder, _ = on_a_port
    assert read_results(folder / "out")["g"].identity.attempt == 1, "the killed one was not noted yet"
    assert not (folder / FIFO).exists()
