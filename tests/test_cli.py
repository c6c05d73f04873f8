"""The front door: light, complete, and plain when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import benchsuite, environ, one_line_error, read_results, write_profile

from benchsuite.cli import benchsuite as group

COMMANDS = group.list_commands(None)  # type: ignore[arg-type]
HEAVY = ("torch", "torchvision", "pandas", "matplotlib", "scipy", "numpy", "gymnasium")


@pytest.mark.parametrize("arguments", [["--help"], *([c, "--help"] for c in COMMANDS), ["list", "models"]])
def test_help_is_light(arguments: list[str]) -> None:
    code = f"import sys; from benchsuite.cli import main\ntry: main({arguments!r})\n"
    code += "except SystemExit as e: assert not e.code\n"
    code += f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("LOADED []")


def test_every_command_is_listed_with_its_purpose(tmp_path: Path) -> None:
    done = benchsuite("--help", cwd=tmp_path)
    for name in ("jobs", "run", "rerun", "report", "summary", "list"):
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("arguments", [["jbos"], ["--what"], ["jobs"], ["list", "nothing"]])
def test_wrong_usage_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    one_line_error(benchsuite(*arguments, cwd=tmp_path), "--help")


def test_lists(tmp_path: Path) -> None:
    models = benchsuite("list", "models", cwd=tmp_path).stdout
    for name in ("polynome", "sine_wave", "vae", "cart_pole", "convnet"):
        assert f"\n{name}: " in f"\n{models}"
    assert "--batch-size int = " in models
    profiles = benchsuite("list", "profiles", cwd=tmp_path).stdout
    assert "smoke: 6 jobs" in profiles
    assert "standard: 5 jobs" in profiles
    assert "none yet" in benchsuite("list", "datasets", cwd=tmp_path).stdout


def test_the_schema_is_generated_from_the_types_and_is_that_of_version_1(tmp_path: Path) -> None:
    """A change of the record shows here; one that old files do not fit needs a new schema number."""
    printed = benchsuite("list", "schema", cwd=tmp_path).stdout
    assert json.loads(printed)["$ref"] == "#/$defs/Result"
    golden = Path(__file__).parent / "data" / "result-schema-1.json"
    assert printed == golden.read_text(encoding="utf-8")


def test_run_prints_its_result(tmp_path: Path) -> None:
    done = benchsuite("run", "faults:build", "--", "--min-time-s", "0.7", "--items", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "ok"
    assert result["task"]["job"]["params"]["items"] == 3
    assert result["identity"]["devices"] == []
    assert list(tmp_path.iterdir()) == []


def test_run_writes_exactly_the_file_and_never_over_one(tmp_path: Path) -> None:
    arguments = ["run", "faults:build", "-o", "x.json", "--", "--max-count", "5"]
    assert benchsuite(*arguments, cwd=tmp_path).returncode == 0
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text)["measurement"]["streams"][0]["slices"][-1][3] >= 1
    one_line_error(benchsuite(*arguments, cwd=tmp_path), "x.json", "not overwritten", "-o")
    assert (tmp_path / "x.json").read_text() == text
    one_line_error(benchsuite(*arguments[:3], "no/x.json", cwd=tmp_path), "no/x.json", "cannot be written")


def test_run_keeps_a_folder_with_logs(tmp_path: Path) -> None:
    done = benchsuite("run", "faults:build", "-o", "out", "--", "--kind", "raise", "--after-s=0.1", cwd=tmp_path)
    assert done.returncode == 1
    assert read_results(tmp_path / "out")["faults:build"].status == "failed"
    assert len(list((tmp_path / "out" / "logs").iterdir())) == 4


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["vea"], ["no model 'vea'", "did you mean 'vae'?"]),
        (["vae", "--", "--batch", "3"], ["'--batch'", "batch_size"]),
        (["vae", "-d", "nowhere"], ["no data folder 'nowhere'"]),
        (["faults:bild"], ["no function 'bild'"]),
    ],
)
def test_bad_runs_are_one_line(arguments: list[str], parts: list[str], tmp_path: Path) -> None:
    one_line_error(benchsuite("run", *arguments, cwd=tmp_path), *parts)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    profile = write_profile(
        folder / "p.json",
        job={"params": {"file": str(folder / "seen.json"), "words": ["a", "b c"]}, "env": {"MINE": "1"}},
    )
    done = benchsuite("jobs", str(profile), "-o", "out", cwd=folder, env=environ(OMP_NUM_THREADS="3"))
    assert done.returncode == 0, done.stderr
    return folder


def test_rerun_is_the_same_task_in_the_same_environment(finished: Path) -> None:
    (path,) = (finished / "out").glob("p.job.*.json")
    seen = json.loads((finished / "seen.json").read_text())
    done = benchsuite("rerun", str(path), "-o", "-", cwd=finished, env=environ(MKL_NUM_THREADS="9"))
    assert done.returncode == 0, done.stderr
    again = json.loads((finished / "seen.json").read_text())
    told = [k for k in seen if k not in ("pid", "environ")]
    assert {k: again[k] for k in told} == {k: seen[k] for k in told}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MINE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        assert again["environ"].get(name) == seen["environ"].get(name), name
    result = json.loads(done.stdout)
    assert result["task"]["rerun_of"] == {"result": path.name, "changes": []}
    assert result["identity"]["job"] == "job"


def test_rerun_lies_beside_its_original_and_lists_its_changes(finished: Path) -> None:
    (path,) = (finished / "out").glob("p.job.J0.*.json")
    done = benchsuite("rerun", str(path), "--", "--items", "5", "--min-time-s", "0.6", cwd=finished)
    assert done.returncode == 0, done.stderr
    assert "changed: params.items 1 -> 5" in done.stderr
    assert "changed: min_time_s 0.7 -> 0.6" in done.stderr
    beside = [p for p in (finished / "out").glob("p.job.J0.*.json") if p != path]
    assert len(beside) == 1
    kept = json.loads(beside[0].read_text())["task"]["rerun_of"]
    assert kept == {"result": path.name, "changes": ["params.items 1 -> 5", "min_time_s 0.7 -> 0.6"]}
    beside[0].unlink()


def test_rerun_of_a_gpu_task_without_a_gpu_is_refused(finished: Path) -> None:
    (path,) = (finished / "out").glob("p.job.*.json")
    result = json.loads(path.read_text())
    gpu = {"visible_index": 0, "nvml_index": 0, "uuid": "GPU-1", "name": "Big", "pci": "0"}
    result["task"]["gpus"] = [gpu]
    result["task"]["job"]["placement"]["devices"] = "each"
    other = finished / "gpu.json"
    other.write_text(json.dumps(result))
    one_line_error(benchsuite("rerun", str(other), cwd=finished), "gpu.json", "GPU 0 (Big) is not here")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (None, ["cannot be read", "no such file"]),
        ("", ["the file is empty"]),
        ("{}", ["not a result of benchsuite"]),
        ('{"kind": "result", "schema": 9}', ["newer benchsuite"]),
    ],
)
def test_bad_results_are_one_line(text: str | None, parts: list[str], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "r.json").write_text(text)
    one_line_error(benchsuite("rerun", "r.json", cwd=tmp_path), "r.json", *parts)
