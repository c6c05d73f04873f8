"""A job with a matrix: unrolled into cells, each a wave and a row of its own; run, resumed and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import benchsuite, one_line_error, write_profile

from benchsuite.describe.jobs import resolve
from benchsuite.describe.matrix import cells
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.plan import Place, again, make_plan
from benchsuite.describe.tasks import Job, Placement, profile_fields
from benchsuite.records import Result
from benchsuite.report.read.load import load
from benchsuite.report.stats.summarise import summarise
from benchsuite.rundir import results

from conftest import make_gpu  # isort: skip

SWEEP = {"batch_size": (32, 64), "precision": ("fp32", "bf16")}


def sweep(**fields: Any) -> Job:
    return Job(**{"name": "vae", "model": "vae", "matrix": SWEEP, **fields})


def test_every_combination_is_a_cell_with_its_values_in_place() -> None:
    found = cells(sweep())
    assert [cell.name for cell in found] == [
        "vae[batch_size=32,precision=fp32]", "vae[batch_size=32,precision=bf16]",
        "vae[batch_size=64,precision=fp32]", "vae[batch_size=64,precision=bf16]",
    ]  # fmt: skip
    assert [(cell.job.params["batch_size"], cell.job.training.precision) for cell in found] == [
        (32, "fp32"), (32, "bf16"), (64, "fp32"), (64, "bf16")
    ]  # fmt: skip
    assert found[1].axes == {"batch_size": 32, "precision": "bf16"}
    assert all(not cell.job.matrix for cell in found)


def test_each_cell_is_a_wave_with_ids_rows_and_axes_of_its_own() -> None:
    gpus = [make_gpu(0), make_gpu(1)]
    plan = make_plan("p", [sweep()], gpus, environ={}, repeats=2)
    assert [len(wave.tasks) for wave in plan.waves] == [2] * 8
    assert len({task.id for task in plan.tasks}) == len(plan.tasks) == 16
    assert len({task.row for task in plan.tasks}) == 4
    last = plan.tasks[-1]
    assert (last.id, last.wave) == ("vae[batch_size=64,precision=bf16].J1.1", "vae[batch_size=64,precision=bf16].R1")
    assert (last.axes, last.per) == ({"batch_size": 64, "precision": "bf16"}, 1)


def test_a_matrix_of_a_progression_has_both_axes() -> None:
    job = sweep(matrix={"batch_size": (32, 64)}, placement=Placement(devices="progression"))
    plan = make_plan("p", [job], [make_gpu(0), make_gpu(1)], environ={})
    assert [(task.id, task.row, task.axes, task.per) for task in plan.tasks] == [
        ("vae[batch_size=32].J0.0", "vae[batch_size=32].1", {"batch_size": 32, "gpus": 1}, 1),
        ("vae[batch_size=32].J0.1", "vae[batch_size=32].2", {"batch_size": 32, "gpus": 2}, 2),
        ("vae[batch_size=64].J0.0", "vae[batch_size=64].1", {"batch_size": 64, "gpus": 1}, 1),
        ("vae[batch_size=64].J0.1", "vae[batch_size=64].2", {"batch_size": 64, "gpus": 2}, 2),
    ]
    assert len(plan.waves) == 4


def test_an_axis_may_be_any_field() -> None:
    matrix = {"placement": ("cpu", "per_gpu"), "compile": (False, True), "max_time_s": (30, 300)}
    found = cells(sweep(matrix=matrix))
    assert len(found) == 8
    assert {cell.job.placement.devices for cell in found} == {"none", "each"}
    assert {cell.job.training.compile for cell in found} == {"none", "default"}
    assert {(cell.job.max_time_s, cell.job.timeout_s) for cell in found} == {(30, 510), (300, 780)}


def test_a_change_on_the_command_line_takes_its_axis_away() -> None:
    raw = {"model": "vae", "matrix": {"batch_size": [32, 64], "seed": [1, 2]}}
    job = resolve("vae", raw, "p", Overrides.parse(["--batch-size", "8"]))
    assert [(cell.name, cell.job.params["batch_size"]) for cell in cells(job)] == [
        ("vae[seed=1]", 8),
        ("vae[seed=2]", 8),
    ]
    job = resolve("vae", raw, "p", Overrides.parse(["--matrix", "{batch_size: [4]}"]))
    assert [cell.name for cell in cells(job)] == ["vae[batch_size=4]"]


@pytest.mark.parametrize(
    ("matrix", "words"),
    {
        "unknown axis": ({"bach_size": [1]}, "axis 'bach_size' is neither a job field nor a parameter of model 'vae'"),
        "no values": ({"batch_size": []}, "axis 'batch_size' has no values"),
        "a value twice": ({"batch_size": [1, 1]}, "axis 'batch_size' has the value 1 twice"),
        "a wrong value": ({"batch_size": [1, "x"]}, "expected int, got str, found 'x' (cell vae[batch_size=x]"),
        "a name as axis": ({"model": ["vae"]}, "axis 'model' is neither"),
        "no list": ({"batch_size": 3}, "field 'matrix[...]': expected array, got int"),
        "one value in two spellings": ({"compile": [True, "default"]}, "two combinations mean vae[compile=default]"),
        "a secret's place": ({"env": [{"A": "b"}]}, "axis 'env' is neither"),
        "too many": ({"seed": [*range(200)], "batch_size": [*range(1, 61)]}, "12,000 cells"),
    }.values(),
)  # fmt: skip
def test_a_bad_matrix_is_refused_before_anything_starts(matrix: Any, words: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps({"vae": {"model": "vae", "placement": "cpu", "matrix": matrix}}))
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    one_line_error(done, words, "job 'vae'")
    assert not (tmp_path / "out").exists()


def test_a_matrix_is_run_resumed_and_reported_a_row_a_cell(tmp_path: Path) -> None:
    """A cell that does not fit is marked, the run goes on, and a resume runs neither it nor a finished cell again."""
    fits = {"matrix": {"kind": ["oom", "ok"]}, "params": {"after_s": 0.0}}
    write_profile(tmp_path / "p.json", two=fits, one={"matrix": {"items": [3, 7]}})
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    kept = [result for _, result in results(tmp_path / "out") if isinstance(result, Result)]
    assert sorted((r.identity.cell, r.identity.axes.get("items"), r.task.job.params["items"]) for r in kept) == [
        ("one[items=3]", 3, 3), ("one[items=7]", 7, 7), ("two[kind=ok]", None, 1), ("two[kind=oom]", None, 1)
    ]  # fmt: skip
    assert [r.task.row for r in kept if r.status != "ok"] == ["two[kind=oom]"]
    assert {r.status for r in kept} == {"ok", "oom"}
    waits = [stream.input_s for r in kept if r.status == "ok" for stream in r.measurement.streams]
    assert len(waits) == 3 and all(wait is not None and 0 <= wait < 0.5 for wait in waits)
    logs = {path.name.partition(".a1.")[0] for path in (tmp_path / "out" / "logs").iterdir()}
    assert len(logs) == 4, "the files of two cells must not collide"
    for file in (tmp_path / "out").glob("p.one*items=7*.json"):
        file.unlink()
    attempts = tmp_path / "out" / "attempts.jsonl"
    attempts.write_text("".join(line for line in attempts.read_text().splitlines(True) if "items=7" not in line))
    for log in (tmp_path / "out" / "logs").glob("one_items=7*"):
        log.unlink()
    done = benchsuite("jobs", "p.json", "-o", "out", "--resume", cwd=tmp_path)
    assert "3 of them in earlier invocations" in done.stderr
    again = [result.task.row for _, result in results(tmp_path / "out") if isinstance(result, Result)]
    assert sorted(again) == ["one[items=3]", "one[items=7]", "two[kind=ok]", "two[kind=oom]"]
    summary = summarise(load(tmp_path / "out"))
    assert [(job.name, job.job, job.axes, job.n, job.not_run) for job in summary.jobs] == [
        ("two[kind=oom]", "two", {"kind": "oom"}, 1, 0),
        ("two[kind=ok]", "two", {"kind": "ok"}, 1, 0),
        ("one[items=3]", "one", {"items": 3}, 1, 0),
        ("one[items=7]", "one", {"items": 7}, 1, 0),
    ]
    slices = {
        r.task.row: r.measurement.streams[0].slices[0]
        for _, r in results(tmp_path / "out")
        if isinstance(r, Result) and r.status == "ok"
    }
    assert {row: one.items / one.steps for row, one in slices.items()} == {
        "one[items=3]": 3,
        "one[items=7]": 7,
        "two[kind=ok]": 1,
    }


@pytest.mark.parametrize(
    ("jobs", "words"),
    {
        "a job named like a cell": (
            {"a": {"matrix": {"items": [1]}}, "a[items=1]": {}}, "jobs 'a' and 'a[items=1]' both make a[items=1]",
        ),
        "a job named like a number of GPUs": (
            {
                "a": {"entry": None, "model": "vae", "placement": "gpu_progression_or_cpu"},
                "a.2": {},
            },
            "2 GPUs of the progression 'a'",
        ),
    }.values(),
)  # fmt: skip
def test_two_jobs_never_share_a_row(jobs: dict[str, Any], words: str, tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", **jobs)
    one_line_error(benchsuite("jobs", "p.json", "--dry-run", cwd=tmp_path), words)


def test_text_that_a_name_could_be_misread_by_is_quoted() -> None:
    raw = {"entry": "faults:build", "matrix": {"note": ["x", "x,neg=y"], "neg": ["y", "y,neg=y"]}}
    assert len({cell.name for cell in cells(resolve("a", raw, "p"))}) == 4


def test_an_explicit_time_limit_stays_when_max_time_s_is_an_axis() -> None:
    raw = {"model": "vae", "min_time_s": 1, "timeout_s": 100, "matrix": {"max_time_s": [5, 10]}}
    assert [cell.job.timeout_s for cell in cells(resolve("a", raw, "p"))] == [100, 100]


def test_a_rerun_keeps_its_cell_but_for_what_was_changed() -> None:
    raw = {"model": "vae", "matrix": {"compile": [True], "lr": [1], "placement": ["cpu"], "max_time_s": [20]}}
    (task,) = make_plan("p", [resolve("a", raw, "p")], [], environ={}).tasks
    assert task.axes == {"compile": "default", "lr": 1.0, "placement": "cpu", "max_time_s": 20.0}
    assert task.cell == "a[compile=default,lr=1,placement=cpu,max_time_s=20]"
    same = again(task, task.job, Place())
    assert (same.cell, same.axes) == (task.cell, task.axes)
    changed = resolve("a", profile_fields(task.job), "p", Overrides.parse(["--lr", "2"]))
    assert again(task, changed, Place()).cell == "a[compile=default,lr=2,placement=cpu,max_time_s=20]"
