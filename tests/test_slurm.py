"""Runs on the nodes of a real Slurm: a virtual cluster of four nodes on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import PROGRAMS, benchsuite, environ, in_process, one_line_error, start, statuses, wait_for, write_profile

from benchsuite.cluster import waiting
from benchsuite.cluster.fleet import FleetDir
from benchsuite.cluster.survey import Survey

TESTBED = PROGRAMS.parents[1] / "scripts" / "slurm_testbed"
SBIN = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
NODES = ("m1", "m2", "m3", "m4")

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(shutil.which("slurmctld", path=SBIN) is None, reason="Slurm is not installed"),
]


@contextlib.contextmanager
def virtual_cluster(folder: Path, nodes: int) -> Iterator[None]:
    """A cluster of virtual nodes, with the environment of its users."""
    subprocess.run([sys.executable, TESTBED, "up", folder, f"--nodes={nodes}"], check=True, capture_output=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH", "BENCHSUITE"))]:
            patch.delenv(name)
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PYTHONPATH", environ()["PYTHONPATH"])
        yield
    subprocess.run([sys.executable, TESTBED, "down", folder], check=True, capture_output=True)


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with virtual_cluster(tmp_path_factory.mktemp("cluster"), len(NODES)):
        yield


def slurm(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def queued() -> list[str]:
    """The ids of the jobs that wait or run."""
    return slurm("squeue", "--noheader", "--format=%i").split()


def job_of(out: Path, node: str) -> str:
    """The id of a node's newest job."""
    return [line.job_id for line in FleetDir(out).submitted() if line.node == node][-1]


def stand(out: Path) -> dict[str, str]:
    """How each node stands, in a word."""
    return {status.node: status.word for status in Survey(FleetDir(out)).look()}


def held(tmp_path: Path, *more: str) -> Path:
    """A run on m1 whose job waits for its release."""
    profile = write_profile(tmp_path / "p.json", job={})
    words = ("jobs", str(profile), "--slurm", "--nodelist", "m1", "--sbatch-arg=--hold", "--detach", "-o", "out", *more)
    done = in_process(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "out"


def test_whatever_ends_the_jobs_of_nodes_a_resume_runs_what_is_left(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "p.json", long={"min_time_s": 8})
    out = tmp_path / "out"
    running = start(
        "jobs", str(profile), "--slurm", "-o", "out", cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: all(list((out / node).glob("logs/*.events.jsonl")) for node in NODES), 60)
    slurm("scancel", job_of(out, "m1"))
    slurm("scontrol", "update", "nodename=m2", "state=down", "reason=fan")
    slurm("scancel", "--batch", "--signal=USR1", job_of(out, "m3"))  # what Slurm does before the time limit
    wait_for(lambda: list(stand(out).values())[:3] == ["cancelled", "node failure", "time limit"])
    running.send_signal(signal.SIGTERM)
    _, printed = running.communicate(timeout=40)
    assert running.returncode == 143
    assert "m2: node failure" in printed
    assert "1 job ended." in printed
    assert not queued()
    assert stand(out) == {"m1": "cancelled", "m2": "node failure", "m3": "time limit", "m4": "stopped"}
    for node in NODES:  # no task has failed: none of these ends is the task's
        assert statuses(out / node) == {"long.J0": ["interrupted"]}
    shown = in_process("status", "out", cwd=tmp_path)
    assert shown.returncode == 1
    assert "Slurm reports NODE_FAIL" in shown.stdout

    wait_for(lambda: slurm("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T").split() == ["idle"] * 4)
    again = benchsuite("jobs", "--resume", "out", cwd=tmp_path, env=environ())
    assert again.returncode == 0, again.stderr
    assert "4 nodes: 4 ok." in again.stderr
    for node in NODES:
        assert statuses(out / node) == {"long.J0": ["interrupted", "ok"]}
    nothing = in_process("jobs", "--resume", "out", cwd=tmp_path)
    assert "Nothing to do" in nothing.stderr
    report = in_process("report", "--systems", *(f"out/{node}" for node in NODES), cwd=tmp_path)
    assert all(node in report.stdout for node in NODES)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--partition", "mian"], ["no such partition", "did you mean 'main'?"]),
        (["--nodelist", "m[3-5]"], ["partition main has no node m5"]),
        (["--partition", "short", "--nodelist", "m3"], ["partition short has no node m3"]),
        (["--nodes", "9"], ["ask for at most 4"]),
        (["--nodes", "2", "--nodelist", "m1"], ["--nodelist; give one of them"]),
        (["--sbatch-arg=--mem=900G"], ["Slurm refuses the job", "--mem=900G"]),
        (["--sbatch-arg=--constraint=no"], ["Slurm refuses the job", "Invalid feature"]),
        (["--sbatch-arg=--partition=main"], ["use the option --partition of benchsuite"]),
        (["--sbatch-arg=-ox"], ["benchsuite sets --output itself"]),
        (["--name", "other"], ["no job 'other'"]),
    ],
)
def test_a_request_that_cannot_be_fulfilled_is_refused_and_leaves_nothing(
    words: list[str], parts: list[str], tmp_path: Path
) -> None:
    profile = write_profile(tmp_path / "p.json", job={})
    one_line_error(in_process("jobs", str(profile), "--slurm", "-o", "out", *words, cwd=tmp_path), *parts)
    assert not (tmp_path / "out").exists()
    assert not queued()


