"""Jobs that need more GPUs than are visible: they are not run, they are no failures, and no score hides them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from conftest import Call, keep_run, make_gpu, make_result, make_run

from benchsuite.describe import profile
from benchsuite.describe.plan import make_plan
from benchsuite.records import Result
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import ProfileRef, Summary
from benchsuite.report.stats.score import score
from benchsuite.report.stats.sessions import together
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.weights import Weights, weigh

NEED_TWO = {"peer_links", "all_reduce"}


def quick_run(folder: Path, *, present: int = 1, broken: str = "", day: int = 6) -> Path:
    """A run of `probes_quick` on one visible GPU, on a machine with `present` GPUs."""
    plan = make_plan("probes_quick", profile.load("probes_quick").jobs, [make_gpu()], environ={})
    assert {task.job.name for task in plan.tasks if task.skip} == NEED_TWO

    def result(name: str) -> Result:
        task = next(task for task in plan.tasks if task.job.name == name)
        status = "skipped" if task.skip else "failed" if name == broken else "ok"
        return make_result(task=task, status=status, rates=() if task.skip else (100.0 + day,) * 30)

    run = msgspec.structs.replace(make_run(present), created=f"2026-01-0{day}T16:00:00+00:00")
    keep_run(folder, [result(task.job.name) for task in plan.tasks], run=run)
    return folder


def weights(summary: Summary, **values: float) -> Weights:
    return Weights({**dict.fromkeys((job.name for job in summary.jobs), 1.0), **values}, "w.json", "b" * 64)


def test_they_count_as_no_failure_and_the_report_names_them(call: Call, tmp_path: Path) -> None:
    run = quick_run(tmp_path / "run")
    status, out, _ = call("report", run)
    summary = summarise(load(run))
    assert (status, summary.needs_more_gpus) == (0, dict.fromkeys(("peer_links", "all_reduce"), 2))
    assert score(summary, weigh(Weights(), summary)).verdict == "PASS"
    words = "Not run, since they need more GPUs than are visible: peer_links (2 GPUs), all_reduce (2 GPUs)."
    assert words in " ".join(out.split())
    assert "0 of 4 tasks not ok" in out
    assert "FAILS" not in out
    assert call("report", run, "--fail-on", "failures", "--html", tmp_path / "page.html")[0] == 0
    assert "peer_links.J0" not in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "0.0 %: 0 of 4 tasks not ok, 2 not run for lack of GPUs" in call("verify", run)[1]


def test_a_failure_beside_them_still_counts(tmp_path: Path) -> None:
    summary = summarise(load(quick_run(tmp_path / "run", broken="memory")))
    found = score(summary, weigh(Weights(), summary))
    assert (found.fail, found.ended, found.verdict) == (1, 4, "FAIL")


@pytest.mark.parametrize(("present", "scored"), [(1, True), (2, False)])
def test_a_weighed_job_is_left_out_of_the_score_only_where_the_machine_lacks_its_gpus(
    tmp_path: Path, present: int, scored: bool
) -> None:
    summary = summarise(load(quick_run(tmp_path / "run", present=present)))
    for given in (Weights(), weights(summary, peer_links=1.0, all_reduce=1.0)):
        found = score(summary, weigh(given, summary))
        assert (found.value is not None) == scored
        assert found.blocking == (() if scored else ("more GPUs needed than are visible: peer_links, all_reduce",))


def test_a_weighed_job_that_an_own_profile_lacks_is_another_matter(tmp_path: Path) -> None:
    summary = summarise(load(quick_run(tmp_path / "run", present=2)))
    own = msgspec.structs.replace(summary, profile=ProfileRef(name="own", official=False))
    found = score(own, weigh(weights(own, peer_links=1.0, vae=1.0), own))
    assert found.incomplete == ("more GPUs needed than are visible: peer_links", "not in this profile: vae")


def test_the_run_is_not_complete_and_sessions_keep_the_names(tmp_path: Path) -> None:
    runs = [summarise(load(quick_run(tmp_path / f"{day}", day=day))) for day in (6, 7)]
    merged = together(runs, ["6", "7"])
    assert [one.complete for one in (*runs, merged)] == [False] * 3
    assert set(merged.needs_more_gpus) == NEED_TWO
