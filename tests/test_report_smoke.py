"""A run that checks function only: its report says which jobs train, and gives no score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Call, keep_run, make_result, make_task
from outputs import document_of, summary_for, text_of

from benchsuite.describe import profile
from benchsuite.describe.tasks import Job, Placement
from benchsuite.records import Failure, Result
from benchsuite.report.measure.window import MIN_WINDOW_S, WARM_UP_S
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import ScoreBlock

WHY = "the jobs are tagged `smoke`; their measurement is too short to judge a machine by"


def result(name: str, *, gpu: int = 0, tags: tuple[str, ...] = ("smoke",), **fields: Any) -> Result:
    job = Job(name=name, model="vae", tags=tags, placement=Placement(devices="each"))
    return make_result(task=make_task(name, gpu=gpu, job=job), **fields)


def block(summary: Summary) -> ScoreBlock:
    found = document_of(summary).score
    assert found
    return found


def failed(name: str, gpu: int = 0) -> Result:
    return result(name, gpu=gpu, status="failed", rates=(), error=Failure(kind="ValueError", message="no"))


def test_where_every_job_trains_it_works(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, *(result(name, rates=[100.0] * 14) for name in ("a", "b")))
    assert [job.tags for job in summary.jobs] == [("smoke",), ("smoke",)]
    shown = block(summary)
    assert [(one.label, one.value.text) for one in shown.own] == [("Works on this machine", "2 of 2 jobs train")]
    assert [(note.label, note.sentence.text) for note in shown.notes] == [("No score", WHY)]
    assert {"Weights", "Variance"}.isdisjoint(fact.label for fact in shown.facts)
    assert {"Profile", "Machine", "Code"} <= {fact.label for fact in shown.facts}
    assert document_of(summary).intro[0].text == "Works on this machine: 2 of 2 jobs train."


def test_the_jobs_that_fail_are_named_with_their_tasks(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, result("a"), failed("big"), result("part"), failed("part", gpu=1))
    (figure,) = block(summary).own
    assert figure.label == "Fails on this machine"
    assert figure.value.text == "big (1 of 1 task), part (1 of 2 tasks)"
    assert [sentence.text for sentence in figure.beside] == ["1 of 3 jobs train"]


def test_a_task_that_is_too_short_for_a_window_trains(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, result("a", rates=[100.0] * 4))
    assert summary.jobs[0].fail == 1
    assert block(summary).own[0].label == "Works on this machine"


def test_where_all_tasks_are_too_short_the_report_succeeds_and_lists_real_failures_only(
    tmp_path: Path, call: Call
) -> None:
    short = [result(name, rates=[100.0] * 2) for name in ("vae", "wlm")]
    keep_run(tmp_path / "short", short)
    code, out, _ = call("report", tmp_path / "short")
    assert code == 0
    assert "2 of 2 jobs train" in out
    assert "failed" not in out.partition("number:")[0].replace("none failed", "")
    keep_run(tmp_path / "one", [*short, failed("dcgan")])
    code, out, _ = call("report", tmp_path / "one")
    assert "Fails on this machine: dcgan (1 of 1 task)" in out
    assert "insufficient" not in out


def test_a_task_that_never_ran_did_not_fail(tmp_path: Path) -> None:
    tasks = [result(name).task for name in ("a", "b")]
    summary = summary_for(tmp_path, result("a"), tasks=tasks)
    (figure,) = block(summary).own
    assert (figure.label, figure.value.text) == ("Unfinished", "1 of 2 jobs train; not ended: b")


def test_one_job_without_the_tag_makes_it_a_measurement(tmp_path: Path) -> None:
    document = document_of(summary_for(tmp_path, result("a"), result("b", tags=("other",))))
    assert document.score
    assert (document.score.title, document.score.own[0].label) == ("Score", "Score")
    assert not document.intro[0].text.startswith("Works")


def test_no_form_of_the_report_shows_a_score(tmp_path: Path, call: Call) -> None:
    keep_run(tmp_path / "run", [result("a"), result("b")])
    page, markdown, data = (tmp_path / name for name in ("page.html", "report.md", "report.json"))
    code, out, _ = call("report", tmp_path / "run", "--html", page, "--md", markdown, "--json", data, "--price", "9")
    assert code == 0
    for text in (out, page.read_text(), markdown.read_text()):
        assert "Works on this machine" in text
        assert text is out or "Check of function" in text
        assert not [word for word in ("Machine score", "PROVISIONAL", "Price", "Weights") if word in text]
    scored = json.loads(data.read_text())["score"]
    assert {scored[name] for name in ("value", "machine", "interval", "speed")} == {None}
    assert scored["reason"] == WHY


def test_the_short_report_flags_no_job(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [result("a", rates=[50] * 10 + [100] * 20)])
    code, out, _ = call("report", tmp_path / "run")
    assert (code, "Works on this machine: 1 of 1 job trains." in out, "flagged" in out) == (0, True, False)


def test_a_terminal_shows_it_under_its_own_title(tmp_path: Path) -> None:
    text = text_of(summary_for(tmp_path, result("a")))
    assert "Works on this machine  1 of 1 job trains" in text


@pytest.mark.parametrize("job", profile.load("smoke").jobs, ids=lambda job: job.name)
def test_each_job_of_the_smoke_profile_is_tagged_and_long_enough_for_a_window_without_its_start(job: Job) -> None:
    assert job.tags == ("smoke",)
    assert job.min_time_s >= WARM_UP_S + MIN_WINDOW_S + 1
