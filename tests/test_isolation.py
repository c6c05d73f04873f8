"""Fences as a run has them: what is in force is in the result, and a task that breaks its bounds falls alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import benchsuite, environ, one_line_error, read_results, side_by_side, start, wait_for, write_profile

from benchsuite.isolation.fencing import Fencing
from benchsuite.rundir import RunDir

ROOT = os.getuid() == 0


@pytest.fixture(name="fencing")
def fencing_fixture() -> Iterator[Fencing]:
    """Real groups with CPU and memory, or no test."""
    fencing = Fencing.choose("auto", require=False, largest=2)
    try:
        found = fencing.describe()
        if found.memory == "none" or not found.cpu.startswith("cpuset"):
            pytest.skip(f"no control groups here: {fencing.reason}")
        yield fencing
    finally:
        fencing.close()


def test_two_tasks_side_by_side_share_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fencing: Fencing
) -> None:
    if len(fencing.cpus) < 2:
        pytest.skip("needs two CPUs")
    found = side_by_side(tmp_path, monkeypatch, fencing, one={"min_time_s": 1.5}, two={"min_time_s": 1.5})
    one, two = found["one"].tenant, found["two"].tenant
    assert one.cpus
    assert len(one.cpus) == len(two.cpus)
    assert not set(one.cpus) & set(two.cpus)
    assert one.memory_bytes == two.memory_bytes
    assert one.memory_bytes is not None
    assert abs(one.memory_bytes * 2 - fencing.memory_bytes) <= 8192
    for result in found.values():
        assert result.tenant.cpu.startswith("cpuset-v")
        assert result.tenant.oom_kills == 0
        assert result.tenant.peak_memory_bytes is not None
        assert 5 << 20 < result.tenant.peak_memory_bytes < 500 << 20
        assert result.telemetry is not None
        assert result.telemetry.tenant is not None
        assert result.telemetry.tenant.samples >= 1


def test_a_task_over_its_memory_is_oom_and_its_neighbour_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fencing: Fencing
) -> None:
    fencing.memory_bytes = 400 << 20
    eater = {"params": {"kind": "eats", "after_s": 0.8}, "min_time_s": 20.0, "max_time_s": 30.0}
    found = side_by_side(tmp_path, monkeypatch, fencing, eater=eater, neighbour={"min_time_s": 2.0})
    assert {name: r.status for name, r in found.items()} == {"eater": "oom", "neighbour": "ok"}
    eaten = found["eater"]
    assert eaten.tenant.oom_kills == 1
    assert eaten.error is not None
    assert "killed for want of memory in its group" in eaten.error.message
    assert len(eaten.measurement.streams[0].slices) >= 1
    assert found["neighbour"].tenant.oom_kills == 0
    (file,) = (tmp_path / "out").glob("p.eater.FAIL.*.json")
    assert json.loads(file.read_text())["status"] == "oom"


def test_nothing_is_left_of_the_groups_of_a_run(tmp_path: Path, fencing: Fencing) -> None:
    profile = write_profile(tmp_path / "p.json", job={})
    done = benchsuite("jobs", str(profile), "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    group = read_results(tmp_path / "out")["job"].tenant.group
    assert group is not None
    assert group.startswith("benchsuite-")
    left = [p for p in Path("/sys/fs/cgroup").rglob(group.split("/")[0]) if p.is_dir()]
    assert left == []


def test_what_was_asked_is_in_the_result(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={"params": {"file": str(tmp_path / "seen.json")}}))
    for words, cpu in ((["--isolation", "affinity"], "affinity"), (["--no-cgexec"], "none")):
        out = words[-1].strip("-")
        assert benchsuite("jobs", profile, "-o", out, *words, cwd=tmp_path).returncode == 0
        tenant = read_results(tmp_path / out)["job"].tenant
        assert (tenant.cpu, tenant.memory) == (cpu, "none")
        assert "was asked for" in tenant.reason
        report = benchsuite("report", "--full", out, cwd=tmp_path)
        assert f"CPU {cpu}, memory none" in report.stdout


def test_isolation_that_is_required_is_not_given_up_quietly(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", job={}))
    for words in (["--isolation", "none"], ["--no-cgexec"]):
        done = benchsuite("jobs", profile, "-o", "out", "--require-isolation", *words, cwd=tmp_path)
        one_line_error(done, "--require-isolation")
        assert not (tmp_path / "out").exists()
        one_line_error(benchsuite("jobs", profile, "--require-isolation", *words, cwd=tmp_path), "--require-isolation")
        assert list((tmp_path / "results").iterdir()) == [], "no empty folder is left either"


@pytest.mark.skipif(not ROOT, reason="needs root to mount a small disk")
def test_on_a_full_disk_a_run_waits_and_can_be_ended(tmp_path: Path) -> None:
    """A real one of 3 MB, which the task's own output fills."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        profile = str(write_profile(tmp_path / "p.json", job={"params": {"kind": "noisy"}}, after={}))
        with (tmp_path / "err").open("wb") as err:
            run = start("jobs", profile, "-o", str(disk / "out"), cwd=tmp_path, stderr=err)
        wait_for(lambda: b"the run waits up to 10 min" in (tmp_path / "err").read_bytes())
        run.terminate()
        assert run.wait(120) == 128 + signal.SIGTERM
        said = (tmp_path / "err").read_text()
        assert "no space left; the run waits up to 10 min; results in memory: 1" in said
        assert "the result could not be written: no space left; --resume repeats its wave" in said
        assert "0 passed, 0 failed, 2 not run" in said
        assert "Traceback" not in said
        assert [p.name for p in (disk / "out").iterdir() if p.name.endswith(".tmp")] == []
        plan = RunDir(disk / "out").plan()
        assert [t.id for t in plan.tasks] == ["job.J0", "after.J0"]
        report = benchsuite("report", str(disk / "out"), cwd=tmp_path, env=environ())
        assert report.returncode == 1
        assert "UNFINISHED: 2 of 2 tasks still to run" in report.stdout
    finally:
        subprocess.run(["umount", str(disk)], check=True)
