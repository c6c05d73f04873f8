"""`benchsuite drive`: the job that a driver configuration means, where it runs, and what its run folder keeps."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import PROGRAMS, benchsuite, environ, in_process, one_line_error, read_results
from test_pipeline_driver import SHIPPED, configured, shipped

from benchsuite.describe.pipelining import with_plan
from benchsuite.describe.tasks import Gpu
from benchsuite.errors import PipelineError, ProfileError, UsageError
from benchsuite.launch.machines import elsewhere, gpus_of, is_here
from benchsuite.pipeline import layout
from benchsuite.pipeline.driver import Place
from benchsuite.pipeline.training import job_fields, without_effect

HERE = ["localhost:0", "localhost:1"]
TWO: dict[str, Any] = {"module_to_stage_map": [0, 0, 0], "stage_to_rank_map": {"0": [0, 1]}}


def fields_of(path: Path, **options: Any) -> dict[str, Any]:
    return job_fields(layout.of_file(path), 64, **options)


def data_parallel(folder: Path, **changes: Any) -> Path:
    """A configuration of two ranks of this host that train with generated images."""
    usual = {"machines": HERE, "synthetic_data": True, "log_directory": str(folder)}
    return configured(folder, TWO, **{**usual, **changes})


# --- the job ----------------------------------------------------------------------------------------------------------


def test_data_parallelism_becomes_a_job_with_epochs_and_a_schedule(tmp_path: Path) -> None:
    fields = fields_of(data_parallel(tmp_path), mounts=("/more",))
    steps = 1_000_000 // 128 + 1
    assert fields == {
        "model": "convnet",
        "params": {"arch": "vgg16", "batch_size": 64, "lr": 0.03, "weight_decay": 0.0005},
        "placement": "all_gpus_or_cpu",
        "parallel": {"dp": 2, "backend": "gloo"},
        "warm_up_s": 0.0,
        "lr_schedule": {"policy": "polynomial", "epoch_steps": steps, "epochs": 60},
        "max_epochs": 60,
        "epoch_items": 1_000_000,
        "container": {"image": "image:1", "mounts": ["/more"]},
    }


def test_real_images_and_sentences_are_data_sets(tmp_path: Path) -> None:
    assert fields_of(data_parallel(tmp_path, synthetic_data=False))["data"] == "imagenet"
    translation = {"model_type": "translation", "module": "models.gnmt_large.gpus=4", "weight_decay": 0}
    fields = fields_of(data_parallel(tmp_path, **translation))
    assert (fields["model"], fields["params"]["layers"], fields["data"]) == ("gnmt", 16, "wmt16")


def test_nccl_needs_gpus_and_a_single_rank_no_backend(tmp_path: Path) -> None:
    fields = fields_of(data_parallel(tmp_path, distributed_backend="nccl"))
    assert (fields["placement"], fields["parallel"]["backend"]) == ("all_gpus", "nccl")
    alone = data_parallel(tmp_path, config_file=None, machines=HERE[:1])
    assert fields_of(alone)["parallel"] == {"dp": 1}
    assert "distributed_backend" in without_effect(layout.of_file(alone))


def test_stages_become_pipedreams_schedule_with_replicas(tmp_path: Path) -> None:
    assert fields_of(configured(tmp_path))["parallel"] == {"pp": 2, "schedule": "pipedream", "replicas": [3, 1]}
    plan = {"schema": 4, "kind": "stageplan", "stages": [{"units": ["a", "b"]}, {"units": ["c"]}]}
    ranks = {"module_to_stage_map": [0, 1, 1], "stage_to_rank_map": {"0": [0, 1, 2], "1": [3]}}
    assert fields_of(configured(tmp_path, {**plan, **ranks}))["parallel"]["stages"] == [2, 1]
    one = [{"units": ["a"]}]
    with pytest.raises(PipelineError, match="units of each of 2 stages"):
        fields_of(configured(tmp_path, {**plan, **ranks, "stages": one}))


def test_without_pipelining_one_minibatch_passes_at_a_time(tmp_path: Path) -> None:
    straight = {"module_to_stage_map": [0, 1, 1], "stage_to_rank_map": {"0": [0], "1": [1]}}
    path = configured(tmp_path, straight, machines=HERE, no_input_pipelining=True)
    assert fields_of(path)["parallel"] == {"pp": 2, "dp": 1, "schedule": "gpipe", "microbatches": 1}
    with pytest.raises(PipelineError, match="no_input_pipelining"):
        fields_of(configured(tmp_path, no_input_pipelining=True))
    with pytest.raises(PipelineError, match="macrobatch"):
        fields_of(configured(tmp_path, macrobatch=True))


def test_the_learning_rate_follows_the_policy_and_the_warm_up(tmp_path: Path) -> None:
    path = data_parallel(tmp_path, learning_rate_policy=None, lr_warmup=True)
    assert fields_of(path)["lr_schedule"]["policy"] == "step"
    assert fields_of(path)["lr_schedule"]["warm_up_epochs"] == 5
    with pytest.raises(PipelineError, match="'epochs' is missing; the learning_rate_policy polynomial needs it"):
        fields_of(data_parallel(tmp_path, epochs=None))


# --- the machines -----------------------------------------------------------------------------------------------------


def test_this_host_has_several_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "one.example.org")
    assert all(map(is_here, ("localhost", "127.0.0.1", "ONE", "one.example.org")))
    assert not is_here("one.other.org")
    places = [Place(host=host, gpu=0) for host in ("two", "localhost", "three", "two")]
    assert elsewhere(places) == ["two", "three"]


def test_ranks_get_the_gpus_of_their_numbers_or_the_first_ones() -> None:
    visible = [Gpu(visible_index=i, nvml_index=i, uuid=f"GPU-{i}", name="card", pci=f"{i}") for i in range(4)]

    def numbers(*places: int) -> list[int]:
        gpus, _ = gpus_of([Place(host="h", gpu=gpu) for gpu in places], visible)
        return [gpu.visible_index for gpu in gpus]

    assert numbers(2, 1) == [2, 1]
    assert numbers(4, 5, 6) == [0, 1, 2]
    assert gpus_of([Place(host="h", gpu=0)], []) == ([], None)
    with pytest.raises(UsageError, match="5 GPUs of this host are named, and 4 are visible"):
        numbers(0, 1, 2, 3, 4)


# --- the command ------------------------------------------------------------------------------------------------------


@shipped
@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*/driver_configs/*.yml")), ids=lambda path: path.stem)
def test_each_shipped_configuration_is_planned_or_refused(path: Path, tmp_path: Path) -> None:
    done = in_process("drive", str(path), "--quiet", cwd=tmp_path)
    if path.stem in ("gnmt_12pipedream", "gnmt_large_16pipedream"):
        one_line_error(done, "machines, but")
        return
    assert done.returncode == 0
    assert "without effect: compress_activations" in done.stderr
    assert "v401" in done.stdout
    assert "not this host" in done.stdout


def test_a_plan_is_printed_as_a_profile(tmp_path: Path) -> None:
    path = data_parallel(tmp_path, print_frequency=10)
    done = in_process("drive", str(path), "--quiet", "--no-container", cwd=tmp_path)
    assert done.returncode == 0
    assert "without effect: print_frequency" in done.stderr
    (tmp_path / "p.yaml").write_text(done.stdout)
    planned = in_process("jobs", "p.yaml", "--dry-run", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "job c, repeat 0" in planned.stdout
    assert "--lr-schedule=" in planned.stdout


def test_a_plan_of_plan_stages_means_the_same_in_a_profile_and_in_a_configuration(tmp_path: Path) -> None:
    costs = "forward_compute_time=2.0, backward_compute_time=4.0, activation_size=8.0, parameter_size=16.0"
    units = [f"node{number} -- Linear -- {costs}" for number in range(1, 6)]
    edges = [f"\tnode{number} -- node{number + 1}" for number in range(1, 5)]
    (tmp_path / "graph.txt").write_text("\n".join([*units, *edges]))
    found = in_process("plan-stages", "graph.txt", "--gpus", "2", "--straight", "-o", "plan.json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    plan = json.loads((tmp_path / "plan.json").read_text())
    driven = fields_of(configured(tmp_path, plan, machines=HERE))["parallel"]
    profile = tmp_path / "p.yaml"
    profile.touch()
    assert with_plan({"plan": "plan.json"}, str(profile), "p.yaml") == {
        **driven,
        "stages": tuple(driven["stages"]),
        "replicas": tuple(driven["replicas"]),
    }
    assert sum(driven["stages"]) == 5
    plan["schema"] = 99
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(ProfileError, match=r"plan.json is no plan of stages .schema 99 comes from a newer benchsuite"):
        with_plan({"plan": "plan.json"}, str(profile), "p.yaml")


def test_a_printed_job_has_its_changes_and_the_learning_rate_follows_them(tmp_path: Path) -> None:
    path = data_parallel(tmp_path)
    small = ("--max-epochs", "3", "--epoch-items", "100", "--batch-size", "5")
    done = in_process("drive", str(path), "--quiet", "--no-container", "--", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    fields = json.loads("".join(line for line in done.stdout.splitlines() if not line.startswith("#")))["c"]
    assert (fields["params"]["batch_size"], fields["max_epochs"], fields["epoch_items"]) == (5, 3, 100)
    assert fields["lr_schedule"] == {"policy": "polynomial", "epoch_steps": 10, "epochs": 3}


@pytest.mark.parametrize(
    ("changes", "arguments", "parts"),
    [
        ({"machines": ["two:0", "three:0"]}, [], ["'machines': two, three: not this host"]),
        ({"log_directory": "/none"}, ["--no-container"], ["'log_directory': no folder '/none'", "-o"]),
        ({}, [], ["'container'", "no docker, podman or apptainer", "--no-container"]),
        ({}, ["--mount", "/none"], ["--mount", "/none"]),
        (
            {"synthetic_data": False},
            ["--no-container"],
            ["data set 'imagenet'", "bring it with 'benchsuite prepare imagenet -d"],
        ),
        ({}, ["--no-container", "--", "--colour", "red"], ["neither a job field nor a parameter"]),
    ],
)
def test_what_cannot_run_is_one_line(
    changes: dict[str, Any], arguments: list[str], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = data_parallel(tmp_path, **changes)
    done = in_process("drive", str(path), *arguments, cwd=tmp_path)
    one_line_error(done, *parts)
    assert not list(tmp_path.glob("c-*")), "no run folder stays behind"


@pytest.mark.torch
def test_a_run_in_a_container_keeps_its_configuration_and_the_state_of_the_repository(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = data_parallel(tmp_path, machines=HERE[:1], config_file=None, module="models.alexnet.gpus=1")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path))
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    path.write_text(path.read_text() + "\n# changed\n")
    engines = f"{PROGRAMS / 'engines'}{os.pathsep}{os.environ['PATH']}"
    env = environ(PATH=engines, FAKE_PYTHON=sys.executable, FAKE_DOCKER_LOG=str(tmp_path / "calls"))
    small = ("--max-epochs", "1", "--epoch-items", "4", "--batch-size", "2", "--image-size", "64", "--classes", "10")
    done = benchsuite("drive", str(path), "--", *small, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    (out,) = tmp_path.glob("c-*")
    (result,) = read_results(out).values()
    assert result.container and result.container.engine == "docker"
    schedule = result.task.job.training.lr_schedule
    assert schedule and (schedule.policy, schedule.epoch_steps, schedule.epochs) == ("polynomial", 2, 1)
    kept = {file.name: file.read_text() for file in (out / "driver").iterdir()}
    assert kept["c.yml"] == path.read_text()
    assert "+# changed" in kept["git_diff"]
    assert len(kept["git_commit"].strip()) == 40
    assert kept["machinefile"] == "localhost\n"
    assert kept["command"].startswith("benchsuite drive")
    (run, *_) = (json.loads(line) for line in (tmp_path / "calls").read_text().splitlines())
    assert run[0] == "run"
