"""Before a run starts, it names the jobs that cannot get a number."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import make_task

from benchsuite import files
from benchsuite.describe import profile
from benchsuite.describe.tasks import Job
from benchsuite.report.measure.foresight import doubt, warnings
from benchsuite.report.measure.window import task_window


def job(**fields: Any) -> Job:
    return Job(name="vae", model="vae", **fields)


@pytest.mark.parametrize("name", [*files.shipped("profiles")])
def test_no_job_of_a_shipped_profile_is_in_doubt(name: str) -> None:
    assert [job.name for job in profile.load(name).jobs if doubt(job)] == []


@pytest.mark.parametrize(
    ("fields", "certain", "reason"),
    [
        ({"min_time_s": 2.0}, True, "min_time_s 2, and a number needs 5 s"),
        ({"min_time_s": 2.0, "max_time_s": 3.0, "max_steps": 9}, True, "max_time_s 3,"),
        ({"min_time_s": 0.0, "max_steps": 30}, False, "max_steps 30 may end the measurement within 5 s"),
        ({"min_time_s": 0.0, "max_count": 99}, False, "max_count 99 may end"),
        ({"min_time_s": 5.0}, False, "after 5 s, and a number needs 5 s of whole slices"),
    ],
)
def test_a_job_whose_limits_are_too_short_is_in_doubt(fields: dict[str, Any], certain: bool, reason: str) -> None:
    found = doubt(job(**fields))
    assert found
    assert found.certain == certain
    assert reason in found.reason
    assert "--min-time-s 6" in found.remedy


def test_what_is_certain_to_be_too_short_has_no_window_and_the_remedy_has_one(make_result: Any) -> None:
    """In slices of half a second, as a worker closes them."""
    assert task_window(make_result(rates=[100] * 9)).perf is None  # 4.5 s
    assert task_window(make_result(rates=[100] * 12)).perf == 100  # 6 s


def test_the_warning_names_job_reason_and_remedy() -> None:
    short = [make_task(job=Job(name=name, model="vae", min_time_s=2.0)) for name in ("vae", "wlm")]
    first, second = warnings(short)
    assert first.startswith("warning: vae, wlm cannot get a number: the measurement ends after min_time_s 2")
    assert first.endswith("Remedy: -- --min-time-s 6")
    assert "no task of this run can get a number. The run starts" in second
    assert len(warnings([*short, make_task("cart")])) == 1
    assert warnings([make_task("cart")]) == []
    assert warnings([make_task(job=short[0].job, skip="a package is missing")]) == []
