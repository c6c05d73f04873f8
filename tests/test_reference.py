"""The reference pages of docs/ equal what the program prints, and what they add to the types is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import in_process

from benchsuite.describe import jobs, reference
from benchsuite.describe.tasks import Job, profile_fields

DOCS = Path(__file__).resolve().parents[1] / "docs"


def job(**fields: Any) -> dict[str, Any]:
    return profile_fields(jobs.resolve("mine", {"model": "gnmt", **fields}, "mine.yaml"))


@pytest.mark.parametrize(
    ("page", "name"), [("profile-reference.md", "profile-fields"), ("result-schema.md", "result-fields")]
)
def test_a_reference_page_is_what_the_command_prints(page: str, name: str, tmp_path: Path) -> None:
    printed = in_process("list", name, cwd=tmp_path).stdout
    remedy = f"benchsuite list {name} > docs/{page}"
    assert printed == (DOCS / page).read_text(encoding="utf-8"), f"mend it by: {remedy}"


@pytest.mark.parametrize("page", [reference.profile_page, reference.result_page])
def test_every_field_has_a_meaning(page: Any) -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert [row for row in rows if row.endswith("|  |")] == [], "give these fields a Meta(description=...)"


def test_the_page_of_a_profile_has_every_field_that_a_job_may_set() -> None:
    table = reference.profile_page().partition("## Placement")[0]
    assert [name for name in profile_fields(Job(name="mine")) if f"| `{name}` |" not in table] == []


@pytest.mark.parametrize(
    ("short", "long"),
    [
        *(({"placement": name}, {"placement": fields}) for name, fields in jobs.PLACEMENTS.items()),
        ({"compile": True}, {"compile": "default"}),
        ({"compile": False}, {"compile": "none"}),
        ({"intra_op_threads": 4}, {"intra_op_threads": "4"}),
        ({"container": "torch:1"}, {"container": {"image": "torch:1"}}),
        (
            {"target": "loss=2.0", "max_epochs": 2, "epoch_items": 9},
            {"target": {"loss": 2.0}, "max_epochs": 2, "epoch_items": 9},
        ),
    ],
)
def test_a_short_form_stands_for_its_long_form(short: dict[str, Any], long: dict[str, Any]) -> None:
    assert next(iter(short)) in reference.SHORT_FORMS
    assert job(**short) == job(**long)


@pytest.mark.parametrize("field", ["sharing", "copies"])
def test_a_list_of_ways_or_copies_is_an_axis(field: str) -> None:
    values = {"sharing": ["concurrent", "mps"], "copies": [1, 2]}[field]
    way = {} if field == "sharing" else {"sharing": "concurrent"}
    assert list(job(**way, **{field: values})["matrix"][field]) == values


def test_the_defaults_that_depend_on_other_fields_are_those_of_a_job() -> None:
    plain, by_epochs = job(max_time_s=50), job(max_epochs=2, epoch_items=9)
    assert plain["timeout_s"] == 50 + 480
    assert reference.DEFAULTS["timeout_s"] == "`max_time_s` + 480"
    assert (job()["min_time_s"], job()["max_time_s"]) == (15.0, 120.0)
    assert by_epochs["min_time_s"] == 0
    assert by_epochs["max_time_s"] == jobs.LONGEST_S