def test_a_node_that_is_down_is_not_used(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "p.json", job={})
    slurm("scontrol", "update", "nodename=m4", "state=drain", "reason=fan is loud")
    try:
        named = in_process("jobs", str(profile), "--slurm", "--nodelist", "m4", cwd=tmp_path)
        one_line_error(named, "node m4 is drained (fan is loud)")
        counted = in_process("jobs", str(profile), "--slurm", "--nodes", "4", cwd=tmp_path)
        one_line_error(counted, "3 can run jobs", "fan is loud", "ask for at most 3")
        dry = in_process("jobs", str(profile), "--slurm", "--dry-run", cwd=tmp_path)
        assert "--nodelist=m3" in dry.stdout
        assert "--nodelist=m4" not in dry.stdout
    finally:
        slurm("scontrol", "update", "nodename=m4", "state=resume")
    assert not queued()


def test_a_node_that_does_not_see_the_results_folder_is_refused(tmp_path: Path) -> None:
    out = held(tmp_path)
    job = job_of(out, "m1")
    moved = out.rename(tmp_path / "elsewhere")
    slurm("scontrol", "release", job)
    wait_for(lambda: not queued())
    shown = in_process("status", "elsewhere", cwd=tmp_path)
    assert "refused" in shown.stdout
    assert "name one on a shared file system" in " ".join(shown.stdout.split())
    assert not (moved / "m1").exists()
    assert not out.exists()


def test_a_job_whose_node_goes_down_before_it_starts_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "DOWN_S", 0.0)
    out = held(tmp_path)
    slurm("scontrol", "update", "nodename=m1", "state=drain", "reason=fan")
    try:
        slurm("scontrol", "release", job_of(out, "m1"))
        seen: list[str] = []
        wait = waiting.Waiting(Survey(FleetDir(out)), lambda nodes: seen.append(nodes[0].word), seen.append, bool)
        (status,) = wait.wait()
    finally:
        slurm("scontrol", "update", "nodename=m1", "state=resume")
    assert seen[0] == "waiting"
    assert status.word == "refused"
    assert "would never start" in status.detail
    assert waiting.exit_status([status]) == 2
    assert not queued()


def test_a_dependency_that_is_never_satisfied_refuses_the_job(tmp_path: Path) -> None:
    first = slurm("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").strip()
    profile = write_profile(tmp_path / "p.json", job={})
    words = ("jobs", str(profile), "--slurm", "--nodes", "1", f"--sbatch-arg=--dependency=afterok:{first}", "-o", "out")
    running = start(*words, cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(queued()) == 2)
    slurm("scancel", first)
    _, printed = running.communicate(timeout=30)
    assert running.returncode == 2
    assert "DependencyNeverSatisfied" in printed
    assert not queued()


def test_stop_ends_the_jobs_of_this_run_and_no_others(tmp_path: Path) -> None:
    out = held(tmp_path)
    name = FleetDir(out).fleet().job_name
    of_another = slurm(
        "sbatch", "--parsable", "--hold", f"--job-name={name}", "--output=/dev/null", "--wrap=true"
    ).strip()
    try:
        assert in_process("stop", "out", cwd=tmp_path).returncode == 0
        assert queued() == [of_another]
    finally:
        slurm("scancel", of_another)
    assert stand(out) == {"m1": "cancelled"}
    assert "Slurm has no job of this run" in in_process("stop", "out", cwd=tmp_path).stderr


def test_a_job_that_was_submitted_but_not_noted_is_found_by_its_comment(tmp_path: Path) -> None:
    out = held(tmp_path)
    job = job_of(out, "m1")
    (out / ".cluster" / "jobs.jsonl").write_text(json.dumps({"node": "m1"})[:-4])  # the host crashed here
    (status,) = Survey(FleetDir(out)).look()
    assert (status.word, status.job_id) == ("waiting", job)
    in_process("stop", "out", cwd=tmp_path)
    assert not queued()


def test_slurm_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = write_profile(tmp_path / "p.json", job={})
    (tmp_path / "slurm.conf").write_text("ClusterName=none\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    one_line_error(in_process("jobs", str(profile), "--slurm", cwd=tmp_path), "Slurm does not answer", "sinfo")
    monkeypatch.setenv("PATH", str(tmp_path))
    one_line_error(in_process("jobs", str(profile), "--slurm", cwd=tmp_path), "sbatch is not on PATH")
