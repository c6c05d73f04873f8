"""Two settings on one machine are compared by naming their difference; across machines they stay apart."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from made_summaries import FAILED, made_job, made_run
from msgspec.structs import replace
from outputs import beside, document_of, report_of, row, section, sentences

from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.brief import brief
from benchsuite.report.show.export import job_rows, to_json
from benchsuite.report.show.fail_on import holding
from benchsuite.report.stats.compare import Comparison, compare
from benchsuite.report.stats.weights import Weights, weigh

FP32: dict[str, Any] = {"model": "vae", "params": {"batch_size": 64, "lr": 0.1}, "precision": "fp32"}
BF16 = {**FP32, "precision": "bf16"}


def trains(name: str, factor: float, settings: dict[str, Any], seed: int = 1, **fields: Any) -> JobSummary:
    """A job whose five repeats scatter by 1 % about 100 times `factor` items/s."""
    rates = 100 * factor * np.exp(np.random.default_rng(seed).normal(0, 0.01, 5))
    kept = {"unit": "image", "workload": json.dumps(settings), "settings": settings, **fields}
    return made_job(name, rates.tolist(), **kept)


def run(settings: dict[str, Any], factors: dict[str, float], seed: int = 0, **fields: Any) -> Summary:
    return made_run(*(trains(name, of, settings, seed + i) for i, (name, of) in enumerate(factors.items())), **fields)


def against(here: Summary, base: Summary, **options: bool) -> Comparison:
    return compare(here, base, weigh(Weights(), here), "base", **options)


def on(summary: Summary, **changes: Any) -> Summary:
    """The run with facts of its machine changed."""
    return replace(summary, machines=(replace(summary.machines[0], **changes),))


BASE = run(FP32, {"a": 1.0, "b": 1.0}, seed=40)
HERE = run(BF16, {"a": 2.0, "b": 4.0})


def test_a_precision_is_compared_on_the_same_machine_and_is_no_ratio_of_machines() -> None:
    found = against(HERE, BASE)
    assert [round(job.ratio or 0) for job in found.jobs] == [2, 4]
    assert {job.verdict.word for job in found.jobs} == {"FASTER"}
    (setting,) = found.settings
    assert (setting.difference.words, setting.jobs) == ("bf16 against fp32", ("a", "b"))
    assert setting.ratio
    assert setting.ratio.value == pytest.approx(8**0.5, rel=0.02)
    assert (setting.ratio.verdict.low or 9) < setting.ratio.value < (setting.ratio.verdict.high or 0)
    assert (found.overall.per_gpu, found.overall.machine, found.different) == (None, None, ())
    assert found.overall.apart == {"a": "bf16 against fp32", "b": "bf16 against fp32"}
    assert {group.value for group in found.groups} == {None}, "a sub-score's ratio is of machines"
    # The option for unlike work leaves a named difference as it is.
    assert against(HERE, BASE, unlike=True).overall.per_gpu is None


def test_the_first_line_names_the_setting_and_no_machine_is_faster() -> None:
    shown = document_of(HERE, base=BASE)
    first = shown.intro[0].text
    assert "bf16 is 2.8" in first
    assert "FASTER) fp32 over 2 jobs (a, b), on the same machine, per GPU" in first
    assert shown.intro[1].text == "This is a ratio of settings, not of machines."
    assert not any("No ratio" in line.text for line in shown.intro)
    assert beside(shown, "Setting").startswith("2.8")
    assert (beside(shown, "Per GPU"), beside(shown, "No ratio"), beside(shown, "Whole machine")) == ("", "", "")
    part = section(shown, "Against base")
    assert row(part, "a")["verdict"].text == "FASTER: bf16 against fp32"
    assert any("FASTER and SLOWER are about the setting" in line for line in sentences(part))
    table = brief(report_of(HERE, base=BASE), 9).jobs
    assert table
    assert row(table, "b")["x base"].text.endswith("FASTER: bf16 against fp32")


def test_unlike_differences_are_named_in_their_rows_and_each_has_a_ratio() -> None:
    smaller = {**FP32, "params": {"batch_size": 32, "lr": 0.1}}
    compiled = {**BF16, "compile": "default"}
    here = made_run(trains("a", 0.5, smaller), trains("b", 2.0, BF16, 2), trains("c", 3.0, compiled, 3))
    base = run({**FP32, "compile": "none"}, {"a": 1.0, "b": 1.0, "c": 1.0}, seed=9)
    base = replace(base, jobs=(*run(FP32, {"a": 1.0, "b": 1.0}, seed=9).jobs, base.jobs[2]))
    found = against(here, base)
    assert [job.difference.words for job in found.jobs if job.difference] == [
        "batch size 32 against batch size 64",
        "bf16 against fp32",
        "bf16 with compile default against fp32 with no compile",
    ]
    assert [job.verdict.word for job in found.jobs] == ["SLOWER", "FASTER", "FASTER"]
    assert [of.jobs for of in found.settings] == [("a",), ("b",), ("c",)]
    assert "2 other differences below" in document_of(here, base=base).intro[0].text


def test_jobs_of_the_same_work_alone_make_the_ratio_of_the_machines() -> None:
    same = trains("same", 1.0, FP32, 5)
    found = against(replace(HERE, jobs=(*HERE.jobs, same)), replace(BASE, jobs=(*BASE.jobs, same)))
    assert found.overall.jobs == ("same",)
    assert found.overall.per_gpu
    assert found.overall.per_gpu.value == 1.0
    assert [of.jobs for of in found.settings] == [("a", "b")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"host": "elsewhere"}, "another host"),
        ({"cpu": "another CPU"}, "another processor"),
        ({"cpus": 3}, "another processor"),
        ({"memory_bytes": 2**50}, "another memory"),
    ],
)
def test_across_machines_there_is_no_ratio_and_the_remedy_is_named(change: dict[str, Any], reason: str) -> None:
    base = on(BASE, **change)
    found = against(HERE, base)
    assert [(job.ratio, job.difference, job.unnamed) for job in found.jobs] == [(None, None, reason)] * 2
    assert (found.settings, found.different) == ((), ("a", "b"))
    line = next(line.text for line in document_of(HERE, base=base).intro if line.text.startswith("No ratio"))
    assert "another workload: a, b (precision fp32 -> bf16; --compare-unlike compares them)" in line
    forced = against(HERE, base, unlike=True)
    assert forced.overall.per_gpu
    assert [job.forced for job in forced.jobs] == [True, True]


def test_other_gpus_of_the_same_host_and_an_unknown_machine_are_other_machines() -> None:
    moved = made_job("a", [FAILED] * 5, [200.0] * 5, workload="2", settings=BF16, unit="image")
    (job,) = against(made_run(moved, gpus=2), made_run(trains("a", 1.0, FP32), gpus=2)).jobs
    assert (job.ratio, job.unnamed) == (None, "another GPU")
    (job, _) = against(HERE, replace(BASE, machines=())).jobs
    assert (job.ratio, job.unnamed) == (None, "the baseline does not record its machine")
    # Another driver or another start of the same machine is listed, and no other machine.
    assert against(HERE, on(BASE, driver="1.0", boot_id="another")).settings


@pytest.mark.parametrize(
    ("settings", "fields", "reason"),
    [
        ({**FP32, "model": "wlm"}, {}, "another model"),
        (
            {**FP32, "params": {"batch_size": 64, "lr": 0.1, "hidden": 9}},
            {},
            "hidden can change the model or an item of a",
        ),
        (BF16, {"unit": "token"}, "another unit: token here, image in the baseline"),
        (BF16, {"devices": "none"}, "other GPUs of a task"),
        (BF16, {"unlike": ("precision fp32 -> bf16",)}, "the tasks of one side differ among themselves"),
        ({}, {}, "a side keeps no settings"),
    ],
)
def test_another_model_or_unit_has_no_ratio(settings: dict[str, Any], fields: dict[str, Any], reason: str) -> None:
    found = against(made_run(trains("a", 2.0, settings, **fields)), run(FP32, {"a": 1.0}))
    assert [(job.ratio, job.unnamed) for job in found.jobs] == [(None, reason)]
    assert found.settings == ()


def test_a_setting_with_which_a_job_fails_has_no_ratio_over_the_other_jobs() -> None:
    lost = made_job("b", [FAILED] * 5, unit="image", workload="2", settings=BF16)
    found = against(replace(HERE, jobs=(HERE.jobs[0], lost)), BASE)
    (setting,) = found.settings
    assert (setting.ratio, setting.reason) == (None, "b has no rate on a side")
    assert [job.verdict.word for job in found.jobs] == ["FASTER", "FAILS"]


def test_scripts_read_the_difference() -> None:
    report = report_of(HERE, base=BASE)
    (comparison,) = json.loads(to_json(report))["comparisons"]
    named = {"name": "precision", "here": "bf16", "base": "fp32"}
    assert named.items() <= comparison["jobs"][0]["difference"].items()
    assert comparison["settings"][0]["ratio"]["verdict"]["word"] == "FASTER"
    assert job_rows(report)["compared_difference_here"].tolist() == ["bf16", "bf16"]
    same = json.loads(to_json(report_of(BASE, base=BASE)))["comparisons"][0]
    assert (same["jobs"][0]["difference"], same["settings"]) == (None, [])


def test_a_slower_setting_ends_with_a_status_of_its_own() -> None:
    assert holding(report_of(HERE, base=BASE), ["slower"]) == []
    (why,) = holding(report_of(BASE, base=HERE), ["slower"])
    assert "the setting is slower: fp32 against bf16" in why
