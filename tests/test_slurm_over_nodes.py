"""Jobs over nodes on a real Slurm: a virtual cluster of two nodes on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import benchsuite, environ, in_process, one_line_error, statuses, wait_for
from test_group_runs import failing, write
from test_slurm import SBIN, job_of, queued, slurm, stand, virtual_cluster

from benchsuite.cluster.fleet import ACROSS
from benchsuite.records import Result
from benchsuite.rundir import results

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.slurm,
    pytest.mark.timeout(900),  # four runs with torch, beside other tests
    pytest.mark.skipif(shutil.which("slurmctld", path=SBIN) is None, reason="Slurm is not installed"),
]
NODES = {"placement": {"devices": "none", "nodes": 2}, "timeout_s": 250.0}
VAE = {"model": "vae", "params": {"batch_size": 16}, "min_time_s": 0.7, "loss_band": [1, 1000]}
# A transformer whose units are a chain.
SIZES = {"batch_size": 4, "length": 12, "vocabulary": 60, "nlayers": 2, "width": 16, "heads": 2, "tied": False}
TINY = {"model": "bert", "params": SIZES, "min_time_s": 0.7, "loss_band": [0.1, 100]}


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with virtual_cluster(tmp_path_factory.mktemp("cluster"), nodes=2):
        yield


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one job of each node and of three jobs over both, of which one fails on the second node."""
    folder = tmp_path_factory.mktemp("ended")
    write(
        folder / "p.json",
        single={"model": "polynome", "parallel": {"dp": 1}, "min_time_s": 0.7},
        dp={**VAE, **NODES},
        pp={**TINY, **NODES, "parallel": {"pp": 2, "microbatches": 4}},
        dies=failing("sigkill", **NODES),
    )
    done = benchsuite("jobs", "p.json", "--slurm", "-o", "out", cwd=folder, env=environ(), timeout=800)
    assert done.returncode == 1, done.stderr
    assert "2 nodes: 2 ok; jobs over nodes: tasks failed." in done.stderr
    assert not queued()
    return folder


def found(folder: Path) -> dict[str, Result]:
    return {one.task.job.name: one for _, one in results(folder / "out" / ACROSS) if isinstance(one, Result)}


def test_jobs_over_nodes_and_jobs_of_each_node_run_in_one_submission(ended: Path) -> None:
    for node in ("m1", "m2"):
        assert statuses(ended / "out" / node) == {"single.J0": ["ok"]}
    assert statuses(ended / "out" / ACROSS) == {"dp.J0": ["ok"], "pp.J0": ["ok"], "dies.J0": ["killed"]}
    of = found(ended)
    for name in ("dp", "pp"):
        assert [part.node for part in of[name].parts] == ["m1", "m2"]
        assert [stream.rank for stream in of[name].measurement.streams] == [0, 1]
    first = of["pp"].measurement.streams[0]
    assert first.pipeline and [stage.ranks for stage in first.pipeline.stages] == [(0,), (1,)]


def test_a_rank_that_dies_is_named_with_its_node(ended: Path) -> None:
    error = found(ended)["dies"].error
    assert error and error.message == "rank 1 of 2 (m2) was killed by SIGKILL"


def test_what_reads_a_run_copes_with_the_folder_of_jobs_over_nodes(ended: Path) -> None:
    assert "BAD" not in in_process("verify", f"out/{ACROSS}", cwd=ended).stdout
    report = in_process("report", "out", cwd=ended)
    assert "m1" in report.stdout and f"{ACROSS}  " not in report.stdout, "it is no node"
    assert f"report out/{ACROSS}" in report.stderr
    assert "dp" in in_process("report", f"out/{ACROSS}", cwd=ended).stdout
    shown = in_process("status", "out", cwd=ended).stdout
    assert ACROSS in shown and "tasks failed" in shown


def test_whatever_ends_a_job_over_nodes_a_resume_runs_what_is_left(tmp_path: Path) -> None:
    """The first attempt is cancelled while it is prepared, a node of the second fails while it trains."""
    idle = {"entry": "group_faults:build", "params": {"after": 1_000_000}, "min_time_s": 12.0, "max_time_s": 60.0}
    first, out = tmp_path / "first", tmp_path / "out"
    first.touch()
    write(tmp_path / "p.json", long={**idle, **NODES, "prepare": f"test ! -e {first} || sleep 600"})
    logs = out / ACROSS / "logs"
    words = ("jobs", "p.json", "--slurm", "-o", "out", "--detach")
    assert benchsuite(*words, cwd=tmp_path, env=environ()).returncode == 0
    wait_for(lambda: (logs / "long.J0.a1.task.json").exists(), 400)
    slurm("scancel", job_of(out, ACROSS))
    wait_for(lambda: not queued(), 60)
    assert stand(out) == {ACROSS: "cancelled"}

    first.unlink()
    assert benchsuite("jobs", "--resume", "out", "--detach", cwd=tmp_path, env=environ()).returncode == 0
    events = logs / "long.J0.a2.events.1.jsonl"
    wait_for(lambda: events.exists() and events.read_text().count("\n") > 2, 400)
    slurm("scontrol", "update", "nodename=m2", "state=down", "reason=fan")
    wait_for(lambda: not queued(), 60)
    assert stand(out) == {ACROSS: "node failure"}
    assert statuses(out / ACROSS) == {"long.J0": ["interrupted"] * 2}, "none of these ends is the task's"

    wait_for(lambda: slurm("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T").split() == ["idle"] * 2)
    last = benchsuite("jobs", "--resume", "out", cwd=tmp_path, env=environ(), timeout=600)
    assert last.returncode == 0, last.stderr
    assert statuses(out / ACROSS) == {"long.J0": ["interrupted", "interrupted", "ok"]}
    assert "jobs over nodes: ok." in last.stderr


def test_more_nodes_than_the_run_has_are_refused_before_anything_is_submitted(tmp_path: Path) -> None:
    write(tmp_path / "p.json", v={**VAE, **NODES})
    done = in_process("jobs", "p.json", "--slurm", "--nodes", "1", "-o", "out", cwd=tmp_path)
    one_line_error(done, "job 'v': it spans 2 nodes, and the run has 1")
    assert not (tmp_path / "out").exists()
    assert not queued()
