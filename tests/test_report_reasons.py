"""Reasons, remedies and reservations of a report: each is true of the run that it stands beside."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from made_summaries import FAILED, NOT_RUN, flat, made_job, made_run
from outputs import document_of
from test_report_headline import report_against

from benchsuite.report.format import around
from benchsuite.report.measure.intervals import Interval
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import read_summary, write_summary
from benchsuite.report.show.brief import brief
from benchsuite.report.show.fail_on import holding
from benchsuite.report.show.html.key_numbers import key_numbers
from benchsuite.report.show.html.shell import unbroken
from benchsuite.report.show.report import Report, document
from benchsuite.report.show.sections.gpus import gpus_section
from benchsuite.report.show.sections.tasks import flagged_words
from benchsuite.report.stats.gpus import compare_gpus
from benchsuite.report.stats.score import score
from benchsuite.report.stats.weights import Weights, weigh


def intro(here: Summary, base: Summary | None = None) -> str:
    return " ".join(sentence.text for sentence in document_of(here, base=base).intro)


def report_of(summary: Summary, price: float | None = None) -> Report:
    return Report("run", summary, score(summary, weigh(Weights(), summary)), price=price)


def test_a_summary_of_an_earlier_version_counts_no_open_task_as_failed(tmp_path: Path) -> None:
    job = made_job("a", [100, NOT_RUN, NOT_RUN])
    old = msgspec.structs.replace(job, fail=2, to_run=0, not_run=2, state="fails in part")
    write_summary(tmp_path / "old.json", made_run(old))
    (read,) = read_summary(tmp_path / "old.json").jobs
    assert (read.fail, read.to_run, read.not_run, read.state) == (0, 2, 2, "unfinished")
    assert read.perf_adj == pytest.approx(100)


def test_a_remedy_that_was_followed_is_not_offered_again() -> None:
    base = made_run(flat("a", 100), flat("big", 100))
    three = made_run(flat("a", 100), made_job("big", [100, FAILED, FAILED]))
    said = intro(three, base)
    assert "No verdict: big is ok in 1 of 3 repeats only here." in said
    assert "--repeat" not in said
    once = made_run(flat("a", 100, repeats=1), flat("big", 100, repeats=1))
    assert "this run has 1 ok repeat; 3 are needed (run both with --repeat 3)" in intro(once, base)


def test_the_side_that_another_program_measured_is_named() -> None:
    said = document(report_against("v100", "h200x2")).intro[1].text
    assert said.endswith("The ratio is rough: another program measured this run (v100).")
    said = document(report_against("h200x2", "v100")).intro[1].text
    assert said.endswith("The ratio is rough: another program measured the baseline (v100).")


def test_each_of_two_ratios_without_a_verdict_says_so() -> None:
    assert document(report_against("h200x2", "v100", "h200")).intro[0].text.count("(no verdict)") == 2


def test_machines_without_a_gpu_are_compared_per_task() -> None:
    runs = [msgspec.structs.replace(made_run(flat("a", rate)), gpus_used=0) for rate in (100, 200)]
    said = intro(*runs)
    assert "per task 0.50x, whole machine 0.50x" in said
    assert "GPU" not in said


def test_a_lopsided_interval_shows_both_ends() -> None:
    wide = Interval(low=336.9, high=15_210, half=5.719, repeats=3)
    assert around(wide, 2264) == "+572 -85 %"
    assert around(Interval(low=99, high=101, half=0.01, repeats=3), 100) == "±1.0 %"


def test_the_interval_of_a_score_rests_on_the_job_with_the_fewest_repeats() -> None:
    found = report_of(made_run(made_job("a", [100, 101, 102, 103, 104, 105]), made_job("b", [50, 51, 52, 53]))).score
    assert found.interval
    assert found.interval.repeats == 4


def test_a_flag_of_an_older_rule_is_called_so() -> None:
    assert flagged_words(report_against("h200x2").summary) == "not steady by the rule of the version that measured"


def test_a_price_of_a_run_that_fails_is_marked() -> None:
    fails = made_run(flat("a", 100), made_job("big", [100, FAILED, 100]))
    report = report_of(fails, price=10.0)
    (price,) = [one for one in key_numbers(report, document(report)) if one.label.startswith("Price")]
    assert (price.beside, price.tone) == ("FAIL", "bad")


def test_gpus_that_cannot_be_tested_take_no_room_in_the_short_form() -> None:
    report = report_against("h200x2")
    found = compare_gpus(report.summary)
    short, whole = gpus_section(found, brief=True), gpus_section(found)
    assert short and whole
    assert len(short.parts) == 1 < len(whole.parts)
    assert "from the row's median" in whole.title
    assert len(brief(report_against("h200x2"), 5).sections) == 0


def test_a_smoke_run_is_incomplete_by_its_open_tasks_and_never_by_its_tag() -> None:
    done = made_run(flat("a", 100, tags=("smoke",)))
    assert holding(report_of(done), ["incomplete"]) == []
    cut = made_run(made_job("a", [100, NOT_RUN], tags=("smoke",)))
    assert holding(report_of(cut), ["incomplete"]) == ["incomplete: 1 task of 2 not run"]


def test_no_line_of_a_page_ends_inside_an_option() -> None:
    assert unbroken("run <both> with --repeat 3.") == ('run &lt;both&gt; with <span class="option">--repeat 3</span>.')
