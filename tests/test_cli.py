"""The front door: light, complete, and plain when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import keep_results, make_result
from support import PROGRAMS, benchsuite, environ, in_process, one_line_error, read_results, write_profile

from benchsuite.cli import benchsuite as group

COMMANDS = group.list_commands(None)  # type: ignore[arg-type]
HEAVY = ("torch", "torchvision", "pandas", "matplotlib", "scipy", "numpy", "gymnasium")


def test_help_is_light() -> None:
    asked = [["--help"], *([c, "--help"] for c in COMMANDS), ["list", "models"]]
    code = f"import sys; from benchsuite.cli import main\nfor words in {asked!r}:\n    try: main(words)\n"
    code += "    except SystemExit as e: assert not e.code, words\n"
    code += f"    print('LOADED', words[0], *(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert found == [f"LOADED {words[0]}" for words in asked]


def test_every_command_is_listed_with_its_purpose(tmp_path: Path) -> None:
    done = benchsuite("--help", cwd=tmp_path)
    for name in ("jobs", "run", "rerun", "report", "summary", "list", "stop", "doctor", "plan-stages"):
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("arguments", [["jbos"], ["--what"], ["jobs"], ["list", "nothing"]])
def test_wrong_usage_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    one_line_error(in_process(*arguments, cwd=tmp_path), "--help")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["jbs"], ["No such command 'jbs'", "did you mean 'jobs'?"]),
        (["list", "model"], ["did you mean 'models'?"]),
        (["jobs", "--version"], ["No such option '--version'", "benchsuite --version"]),
        (
            ["jobs", "smoke", "--batch-size", "4", "--name", "vae", "--compile", "--", "--lr", "1"],
            [" benchsuite jobs smoke --name vae -- --batch-size 4 --compile --lr 1"],
        ),
        (["run", "vae", "--precision=bf16"], [" benchsuite run vae -- --precision=bf16"]),
        (["jobs", "smoke", "--nam", "vae"], ["No such option '--nam'; did you mean '--name'?"]),
    ],
)
def test_a_mistyped_line_is_answered_with_the_one_that_was_meant(
    arguments: list[str], parts: list[str], tmp_path: Path
) -> None:
    one_line_error(in_process(*arguments, cwd=tmp_path), *parts)


def test_help_shows_whole_summaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = in_process("--help", cwd=tmp_path).stdout
    assert "..." not in printed.partition("[ARGS]")[2].removeprefix("...")
    assert max(map(len, printed.splitlines())) <= 80
    assert "Check this machine for problems, and give their remedies." in printed


def test_help_behind_the_dashes_shows_what_may_stand_there(tmp_path: Path) -> None:
    for arguments in (["run", "vae"], ["jobs", "smoke", "--name", "vae"]):
        done = in_process(*arguments, "--", "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert "--batch-size int over 0 = 128" in done.stdout
        assert "--min-time-s = 15.0: seconds that the measurement lasts at least" in done.stdout
    assert done.stdout.count("Parameters of") == 1


@pytest.mark.parametrize("what", ["models", "profiles", "datasets", "plots", "baselines"])
def test_lists_are_json_too(what: str, tmp_path: Path) -> None:
    found = json.loads(in_process("list", what, "--json", cwd=tmp_path).stdout)
    text = in_process("list", what, cwd=tmp_path).stdout
    assert all(entry["name"] in text for entry in found)
    assert all(entry.get("about", "-") for entry in found), "every entry is described"


def test_the_mark_of_fused_arrays_is_explained_once(tmp_path: Path) -> None:
    models = in_process("list", "models", cwd=tmp_path).stdout
    assert models.count("may differ between the models") == 1
    assert "--lr float = 0.001  *" in models


def test_lists(tmp_path: Path) -> None:
    models = in_process("list", "models", cwd=tmp_path).stdout
    for name in ("polynome", "sine_wave", "vae", "cart_pole", "convnet"):
        assert f"\n{name}: " in f"\n{models}"
    assert "--batch-size int over 0 = " in models
    profiles = in_process("list", "profiles", cwd=tmp_path).stdout
    assert "smoke: 35 jobs" in profiles
    assert "standard: 18 jobs" in profiles
    datasets = in_process("list", "datasets", cwd=tmp_path).stdout
    for name in ("mnist", "fake_imagenet", "bsds500", "coco", "wmt16", "wikitext2", "ml20m", "time_series"):
        assert f"\n{name}: " in f"\n{datasets}"


def test_a_rerun_of_a_folder_names_a_result_in_it(tmp_path: Path) -> None:
    (file,) = keep_results(tmp_path / "run", [make_result()])
    one_line_error(in_process("rerun", "run", cwd=tmp_path), f"such as run/{file.name}")
    (tmp_path / "empty").mkdir()
    one_line_error(in_process("rerun", "empty", cwd=tmp_path), "name the file of one result")


def test_baselines_are_listed_with_dates_to_the_minute(tmp_path: Path) -> None:
    lines = in_process("list", "baselines", cwd=tmp_path).stdout.splitlines()
    assert [line.partition(" jobs, ")[2].partition(" (")[0] for line in lines] == [
        "2026-11-28 10:58 UTC", "2026-11-28 14:22 UTC", "2020-08-06", "2020-08-06"
    ]  # fmt: skip


def test_the_schema_is_generated_from_the_types_and_is_that_of_version_4(tmp_path: Path) -> None:
    """A change of the record shows here; one that old files do not fit needs a new schema number."""
    printed = in_process("list", "schema", cwd=tmp_path).stdout
    assert json.loads(printed)["$ref"] == "#/$defs/Result"
    golden = Path(__file__).parent / "data" / "result-schema-4.json"
    assert _bare(json.loads(printed)) == _bare(json.loads(golden.read_text(encoding="utf-8")))


def _bare(schema: Any) -> Any:
    """Without the docstrings, whose wording is no part of the schema."""
    if isinstance(schema, dict):
        return {key: _bare(value) for key, value in schema.items() if key != "description"}
    return [_bare(item) for item in schema] if isinstance(schema, list) else schema


def test_run_prints_its_result(tmp_path: Path) -> None:
    done = benchsuite(
        "run", "faults:build", "--", "--warm-up-s", "0", "--min-time-s", "0.7", "--items", "3", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "ok"
    assert result["task"]["job"]["params"]["items"] == 3
    assert result["identity"]["devices"] == []
    assert list(tmp_path.iterdir()) == []


def test_run_writes_exactly_the_file_and_never_over_one(tmp_path: Path) -> None:
    arguments = ["run", "faults:build", "-o", "x.json", "--", "--max-count", "5", "--warm-up-s", "0"]
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
    reported = [k for k in seen if k not in ("pid", "environ")]
    assert {k: again[k] for k in reported} == {k: seen[k] for k in reported}
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
    one_line_error(benchsuite("rerun", str(other), cwd=finished), "gpu.json", "GPU 0 (Big, GPU-1) is not here")


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


def test_the_worker_is_this_benchsuite_whatever_lies_in_the_current_folder(tmp_path: Path) -> None:
    """Another checkout in the current folder must not run under this one's name."""
    (tmp_path / "benchsuite").mkdir()
    (tmp_path / "benchsuite" / "__init__.py").write_text("raise SystemExit('the wrong benchsuite')")
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong random')")
    code = (
        "from benchsuite.cli import main; main(['run', 'faults:build', '--', '--max-count', '3', '--warm-up-s', '0'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.pop(0); {code}"],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    if sys.version_info >= (3, 11):
        assert done.returncode == 0, done.stderr


