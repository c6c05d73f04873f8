"""The plan: which tasks, on which GPUs, in which order, with which environment."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import make_gpu, make_task
from support import benchsuite, environ, one_line_error, write_profile

from benchsuite.describe import entries, plan, profile
from benchsuite.describe.command_line import command_line
from benchsuite.describe.jobs import resolve
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.packages import EXTRAS
from benchsuite.describe.plan import make_plan
from benchsuite.describe.tasks import Gpu, Job, Placement
from benchsuite.describe.training import Parallel, Training
from benchsuite.errors import ProfileError, UsageError
from benchsuite.host.visible import visible
from benchsuite.launch.child import child_environ

FOUR = [make_gpu(i) for i in range(4)]


@pytest.fixture(autouse=True)
def all_packages_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchsuite.describe.entries._found", lambda module: True)


def plan_of(job: Job, gpus: list[Gpu], repeats: int = 1, **variables: str) -> list[tuple[str, str, str | None]]:
    plan = make_plan("p", [job], gpus, environ=variables, repeats=repeats)
    return [(t.id, t.environ["CUDA_VISIBLE_DEVICES"], t.skip) for t in plan.tasks]


EACH = Job(name="vae", model="vae", placement=Placement(devices="each"))


def test_a_job_is_skipped_where_fewer_gpus_are_visible_than_its_placement_asks_for() -> None:
    job = Job(name="wide", model="vae", placement=Placement(devices="all", at_least=2))
    (few,) = plan.places(job, FOUR[:1])
    assert few.skip == "the job's placement asks for at least 2 GPUs, and 1 are visible"
    (enough,) = plan.places(job, FOUR[:2])
    assert (enough.skip, len(enough.gpus)) == (None, 2)


def test_per_gpu_is_one_task_a_gpu_named_by_uuid() -> None:
    gpus, _ = visible(FOUR, {"CUDA_VISIBLE_DEVICES": "3,1"})
    assert plan_of(EACH, gpus, repeats=2) == [
        ("vae.J0.0", "GPU-0003", None),
        ("vae.J0.1", "GPU-0001", None),
        ("vae.J1.0", "GPU-0003", None),
        ("vae.J1.1", "GPU-0001", None),
    ]


def test_without_a_gpu_a_job_runs_on_the_cpu_only_where_the_profile_allows_it() -> None:
    (task,) = make_plan("p", [EACH], [], environ={}).tasks
    assert task.skip is not None
    assert "no GPU is visible" in task.skip
    allowed = Job(name="vae", model="vae", placement=Placement(devices="each", cpu_allowed=True))
    (task,) = make_plan("p", [allowed], [], environ={}).tasks
    assert (task.skip, task.gpus, task.device, task.environ["CUDA_VISIBLE_DEVICES"]) == (None, (), "CPU", "")
    assert len(make_plan("p", [allowed], FOUR, environ={}).tasks) == 4


def test_a_progression_is_a_task_for_each_number_of_gpus_and_each_is_a_wave_of_its_own() -> None:
    job = Job(name="s", model="vae", placement=Placement(devices="progression"))
    plan = make_plan("p", [job], FOUR[:3], environ={}, repeats=2)
    tasks = plan.tasks
    assert [(t.id, len(t.gpus), t.ranks) for t in tasks[:3]] == [("s.J0.0", 1, 1), ("s.J0.1", 2, 2), ("s.J0.2", 3, 3)]
    assert tasks[2].environ["CUDA_VISIBLE_DEVICES"] == "GPU-0000,GPU-0001,GPU-0002"
    assert [len(wave.tasks) for wave in plan.waves] == [1] * 6
    assert command_line(tasks[1]).endswith("""-- --placement all_gpus '--parallel={"dp":2}'""")


def test_all_gpus_is_one_task_and_dp_takes_the_first_of_them() -> None:
    job = Job(name="a", model="vae", placement=Placement(devices="all"))
    (task,) = make_plan("p", [job], FOUR, environ={}).tasks
    assert (task.id, len(task.gpus), task.ranks) == ("a.J0", 4, 4)
    two = msgspec.structs.replace(job, training=Training(parallel=Parallel(dp=2)))
    (task,) = make_plan("p", [two], FOUR, environ={}).tasks
    assert ([gpu.visible_index for gpu in task.gpus], task.ranks) == ([0, 1], 2)


@pytest.mark.parametrize(
    ("devices", "parallel", "gpus", "ranks_and_shards"),
    [
        ("all", Parallel(fsdp="all"), 1, [(1, 1)]),
        ("all", Parallel(fsdp="all"), 4, [(4, 4)]),
        ("all", Parallel(fsdp="all", dp=2), 4, [(4, 2)]),
        ("all", Parallel(fsdp=2), 4, [(4, 2)]),
        ("all", Parallel(fsdp=3, dp=1), 4, [(3, 3)]),
        ("progression", Parallel(fsdp="all"), 3, [(1, 1), (2, 2), (3, 3)]),
        ("progression", Parallel(fsdp=2), 4, [(2, 2), (4, 2)]),
        ("none", Parallel(fsdp=2, dp=2), 0, [(4, 2)]),
        ("none", Parallel(fsdp="all", dp=2), 0, [(2, 1)]),
        ("all", Parallel(fsdp="all"), 0, [(2, 2)]),
    ],
)
def test_the_ranks_of_a_task_are_replicas_of_shards(
    devices: Any, parallel: Parallel, gpus: int, ranks_and_shards: list[tuple[int, int]]
) -> None:
    """A job that shards over all ranks has a place on each machine."""
    place = Placement(devices=devices, cpu_allowed=True)
    job = Job(name="a", model="vae", placement=place, training=Training(parallel=parallel))
    tasks = make_plan("p", [job], FOUR[:gpus], environ={}).tasks
    assert [(task.ranks, parallel.shards(task.ranks)) for task in tasks] == ranks_and_shards
    ranks, shards = ranks_and_shards[-1]
    words = msgspec.json.encode({"dp": ranks // shards, "fsdp": shards}).decode()
    assert command_line(tasks[-1]).endswith(f"'--parallel={words}'")


@pytest.mark.parametrize(
    ("parallel", "words"),
    [
        (Parallel(fsdp=3), "parallel.fsdp 3 does not divide the 4 visible GPUs"),
        (Parallel(fsdp="all", dp=3), "parallel.dp 3 does not divide the 4 visible GPUs"),
        (Parallel(fsdp=8), "parallel asks for 8 ranks, over the 4 visible GPUs; lower it"),
        (Parallel(fsdp=2, dp=4), "parallel asks for 8 ranks, over the 4 visible GPUs; lower it"),
    ],
)
def test_shards_that_do_not_fit_the_gpus_are_refused(parallel: Parallel, words: str) -> None:
    job = Job(name="a", model="vae", placement=Placement(devices="all"), training=Training(parallel=parallel))
    with pytest.raises(UsageError, match=f"job 'a': {words}"):
        make_plan("p", [job], FOUR, environ={})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"precision": "amp-fp16"}, "field 'precision': amp-fp16 .*; give bf16"),
        ({"compile": "reduce-overhead"}, "field 'compile': the CUDA graphs of reduce-overhead .*; give default or"),
        ({"channels_last": True}, "field 'channels_last': .*; leave it out"),
        ({"placement": "per_gpu"}, "field 'parallel': each task has one GPU, so dp and fsdp are 1; give placement all"),
        ({"parallel": {"fsdp": "each"}}, "field 'parallel.fsdp': expected a number of ranks, .* or all; found 'each'"),
        ({"parallel": {"fsdp": 0}}, "field 'parallel.fsdp': expected a number of ranks, .* or all; found 0"),
        ({"model": "minigrid"}, "'minigrid' steps by itself .* no parallel.fsdp"),
    ],
)
def test_what_does_not_go_with_shards_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError, match=f"p: job 'a': {words}"):
        resolve("a", {"model": "vae", "placement": "all_gpus", "parallel": {"fsdp": "all"}, **fields}, "p")


@pytest.mark.parametrize("devices", ["all", "progression"])
def test_more_ranks_than_gpus_are_refused(devices: Any) -> None:
    job = Job(name="a", model="vae", placement=Placement(devices=devices), training=Training(parallel=Parallel(dp=5)))
    with pytest.raises(UsageError, match=r"job 'a': parallel.dp 5 is over the 4 visible GPUs; lower it"):
        make_plan("p", [job], FOUR, environ={})


def test_where_no_gpu_is_two_ranks_on_the_cpu_stand_for_several() -> None:
    for devices, ranks in (("all", [2]), ("progression", [1, 2])):
        job = Job(name="a", model="vae", placement=Placement(devices=devices, cpu_allowed=True))  # type: ignore[arg-type]
        assert [(t.ranks, t.gpus, t.skip) for t in make_plan("p", [job], [], environ={}).tasks] == [
            (n, (), None) for n in ranks
        ]


def test_a_cpu_job_is_one_task_that_sees_no_gpu() -> None:
    job = Job(name="cart", model="vae", placement=Placement(devices="none"))
    assert plan_of(job, FOUR) == [("cart.J0", "", None)]


def test_children_get_pci_order_unless_the_user_chose() -> None:
    for variables, order in (({}, "PCI_BUS_ID"), ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST")):
        (task,) = make_plan("p", [EACH], FOUR[:1], environ=variables).tasks
        assert task.environ["CUDA_DEVICE_ORDER"] == order


def test_only_variables_that_matter_are_recorded() -> None:
    job = Job(name="vae", model="vae", env={"MY_OWN": "1"})
    variables = {"OMP_NUM_THREADS": "4", "AWS_SECRET_ACCESS_KEY": "hush", "CUDAX": "1", "NCCL_DEBUG": "INFO"}
    (task,) = make_plan("p", [job], FOUR[:1], environ=variables).tasks
    assert set(task.environ) == {
        "OMP_NUM_THREADS", "NCCL_DEBUG", "MY_OWN", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
    }  # fmt: skip


def test_a_number_of_threads_of_the_job_replaces_that_of_the_user_and_goes_with_it() -> None:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    job = msgspec.structs.replace(EACH, training=Training(intra_op_threads="4"))
    (task,) = make_plan("p", [job], FOUR[:1], environ={"OMP_NUM_THREADS": "9"}).tasks
    assert [task.environ[name] for name in names] == ["4", "4"]
    one = plan.again(task, EACH, plan.Place(FOUR[:1]))
    assert not one.environ.keys() & {*names}, "a rerun with --intra-op-threads auto"


def test_a_name_that_looks_like_a_secret_is_never_recorded() -> None:
    secrets = ("TORCH_SECRET_KEY", "NCCL_TOKEN", "CUDA_PASSWORD", "TORCH_HUB_APIKEY", "OMP_CREDENTIALS")
    plain = ("TORCH_LOGS", "CUDA_CACHE_PATH", "OMP_NUM_THREADS")
    variables = dict.fromkeys((*secrets, *plain), "value")
    (task,) = make_plan("p", [EACH], FOUR[:1], environ=variables).tasks
    kept = task.environ
    assert {*plain} <= kept.keys()
    assert not kept.keys() & {*secrets}
    assert kept.keys() <= child_environ(task, variables).keys() >= {*secrets}, "the worker inherits them"


def test_a_job_whose_extra_is_missing_is_skipped_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchsuite.describe.entries._found", lambda module: module != "gymnasium")
    (task,) = make_plan("p", [Job(name="cart", model="cart_pole")], FOUR[:1], environ={}).tasks
    assert task.skip == "a package is missing: pip install 'benchsuite[rl]'"


def test_every_import_of_a_model_is_in_the_extra_that_the_command_installs() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {f"benchsuite[{name}]": wanted for name, wanted in project["optional-dependencies"].items()}
    brought = {"benchsuite": project["dependencies"], **extras}
    imported = {module for name in entries.names() for module in entries.declared(name, None).modules}
    foreign = imported - sys.stdlib_module_names - {"benchsuite"}
    assert {"torch", "gymnasium"} <= foreign
    for module in foreign:
        package = {"PIL": "pillow"}.get(module, module.replace("_", "-"))
        assert any(line.partition(">")[0] == package for line in brought[EXTRAS[module]]), module


def test_waves_are_a_job_in_one_repeat() -> None:
    jobs = [EACH, Job(name="b", model="vae")]
    plan = make_plan("p", jobs, FOUR[:2], environ={}, repeats=2)
    assert [[t.id for t in wave.tasks] for wave in plan.waves] == [
        ["vae.J0.0", "vae.J0.1"], ["b.J0.0", "b.J0.1"], ["vae.J1.0", "vae.J1.1"], ["b.J1.0", "b.J1.1"]
    ]  # fmt: skip


def test_dry_run_prints_lines_that_a_shell_runs_identically(tmp_path: Path) -> None:
    """The job's own program records the values that reached it: once from the suite, once from the printed line."""
    data, out = tmp_path / "data set", tmp_path / "out:1" / "è"
    data.mkdir()
    (tmp_path / "out:1").mkdir()
    params = {
        "note": "two words 'q' \"d\" $HOME * a=b=c",
        "neg": "-5",
        "words": ["x", "y z", "--"],
        "flag": True,
        "limit": 7,
        "file": str(tmp_path / "seen one.json"),
    }
    path = write_profile(
        tmp_path / "my profile.v2.json",
        job={"params": params, "env": {"MY_VAR": "v 1 'x'"}, "prepare": [["sh", "-c", "echo '$HOME' >> prepared"]]},
    )
    run = benchsuite("jobs", str(path), "-d", str(data), "-o", str(out), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    seen = json.loads((tmp_path / "seen one.json").read_text(encoding="utf-8"))
    assert {k: seen[k] for k in params} == params
    assert [p.name.split(".J0.")[0] for p in out.glob("*.json") if p.name.startswith("my_")] == ["my_profile.v2.job"]
    result = json.loads(next(out.glob("my_profile*.json")).read_text(encoding="utf-8"))
    assert result["identity"]["profile"] == "my profile.v2"
    assert result["task"]["data_root"] == str(data)

    dry = benchsuite("jobs", str(path), "-d", str(data), "--dry-run", cwd=tmp_path)
    assert dry.returncode == 0, dry.stderr
    *_, comment, line, forecast = dry.stdout.splitlines()
    assert forecast == "# 1 task, about 11 s"
    assert "job.J0: job job, repeat 0, on CPU" in comment
    assert shlex.split(line)[-1].startswith("--")
    (tmp_path / "seen one.json").unlink()
    again = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environ(), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    seen_again = json.loads((tmp_path / "seen one.json").read_text(encoding="utf-8"))
    reported = [k for k in seen if k not in ("pid", "environ")]
    assert {k: seen_again[k] for k in reported} == {k: seen[k] for k in reported}
    ignored = {"BENCHSUITE_TREE", "_", "PWD", "OLDPWD", "SHLVL"}
    assert {k: v for k, v in seen_again["environ"].items() if k not in ignored} == {
        k: v for k, v in seen["environ"].items() if k not in ignored
    }
    one, two = result["task"], json.loads(again.stdout)["task"]
    for field in ("params", "env", "prepare", "min_time_s", "max_time_s", "timeout_s", "training", "entry"):
        assert one["job"][field] == two["job"][field], field
    assert (tmp_path / "prepared").read_text() == "$HOME\n$HOME\n"


@pytest.mark.torch
def test_a_dry_run_starts_and_writes_nothing(tmp_path: Path) -> None:
    done = benchsuite("jobs", "smoke", "--dry-run", "--repeat", "2", cwd=tmp_path)
    assert done.returncode == 0
    scaling = 2  # ranks on a CPU: one job of the profile makes two tasks
    assert done.stdout.count(" run ") == 2 * (len(profile.load("smoke").jobs) - 1 + scaling)
    assert list(tmp_path.iterdir()) == []


def test_default_folders_hold_no_colon_or_space(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "my: profile.json", job={})
    done = benchsuite("jobs", str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "results").iterdir()
    assert folder.name.startswith("my__profile-20")
    assert not set(folder.name) & {":", " "}
    other = benchsuite("jobs", str(path), cwd=tmp_path, env=environ(BENCHSUITE_OUT=str(tmp_path / "elsewhere")))
    assert other.returncode == 0
    assert len(list((tmp_path / "elsewhere").glob("my__profile-*/run.json"))) == 1


def test_a_standard_run_without_a_gpu_skips_and_runs_the_cpu_job_only() -> None:
    chosen = profile.load("standard", overrides=Overrides())
    plan = make_plan("standard", chosen.jobs, [], environ={})
    assert [t.job.name for t in plan.tasks if t.skip is None] == ["cart"]


def test_nothing_ran_is_exit_status_3(tmp_path: Path) -> None:
    done = benchsuite("jobs", "standard", "--name", "vae", "-o", "out", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "0 passed, 0 failed, 1 not run" in done.stderr
    (file,) = (tmp_path / "out").glob("standard.vae.J0.*.json")
    assert json.loads(file.read_text())["status"] == "skipped"
    assert ".FAIL." not in file.name


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nope"], ["nope", "no such file"]),
        (["smok"], ["did you mean 'smoke'?"]),
        (["smoke", "-d", "no/such"], ["-d", "no data folder '", "no/such'"]),
        (["smoke", "-o", "x.json"], ["x.json", "name a folder"]),
        (["smoke", "-o", "/proc/nothing/x"], ["/proc/nothing/x", "cannot be written"]),
        (["smoke", "-o", "file/x"], ["file/x", "cannot be written"]),
        (["smoke", "-o", "full"], ["full", "not empty", "-o"]),
        (["smoke", "--name", "vea"], ["no job 'vea'", "did you mean 'vae'?"]),
        (["smoke", "--repeat", "0"], ["--repeat"]),
        (["smoke", "--what"], ["--what", "--help"]),
        (["smoke", "--", "--max-cont", "3"], ["'--max-cont'", "did you mean 'max_count'?"]),
    ],
)
def test_bad_commands_are_one_line_and_start_nothing(arguments: list[str], parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    one_line_error(benchsuite("jobs", *arguments, cwd=tmp_path), *parts)
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before


def test_a_missing_data_folder_from_the_environment_names_the_variable(tmp_path: Path) -> None:
    done = benchsuite("jobs", "smoke", cwd=tmp_path, env=environ(BENCHSUITE_DATA="/no/such"))
    one_line_error(done, "BENCHSUITE_DATA", "'/no/such'")


def test_results_stream_as_json_lines(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.json", one={}, two={"params": {"kind": "exit", "after_s": 0.1}})
    done = benchsuite("jobs", str(path), "-o", "-", cwd=tmp_path)
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["identity"]["job"], r["status"]) for r in lines] == [("one", "ok"), ("two", "failed")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.json"]


def test_what_cannot_be_seen_is_escaped_in_a_printed_line() -> None:
    """And the shell makes of it what it was."""
    note = "curl x\r\x1b[2K# 'harmless' \\ \u009b \u202e"
    task = msgspec.structs.replace(
        make_task("job", gpu=None),
        job=Job(name="job", model="polynome", prepare=note),
        data_root="data\r",
        environ={"CUDA_DEVICE_ORDER": "", "CUDA_VISIBLE_DEVICES": ""},
    )
    line = command_line(task)
    assert line.isprintable()
    words = line.partition(" run polynome ")[2]
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, check=True)
    given = done.stdout.decode().split("\0")
    assert given[1] == "data\r"
    assert next(word for word in given if "curl" in word) == f"--prepare={note}"
