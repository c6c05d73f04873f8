"""`benchsuite report --systems`: machines in one table, in groups whose scores compare."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from conftest import Call, keep_run, make_result, make_run
from made_summaries import FAILED, flat, made_job, made_run, published_job
from msgspec.structs import replace
from outputs import unwrapped

from benchsuite.records import Code
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import write_summary
from benchsuite.report.show.document import Table
from benchsuite.report.show.systems import systems_document, to_json
from benchsuite.report.show.systems_row import repeatable, system_rows
from benchsuite.report.stats.systems import Group, Named, group_systems

CODE = {"code": (Code(version="0.1.0"),)}


def grouped(*summaries: Summary, prices: tuple[float | None, ...] = ()) -> tuple[Group, ...]:
    """Groups of systems named "0", "1" and so on."""
    given = prices or (None,) * len(summaries)
    named = [Named(str(place), of, price) for place, (of, price) in enumerate(zip(summaries, given, strict=True))]
    return group_systems(named, margin=0.02)


def machine(rate: float, gpus: int = 1, name: str = "vae", **fields: object) -> Summary:
    return made_run(
        made_job(name, *([rate, rate * 1.01, rate * 0.99] for _ in range(gpus))), gpus=gpus, **CODE, **fields
    )  # type: ignore[arg-type]


def test_the_best_machine_comes_first_with_its_ratios_to_the_first_named() -> None:
    groups = grouped(machine(100.0), machine(90.0, gpus=2), machine(300.0))
    assert [[system.named.name for system in group.systems] for group in groups] == [["2", "1", "0"]]
    best, two, reference = system_rows(groups)
    assert (best.ratio_machine, best.ratio_machine_verdict) == (pytest.approx(3.0), "FASTER")
    assert (two.ratio_per_gpu, two.ratio_machine) == (pytest.approx(0.9), pytest.approx(1.8))
    assert two.ratio_machine_low is not None
    assert (reference.ratio_machine, reference.reference) == (1.0, "0")
    assert two.machine_score == pytest.approx(180.0, rel=0.02)
    lead = systems_document(groups).intro[0].text
    assert lead.startswith("The fastest of 3 that compare: 2 (1 x NVIDIA Test), machine score 29")
    assert lead.endswith(", 3.00x 0 as a machine, 3.00x per GPU.")


def test_a_machine_on_which_a_job_fails_has_no_score_and_comes_last() -> None:
    both = made_run(flat("vae", 100.0), flat("big", 10.0), **CODE)
    survivor = made_run(flat("vae", 200.0), flat("big", FAILED), **CODE)
    good, failing = system_rows(grouped(survivor, both))
    assert (good.name, good.score_per_gpu) == ("1", pytest.approx(31.6, abs=0.1))
    assert (failing.score_per_gpu, failing.machine_score, failing.verdict) == (None, None, "FAIL")
    assert "no score: big fails in 3 of 3 tasks" in failing.remarks
    assert good.ratio_machine is None
    text = " ".join(sentence.text for sentence in systems_document(grouped(survivor, both)).intro)
    assert "FAIL: 0." in text


def test_another_program_profile_or_workload_stands_apart() -> None:
    ours = machine(100.0)
    published = replace(made_run(published_job("vae", 50.0, gpus=8, workload=None), gpus=8), provenance="a paper")
    other = machine(100.0, profile="mine")
    batch = replace(ours, jobs=tuple(replace(job, workload="another") for job in ours.jobs))
    groups = grouped(ours, published, other, batch, machine(50.0))
    assert [[system.named.name for system in group.systems] for group in groups] == [["0", "4"], ["1"], ["2"], ["3"]]
    assert [group.program for group in groups] == ["benchsuite", "another program", "benchsuite", "benchsuite"]
    assert groups[3].apart == "another workload than 0: vae"
    rows = {row.name: row for row in system_rows(groups)}
    assert rows["1"].ratio_per_gpu == pytest.approx(0.5, rel=0.01)
    assert rows["3"].ratio_per_gpu is None
    assert any("another workload: vae" in remark for remark in rows["3"].remarks)


def test_the_price_is_over_the_machine_score() -> None:
    rows = {
        row.name: row for row in system_rows(grouped(machine(100.0), machine(90.0, gpus=2), prices=(1000.0, 1500.0)))
    }
    for row in rows.values():
        assert row.machine_score and row.price
        assert row.price_per_machine_score == pytest.approx(row.price / row.machine_score)


def test_the_command_of_a_row_leaves_out_the_folder_of_the_run() -> None:
    words = ("/usr/bin/benchsuite", "jobs", "standard", "-o", "my run", "--repeat", "3", "--", "--batch-size", "4")
    assert repeatable(words) == "benchsuite jobs standard --repeat 3 -- --batch-size 4"
    assert repeatable(("jobs", "a b", "--output=x")) == "benchsuite jobs 'a b'"
    module = ("/opt/my site/benchsuite/__main__.py", "jobs", "two.yaml", "--repeat", "3")
    assert repeatable(module) == "benchsuite jobs two.yaml --repeat 3"
    assert repeatable(()) is None


def test_systems_are_folders_summaries_baselines_and_sessions(call: Call, tmp_path: Path) -> None:
    for place, (name, rate) in enumerate((("a", 100.0), ("b", 110.0), ("c", 50.0)), start=1):
        results = [make_result(rates=[rate + i] * 30, repeat=i, origin_s=1000.0 + rate) for i in range(3)]
        keep_run(tmp_path / name, results, run=replace(make_run(), created=f"2026-01-0{place}"))
    assert call("summary", tmp_path / "c", "-o", tmp_path / "c.json")[0] == 0
    named = (f"{tmp_path / 'a'},{tmp_path / 'b'}", tmp_path / "c.json", "h200")
    code, out, err = call("report", "--systems", *named, "--csv", tmp_path / "s.csv", "--html", tmp_path / "s.html")
    assert code == 0
    assert "csv written" in err
    with (tmp_path / "s.csv").open() as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert rows["c"]["command"] == "benchsuite jobs suite"
    assert (rows["c"]["driver"], rows["c"]["torch"], rows["c"]["tasks"]) == ("580.0", "2.11.0", "3")
    assert "benchsuite jobs suite" in unwrapped(out)
    assert rows["h200"]["machine"] == "1 x NVIDIA H200"
    page = (tmp_path / "s.html").read_text()
    assert page.count("<svg") == 6
    assert "http" not in page.replace("http-equiv", "")
    code, out, _ = call("report", "--systems", *named, "--json", "-")
    assert [row["group"] for row in json.loads(out)["systems"]] == [0, 0, 1]


def test_names_and_texts_of_files_are_harmless(tmp_path: Path, call: Call) -> None:
    summary = machine(100.0, provenance="<script>\x1b[31m")
    for name in ("=1+1.json", "<b>.json"):
        write_summary(tmp_path / name, summary)
    named = (tmp_path / "=1+1.json", tmp_path / "<b>.json")
    assert call("report", "--systems", *named, "--html", tmp_path / "p.html")[0] == 0
    page = (tmp_path / "p.html").read_text()
    assert "<b>.json" not in page and "<script>\x1b" not in page and "&lt;b&gt;" in page
    assert "\n'=1+1," in call("report", "--systems", *named, "--csv", "-")[1]
    assert "\x1b" not in to_json(grouped(summary))


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        (("h200", "--compare", "v100"), "--systems: does not go with --compare"),
        (("h200", "--compare-gpus"), "--systems: does not go with --compare-gpus"),
        (("h200", "--power"), "does not go with --power; its table has no power"),
        ((), "--systems: name the systems"),
        (("h200", "v100", "--price", "3"), "1 price for 2 systems"),
        (("h200", "h200"), "h200 is named twice"),
        (("h20",), "did you mean 'h200'"),
    ],
)
def test_a_use_without_a_meaning_is_one_line(asked: tuple[str, ...], part: str, call: Call) -> None:
    code, out, err = call("report", "--systems", *asked)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert part in err


def test_a_table_of_nodes_has_an_exit_status(call: Call, tmp_path: Path) -> None:
    write_summary(tmp_path / "good.json", machine(100.0))
    write_summary(tmp_path / "slow.json", machine(90.0))
    write_summary(tmp_path / "broken.json", made_run(flat("vae", 100.0), flat("big", FAILED), **CODE))
    good, slow, broken = (tmp_path / f"{name}.json" for name in ("good", "slow", "broken"))
    assert call("report", "--systems", good, slow, "--full", "--fail-on", "failures,incomplete")[0] == 0
    code, _, err = call("report", "--systems", good, slow, "--fail-on", "slower")
    assert (code, err.count("\n")) == (3, 1)
    assert err.startswith("benchsuite: --fail-on slower: slow: slower than")
    code, out, err = call("report", "--systems", good, broken, "--fail-on", "failures,slower")
    assert code == 3
    assert "failures: broken: 3 of 6 tasks failed (big 3 of 3)" in err
    assert "1 of 2" in out, "the job that has a number counts, though there is no score"


def test_one_price_is_for_one_report(call: Call) -> None:
    code, _, err = call("report", "baselines/h200.json", "--price", "1", "--price", "2")
    assert (code, err.count("\n")) == (2, 1)
    assert "--systems" in err


def test_the_jobs_of_systems_that_train_the_same_stand_side_by_side() -> None:
    groups = grouped(made_run(flat("vae", 100.0), flat("old", 50.0)), made_run(flat("vae", 200.0), flat("new", 70.0)))
    (section,) = (one for one in systems_document(groups, for_terminal=False).sections if one.title.startswith("Jobs"))
    (shown,) = section.parts
    assert isinstance(shown, Table)
    systems = [column.name for column in shown.columns[2:]]
    rates = {row[0].text: dict(zip(systems, (cell.text for cell in row[2:]), strict=True)) for row in shown.rows}
    assert rates == {
        "vae": {"0": "100.0", "1": "200.0"},
        "old": {"0": "50.00", "1": "n/a"},
        "new": {"0": "n/a", "1": "70.00"},
    }
    assert not [one for one in systems_document(groups).sections if one.title.startswith("Jobs")], "terminals are short"
