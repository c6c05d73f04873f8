"""The image: what its build gets, and the command lines of its scripts. The engines are stand-ins."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCKER = ROOT / "docker"
OWN = f"{os.getuid()}:{os.getgid()}"
pytestmark = pytest.mark.skipif(not DOCKER.is_dir(), reason="not a checkout")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the only one on PATH beside those of the system; `docker` and `podman` print their words."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("docker", "podman"):
        stand_in(folder, name, 'printf "%s\\n" "$0" "$@"')
    for name in ("bash", "cat", "dirname", "git", "grep", "id", "mkdir", "sed"):
        (folder / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(folder))
    for name in ("ENGINE", "RESULTS", "WRITE_DATA", "SHM_SIZE", "OPTIONS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return folder


def stand_in(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def call(script: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DOCKER / script, *words], cwd=cwd, capture_output=True, text=True, check=False)


def launched(*words: str, cwd: Path) -> list[str]:
    """The words of the engine, the first one by its name."""
    done = call("launch.sh", *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    return [Path(first).name, *rest]


def test_without_a_gpu_the_container_gets_folders_the_caller_and_shared_memory(tmp_path: Path, engine: Path) -> None:
    (tmp_path / "sets").mkdir()
    assert launched("sets", "image:1", "--", "jobs", "smoke", "--", "--lr", "1 2", cwd=tmp_path) == [
        "docker", "run", "--rm", "--workdir", "/work",
        "--mount", f"type=bind,source={tmp_path},target=/work,readonly",
        "--mount", f"type=bind,source={tmp_path}/results,target=/results",
        "--mount", f"type=bind,source={tmp_path}/sets,target=/data,readonly",
        "--user", OWN, "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ulimit", "memlock=-1",
        "--ipc", "host", "image:1", "jobs", "smoke", "--", "--lr", "1 2",
    ]  # fmt: skip


def test_podman_keeps_the_callers_number_and_gets_gpus_by_their_device(
    tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(engine, "nvidia-smi", "echo 'GPU 0: NVIDIA Test (UUID: GPU-0)'")
    monkeypatch.setenv("ENGINE", "podman")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("SHM_SIZE", "16g")
    monkeypatch.setenv("OPTIONS", "--cpuset-cpus 0-3 --network none")
    keep_id = ["--userns", "keep-id"] if os.getuid() else []
    assert launched("--", "doctor", cwd=tmp_path) == [
        "podman", "run", "--rm", "--workdir", "/work",
        "--mount", f"type=bind,source={tmp_path},target=/work,readonly",
        "--mount", f"type=bind,source={tmp_path}/results,target=/results",
        "--user", OWN, "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
        "--security-opt", "label=disable", *keep_id, "--shm-size", "16g",
        "--device", "nvidia.com/gpu=all", "--env", "CUDA_VISIBLE_DEVICES",
        "--cpuset-cpus", "0-3", "--network", "none", "benchsuite", "doctor",
    ]  # fmt: skip


def test_docker_gets_all_gpus_and_the_folder_data_is_found(
    tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(engine, "nvidia-smi", "echo 'GPU 0: NVIDIA Test (UUID: GPU-0)'")
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("WRITE_DATA", "1")
    words = launched("--", "prepare", cwd=tmp_path)
    assert words[words.index("--gpus") + 1] == "all"
    assert f"type=bind,source={tmp_path}/data,target=/data" in words
    assert "CUDA_VISIBLE_DEVICES" not in words


@pytest.mark.parametrize(
    ("words", "environ", "part"),
    [
        (["nowhere", "--", "doctor"], {}, "no data folder nowhere"),
        (["a,b", "--", "doctor"], {}, "a mount cannot hold a comma"),
        (["--gpus", "all"], {}, "unknown option --gpus; the words for benchsuite come after --"),
        (["data", "tag", "doctor"], {}, "at most DATA and TAG"),
        (["--", "doctor"], {"ENGINE": "lxc"}, "ENGINE=lxc is neither docker nor podman"),
        (["--", "doctor"], {"ENGINE": "/no/docker"}, "is not on PATH"),
        (["--", "doctor"], {"RESULTS": "file/results"}, "file/results cannot be made; set RESULTS"),
    ],
)
def test_a_wrong_launch_is_one_line_of_its_own(
    words: list[str], environ: dict[str, str], part: str, tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a,b").mkdir()
    (tmp_path / "file").touch()
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    done = call("launch.sh", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("launch.sh: ")
    assert part in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("script", "part"),
    [("launch.sh", "neither docker nor podman is on PATH"), ("build.sh", "none of docker, podman, buildah is on PATH")],
)
def test_without_an_engine_the_scripts_say_so(script: str, part: str, tmp_path: Path, engine: Path) -> None:
    for name in ("docker", "podman"):
        (engine / name).unlink()
    done = call(script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{script}: ") and part in done.stderr


def test_the_build_hands_the_commit_and_the_options_on(tmp_path: Path, engine: Path) -> None:
    done = call("build.sh", "image:1", "--", "--build-arg", "BASE=x y", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[1:6] == ["build", "--file", f"{DOCKER}/Dockerfile", "--tag", "image:1"]
    assert words[-3:] == ["--build-arg", "BASE=x y", str(ROOT)]
    commit = next(word for word in words if word.startswith("COMMIT="))
    assert re.fullmatch(r"COMMIT=([0-9a-f]{40}(\+dirty)?)?", commit)


@pytest.mark.parametrize("script", sorted(DOCKER.glob("*.sh")) if DOCKER.is_dir() else [])
def test_a_script_is_one_that_bash_reads_and_shows_its_help(script: Path, tmp_path: Path) -> None:
    assert script.stat().st_mode & stat.S_IXUSR
    subprocess.run(["bash", "-n", script], check=True)
    shown = call(script.name, "--help", cwd=tmp_path).stdout
    assert f"docker/{script.name} [" in shown
    assert "set -euo" not in shown and "#" not in shown


def in_context() -> list[Path]:
    """The files of the checkout that .dockerignore lets into the build: the last pattern that matches decides."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = []
    for name in filter(None, listed.split("\0")):
        parts = name.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        left_out = False
        for line in lines:
            pattern = line.removeprefix("!").removeprefix("**/")
            if any(fnmatch.fnmatchcase(path, pattern) for path in above):
                left_out = not line.startswith("!")
        if not left_out and (ROOT / name).is_file():
            found.append(Path(name))
    return found


