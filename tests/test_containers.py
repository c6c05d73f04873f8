"""Workers in a container: the engine's command line, its end, and what the result says. The engine is a stand-in."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import PROGRAMS, side_by_side

from benchsuite.describe.containers import Container, missing_engine
from benchsuite.describe.jobs import resolve
from benchsuite.errors import OutputError, ProfileError
from benchsuite.launch.containers import PACKAGE, Contained, Needs
from benchsuite.provisions import Tenant

ENGINES = PROGRAMS / "engines"
NEEDS = Needs(
    folder=Path("/here"),
    written=[Path("/run/logs")],
    read=[Path("/modules"), Path("/data")],
    environ={"OMP_NUM_THREADS": "1"},
    gpus=["GPU-a", "GPU-b"],
    cpus=(0, 1),
    memory_bytes=1 << 30,
)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a stand-in for docker, which is on PATH."""
    monkeypatch.setenv("PATH", f"{ENGINES}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_PYTHON", sys.executable)
    monkeypatch.setenv("FAKE_DOCKER_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def calls(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def only(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a stand-in for one engine, and let PATH hold nothing else."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def pairs(words: list[str], option: str) -> list[str]:
    return [words[i + 1] for i, word in enumerate(words) if word == option]


def test_a_worker_in_a_container_is_measured_and_its_container_is_removed(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more").mkdir()
    container = Container(image="image:1", mounts=(str(tmp_path / "more"),))
    failing = {"params": {"kind": "exit"}, "container": container}
    found = side_by_side(tmp_path, monkeypatch, good={"container": container}, bad=failing)
    good, bad = found["good"], found["bad"]
    assert good.status == "ok", good.error
    assert good.measurement.streams[0].slices
    assert good.container and (good.container.engine, good.container.image) == ("docker", "image:1")
    assert "outside the task's group" in good.tenant.reason
    assert bad.status == "failed"
    assert bad.exit_code not in (0, None), "the exit status of the worker is that of the engine's client"
    runs = [words for words in calls(log) if words[0] == "run"]
    assert sorted(pairs(words, "--name")[0] for words in runs) == sorted(
        words[2] for words in calls(log) if words[:2] == ["rm", "--force"]
    )
    for words in runs:
        assert f"type=bind,source={tmp_path / 'more'},target={tmp_path / 'more'}" in pairs(words, "--mount")
        assert all("=" not in variable for variable in pairs(words, "--env") if variable != "HOME=/tmp")


def test_a_container_that_does_not_start_is_named_with_the_engine(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = side_by_side(tmp_path, monkeypatch, one={"container": Container(image="missing")})["one"]
    assert result.status == "failed"
    assert result.error
    assert result.error.kind == "container"
    assert "docker could not start the container of missing: docker: Error response" in result.error.message


def test_docker_gets_gpus_by_uuid_and_the_fence_as_options(log: Path) -> None:
    words = Contained(Container(image="image:1")).command(["python3", "-m", "w"], NEEDS)
    assert pairs(words, "--gpus") == ['"device=GPU-a,GPU-b"']
    assert pairs(words, "--cpuset-cpus") == ["0,1"]
    assert pairs(words, "--memory") == [str(1 << 30)]
    assert pairs(words, "--mount")[:2] == [
        "type=bind,source=/run/logs,target=/run/logs",
        "type=bind,source=/modules,target=/modules,readonly",
    ]
    assert words[-5:] == ["--entrypoint", "python3", "image:1", "-m", "w"]


def test_podman_gets_gpus_as_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(tmp_path / "bin", "podman", monkeypatch)
    words = Contained(Container(image="image:1")).command(["python3"], NEEDS)
    assert pairs(words, "--device") == ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"]


def test_apptainer_runs_the_worker_as_a_child_inside_the_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(tmp_path / "bin", "apptainer", monkeypatch)
    contained = Contained(Container(image="image:1"))
    words = contained.command(["python3", "-m", "w"], NEEDS)
    assert words[1:3] == ["exec", "--nv"]
    package = f"{PACKAGE}:/opt/benchsuite-host/benchsuite:ro"
    assert pairs(words, "--bind") == ["/modules:/modules:ro", "/data:/data:ro", package, "/run/logs"]
    assert words[-4:] == ["docker://image:1", "python3", "-m", "w"]
    facts = Tenant(asked="share", cpu="cpuset-v2", reason="a group")
    assert contained.fenced(facts) == facts


def test_without_an_engine_a_job_says_which_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "none of docker, podman, apptainer is on PATH" in (missing_engine(Container(image="a")) or "")
    assert "podman is not on PATH" in (missing_engine(Container(image="a", engine="podman")) or "")
    with pytest.raises(OutputError, match="on PATH"):
        Contained(Container(image="a"))


@pytest.mark.parametrize(
    ("container", "part"),
    [
        ({"image": ""}, "container.image"),
        ({"image": "--privileged"}, "no valid name"),
        ({"image": "a", "mounts": ["data"]}, "absolute path"),
        ({"image": "a", "mounts": ["/a:/b"]}, "without commas, colons"),
        ({"image": "a", "engine": "lxc"}, "container.engine"),
        ({"picture": "a"}, "container"),
    ],
)
def test_a_bad_container_is_refused_before_a_start(container: dict[str, Any], part: str) -> None:
    with pytest.raises(ProfileError) as refused:
        resolve("job", {"model": "polynome", "container": container}, "p.yaml")
    assert part in str(refused.value)


def test_the_name_of_an_image_stands_for_a_container() -> None:
    job = resolve("job", {"model": "polynome", "container": "image:1"}, "p.yaml")
    assert msgspec.to_builtins(job.container) == {"image": "image:1", "engine": None, "mounts": ()}
