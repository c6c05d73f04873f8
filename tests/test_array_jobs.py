"""Jobs that ask for an array: what a profile or a command line may say, and what each model gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchsuite.describe.arrays import params_of
from benchsuite.describe.command_line import command_line
from benchsuite.describe.entries import declared, names
from benchsuite.describe.jobs import resolve
from benchsuite.describe.matrix import cells
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.plan import Place, PlanContext, again, make_task
from benchsuite.describe.work import settings, workload
from benchsuite.errors import ProfileError


def job(**fields: Any) -> Any:
    return resolve("vae", {"model": "vae", "placement": "cpu", **fields}, "p.yaml")


def test_a_list_gives_a_fusible_parameter_a_value_for_each_model() -> None:
    found = job(array=3, params={"lr": [0.002, 0.001, 5e-4]})
    assert found.params["lr"] == [0.002, 0.001, 5e-4]
    each = [params_of(found.params, {"lr", "seed"}, model) for model in range(3)]
    assert [(one["lr"], one["seed"], one["batch_size"]) for one in each] == [
        (0.002, 1234, 128),
        (0.001, 1235, 128),
        (5e-4, 1236, 128),
    ]


def test_seeds_may_be_given() -> None:
    assert [params_of({"seed": [7, 7]}, {"seed"}, model)["seed"] for model in range(2)] == [7, 7]


@pytest.mark.parametrize("text", ["0.1,0.2", "[0.1, 0.2]"])
def test_a_command_line_gives_values_with_commas(text: str) -> None:
    overrides = Overrides.parse(["--array", "2", f"--lr={text}"])
    found = resolve("vae", {"model": "vae", "placement": "cpu"}, "p.yaml", overrides)
    assert found.params["lr"] == [0.1, 0.2]


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"array": 2, "params": {"lr": [0.1]}}, ("'lr' has 1 values", "array is 2", "give array 1, or one value")),
        ({"params": {"lr": [0.1, 0.2]}}, ("the job has no array", "give array 2")),
        ({"array": 2, "params": {"batch_size": [1, 2]}}, ("'batch_size'", "has one value", "(lr, seed)")),
        ({"array": 2, "params": {"lr": [0.1, "x"]}}, ("'lr'", "found 'x'")),
        ({"array": 0}, ("field 'array'", "found 0")),
        ({"array": 2, "placement": "all_gpus"}, ("one process trains all models",)),
        ({"array": 2, "parallel": {"dp": 2}}, ("one process trains all models",)),
        ({"array": 2, "checkpoint": True}, ("leave checkpoint out",)),
        ({"array": 2, "max_epochs": 1, "epoch_items": 8}, ("'array'", "leave array out")),
        ({"array": 2, "channels_last": True}, ("leave channels_last out",)),
        ({"unfused_units": 1}, ("the job has no array",)),
        ({"array": 2, "model": "detection"}, ("'detection' cannot be fused: its boxes",)),
        ({"array": 2, "model": "atari"}, ("'atari' steps by itself",)),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(fields: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(ProfileError) as error:
        job(**fields)
    assert all(part in str(error.value) for part in parts), error.value
    assert "\n" not in str(error.value)


def test_an_array_is_an_axis_of_its_row() -> None:
    (cell,) = cells(job(array=4))
    assert (cell.name, cell.axes) == ("vae[array=4]", {"array": 4})
    several = cells(job(matrix={"array": [1, 2]}))
    assert [cell.name for cell in several] == ["vae[array=1]", "vae[array=2]"]
    both = cells(job(array=2, matrix={"precision": ["fp32", "bf16"]}))
    assert [cell.name for cell in both] == ["vae[precision=fp32,array=2]", "vae[precision=bf16,array=2]"]


def test_a_rerun_follows_a_change_of_the_array() -> None:
    (cell,) = cells(job(array=4))
    task = make_task(cell, Place(), PlanContext("p", {}))
    assert again(task, job(array=2), Place()).row == "vae[array=2]"
    assert again(task, job(), Place()).row == "vae[array=1]"
    assert again(task, job(array=4), Place()).row == "vae[array=4]"
    assert "--array=4" in command_line(task)


def test_a_job_without_an_array_is_the_work_that_it_was() -> None:
    kept = settings(job())
    assert "unfused_units" not in kept
    assert workload(kept) != workload(settings(job(array=2)))


def test_the_rates_of_optimisers_are_fusible() -> None:
    for name in ("convnet", "ssd", "detection", "scaling"):
        fusible = {key for key, one in declared(name, None).parameters.items() if one.fusible}
        assert fusible >= {"lr", "momentum", "weight_decay", "seed"}


def test_the_table_of_the_documentation_names_every_model_and_its_reason() -> None:
    text = (Path(__file__).parents[1] / "docs" / "sharing.md").read_text(encoding="utf-8")
    lines = text.partition("## Fused arrays")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:2] == "| "]
    table = {name: (fuses, note) for name, fuses, note in (row for row in rows if len(row) == 3) if name != "model"}
    assert sorted(table) == sorted(name for name in names() if not name.startswith("probe_"))
    for name, (fuses, note) in table.items():
        model = declared(name, None)
        reason = model.not_fused or ("" if model.parallel else "it steps by itself")
        assert fuses == ("no" if reason else "yes")
        assert not reason or note == reason