def test_the_context_of_the_build_makes_the_wheel_that_the_checkout_makes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    context = in_context()
    if not context:
        pytest.skip("no git here")
    assert {path.parts[0] for path in context}.isdisjoint({"tests", "scripts", "docs", ".ci", ".git", "results"})
    for path in context:
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tmp_path / "source" / path)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environ = {**os.environ, "BENCHSUITE_COMMIT": "0123456789abcdef+dirty"}
    subprocess.run(build, cwd=tmp_path / "source", env=environ, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        code = archive.read("benchsuite/share/code.json")
    assert code == b'{"commit": "0123456789abcdef", "dirty": true}'
    shipped = {f"benchsuite/share/{path}" for path in context if path.parts[0] in SHIPPED}
    assert shipped <= names
    assert {str(path) for path in context if path.parts[0] == "benchsuite"} <= names
    asked = subprocess.run(
        [sys.executable, "docker/requirements.py", "pyproject.toml", "rl"],
        cwd=tmp_path / "source", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert any(line.startswith("torch>=") for line in asked.stdout.splitlines())
    assert any(line.startswith("gymnasium") for line in asked.stdout.splitlines())


SHIPPED = {"profiles", "weights", "baselines", "datasets", "cards", "health"}


def test_apptainer_gets_what_docker_gets() -> None:
    """Both definitions name the same files, base and extras, and neither asks for more rights."""
    text, dockerfile = (DOCKER / "benchsuite.def").read_text(), (DOCKER / "Dockerfile").read_text()
    files = text.partition("%files\n")[2].partition("\n%post")[0]
    given = {line.split()[0] for line in files.splitlines() if line.strip()}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert given == allowed
    for name in ("BASE", "EXTRAS"):
        (own,) = re.findall(rf"^    {name}=(.*)$", text, re.MULTILINE)
        (other,) = re.findall(rf'^ARG {name}="?([^"\n]*)"?$', dockerfile, re.MULTILINE)
        assert own == other
    assert "--privileged" not in "".join(path.read_text() for path in DOCKER.iterdir() if path.suffix == ".sh")