def test_an_entry_finds_its_neighbours_and_is_never_asked_to_install_them(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("ITEMS = 4\n")
    (tmp_path / "mine.py").write_text(
        "import itertools\nimport time\nfrom dataclasses import dataclass\nimport beside\n"
        "from benchsuite.models import Workload\n\n@dataclass(frozen=True)\nclass Params:\n    n: int = 1\n\n"
        "def build(params):\n    def step(_):\n        time.sleep(0.01)\n        return beside.ITEMS\n"
        "    return Workload(unit='x', batches=lambda s: itertools.repeat(None), items=lambda b: 0, step=step)\n"
    )
    done = benchsuite("run", "mine:build", "-o", "r.json", "--", "--max-count", "8", "--warm-up-s=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = benchsuite("rerun", "../r.json", "-o", "-", cwd=elsewhere)
    assert again.returncode == 0, again.stderr
    (tmp_path / "mine.py").write_text(
        (tmp_path / "mine.py").read_text().replace("import beside", "import no_such_thing")
    )
    failed = benchsuite("run", "mine:build", "-o", "-", "--", "--max-count", "8", "--warm-up-s=0", cwd=tmp_path)
    assert failed.returncode == 1
    assert "No module named 'no_such_thing'" in failed.stderr
    assert "pip install" not in failed.stderr


def test_an_entrys_package_is_not_run_by_the_parent(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "pkg" / "model.py").write_text((PROGRAMS / "faults.py").read_text())
    dry = benchsuite("run", "pkg.model:nothing", cwd=tmp_path)
    one_line_error(dry, "no function 'nothing'")


def test_jobs_whose_names_look_alike_do_not_meet(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "p.json", **{"a b": {}, "a_b": {}, "a/b": {}})
    done = benchsuite("jobs", str(profile), "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {job: r.status for job, r in read_results(tmp_path / "out").items()} == {
        "a b": "ok",
        "a_b": "ok",
        "a/b": "ok",
    }


def test_a_placement_that_needs_a_gpu_is_not_rerun_on_the_cpu(finished: Path) -> None:
    (path,) = (finished / "out").glob("p.job.*.json")
    done = benchsuite("rerun", str(path), "--", "--placement", "per_gpu", cwd=finished)
    one_line_error(done, "no GPU is visible")


def test_without_arguments_the_help_is_shown(tmp_path: Path) -> None:
    done = benchsuite(cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) > 10


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "p.json", job={})
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "benchsuite", "jobs", str(profile), "-o", "-"],
            cwd=tmp_path,
            env=environ(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no space left on device" in done.stderr


def test_files_keep_to_the_umask(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "p.json", job={})
    shell = f"umask 077; exec {sys.executable} -m benchsuite jobs {profile} -o out"
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, env=environ(), capture_output=True, check=False)
    assert done.returncode == 0
    files = [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    assert len(files) > 5
    assert {p.stat().st_mode & 0o077 for p in files} == {0}


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    from datetime import datetime

    from benchsuite.default_out import new_default_out

    now = datetime(2026, 1, 2, 3, 4, 5)
    names = [new_default_out("p", {"BENCHSUITE_OUT": str(tmp_path)}, now).name for _ in range(3)]
    assert names == ["p-20260102-030405", "p-20260102-030405-2", "p-20260102-030405-3"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_what_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    """As a user who may not enter the folder: root sees everything."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "p.json").write_text("{}")
    asked = [
        ["jobs", str(private / "p.json")],
        ["jobs", "smoke", "-d", str(private / "data")],
        ["run", "vae", "-o", str(private / "x.json")],
        ["report", str(private / "out")],
        ["report", "--compare", str(private / "a.json")],
        ["jobs", "x" * 300],
    ]
    reported = subprocess.run(
        [sys.executable, PROGRAMS / "as_nobody.py"],
        input="\n".join(map(json.dumps, asked)),
        cwd="/",
        env=environ(),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    answers = reported.stdout.splitlines()
    assert len(answers) == len(asked)
    for arguments, answer in zip(asked, answers, strict=True):
        one_line_error(subprocess.CompletedProcess(arguments, *json.loads(answer)))
