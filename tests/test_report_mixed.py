"""Results of unlike machines, GPU models, drivers or versions of torch in one report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Call, keep_results, keep_run, make_gpu, make_result, make_run, make_task
from outputs import document_of

from benchsuite.errors import ResultError
from benchsuite.records import Result, TaskMachine
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import read_summary, write_summary
from benchsuite.report.sources import summary_of, summary_of_runs

FIRST: dict[str, Any] = {"host": "a", "cpu": "Xeon", "model": "A100", "driver": "550", "torch": "2.11"}


def on(job: str = "vae", rate: float = 100.0, repeat: int = 0, **facts: str | None) -> Result:
    """A result of a machine that differs from `FIRST` in these facts."""
    of = {**FIRST, **facts}
    gpus = (make_gpu(name=str(of["model"])),) if of["model"] else ()
    machine = TaskMachine(
        gpus=gpus,
        cpu=of["cpu"],
        driver=of["driver"],
        facts_sha256=str(sorted(of.items(), key=str)),
        software={"torch": str(of["torch"])},
    )
    task = make_task(job, repeat, gpus=gpus)
    return make_result(job, [rate] * 30, task=task, host=str(of["host"]), machine=machine)


def lead_of(summary: Summary) -> str:
    """The first lines of the report."""
    return " ".join(one.text for one in document_of(summary).intro[:2])


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"host": "b", "model": "H100"}, ["2 hosts (a, b)", "2 GPU models (A100, H100)"]),
        ({"host": "b", "model": None, "cpu": "EPYC"}, ["2 processor models (Xeon, EPYC)"]),
        ({"model": "H100"}, ["2 GPU models (A100, H100)"]),
    ],
)
def test_unlike_machines_are_named_first_and_share_no_number(
    facts: dict[str, str | None], said: list[str], tmp_path: Path, call: Call
) -> None:
    keep_results(tmp_path / "bag", [on(rate=100), on(rate=300, repeat=1, **facts)])
    summary = summary_of(tmp_path / "bag")
    (job,) = summary.jobs
    assert (job.perf, job.std, job.perf_adj, job.interval) == (None, None, 0, None)
    assert [task.perf for task in job.tasks] == [100, 300], "each task keeps its own"
    for words in ("MIXED RESULTS", "No number of 1 job (vae)", *said):
        assert words in lead_of(summary)
    status, out, _ = call("report", tmp_path / "bag")
    assert status == 0
    assert "results of unlike machines: vae" in out
    assert "MIXED RESULTS" in "".join(out.splitlines()[:4])
    assert json.loads(call("report", tmp_path / "bag", "--json", "-")[1])["score"]["value"] is None


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"driver": "580"}, "2 drivers (550, 580)"),
        ({"torch": "2.14"}, "2 torch versions (2.11, 2.14)"),
        ({"host": "b"}, "2 hosts (a, b)"),
    ],
)
def test_other_software_or_an_equal_machine_is_named_first_and_the_number_stays(
    facts: dict[str, str], said: str, tmp_path: Path
) -> None:
    keep_results(tmp_path / "bag", [on(rate=100), on(rate=300, repeat=1, **facts)])
    summary = summary_of(tmp_path / "bag")
    assert f"MIXED RESULTS: {said}." in lead_of(summary)
    assert summary.jobs[0].perf == 200


def test_a_job_that_one_machine_ran_keeps_its_number_beside_one_that_two_ran(tmp_path: Path) -> None:
    keep_results(tmp_path / "bag", [on(), on(host="b", model="H100"), on("dcgan", host="b", model="H100")])
    assert {job.name: job.perf for job in summary_of(tmp_path / "bag").jobs} == {"vae": None, "dcgan": 100}


def test_unlike_gpus_of_one_planned_machine_are_named_and_its_number_stays(tmp_path: Path) -> None:
    tasks = [make_task(gpus=(make_gpu(index, name),)) for index, name in enumerate(("A100", "H100"))]
    results = [
        make_result(task=task, machine=TaskMachine(gpus=task.gpus, driver="1", facts_sha256="0")) for task in tasks
    ]
    keep_run(tmp_path / "run", results)
    summary = summary_of(tmp_path / "run")
    assert "2 GPU models (A100, H100)" in lead_of(summary)
    assert summary.jobs[0].perf == 100


def test_a_kept_summary_says_the_same_and_compares_nothing(tmp_path: Path, call: Call) -> None:
    keep_results(tmp_path / "bag", [on(rate=100), on(rate=300, repeat=1, host="b", model="H100")])
    keep_results(tmp_path / "base", [on(rate=100)])
    write_summary(tmp_path / "bag.json", summary_of(tmp_path / "bag"))
    assert lead_of(read_summary(tmp_path / "bag.json")) == lead_of(summary_of(tmp_path / "bag"))
    for here, base in (("bag.json", "base"), ("base", "bag.json")):
        out = json.loads(call("report", tmp_path / here, "--compare", str(tmp_path / base), "--json", "-")[1])
        (job,) = out["comparisons"][0]["jobs"]
        assert job["ratio"] is None
        assert "results of unlike machines in" in job["excluded"]


def session(folder: Path, day: int, **facts: str) -> Path:
    """A run on CPUs whose machine has these facts."""
    run = make_run(0)
    machine = msgspec.structs.replace(run.machines[0], **{k: v for k, v in facts.items() if k != "torch"})
    task = make_task(gpu=None)
    of = TaskMachine(gpus=(), cpu=machine.cpu, driver=None, facts_sha256="0", software={"torch": facts["torch"]})
    created = f"2026-01-{day:02d}T16:00:00+00:00"
    result = make_result(rates=[100 + 2 * day] * 30, task=task, origin_s=1000.0 * day, host=machine.host, machine=of)
    keep_run(folder, [result], run=msgspec.structs.replace(run, machines=(machine,), created=created))
    return folder


def test_sessions_of_another_torch_are_named_first_and_of_another_processor_are_refused(tmp_path: Path) -> None:
    first = session(tmp_path / "a", 5, torch="2.11", cpu="Xeon")
    second = session(tmp_path / "b", 6, torch="2.14", cpu="Xeon", host="other")
    third = session(tmp_path / "c", 7, torch="2.11", cpu="EPYC")
    together = summary_of_runs([first, second])
    assert "MIXED RESULTS: 2 hosts (hostA, other), 2 torch versions (2.11, 2.14)." in lead_of(together)
    assert together.jobs[0].perf == 111
    with pytest.raises(ResultError, match=r"8 x Xeon.*8 x EPYC.*one machine or of equal machines"):
        summary_of_runs([first, third])


def test_like_results_have_no_warning(tmp_path: Path) -> None:
    keep_results(tmp_path / "bag", [on(), on(repeat=1)])
    assert "MIXED" not in lead_of(summary_of(tmp_path / "bag"))
