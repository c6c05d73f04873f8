"""CSV, JSON and Markdown of a report: the same figures in each, from the front door."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import re
from pathlib import Path
from typing import Any, NoReturn

import pytest
from conftest import keep_results, keep_run, make_result, make_task
from made_telemetry import make_device, make_telemetry
from outputs import call
from support import in_process, one_line_error

from benchsuite.report.read.summary import Summary
from benchsuite.report.show.export import job_rows, to_csv, to_json
from benchsuite.report.show.report import Report
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.score import score
from benchsuite.report.stats.weights import weigh, weights_for
from benchsuite.rundir import LOCK
from benchsuite.schema import SCHEMA, convert

FORMATS = ("html", "csv", "md", "json")


def report_of(folder: Path) -> Report:
    summary = summary_of(folder)
    return Report("it", summary, score(summary, weigh(weights_for(summary.profile, None), summary)))


def strict(text: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def some_run(folder: Path) -> Path:
    """Three jobs: one with an interval, one that failed, one with a failure among its tasks."""
    results = [make_result("a", [100 + 2 * repeat] * 30, repeat=repeat) for repeat in range(3)]
    results += [make_result("b", (), status="oom")]
    results += [make_result("c", [8] * 30), make_result("c", (), gpu=1, status="failed")]
    keep_run(folder, results)
    return folder


def test_csv_and_json_hold_the_same_rows(tmp_path: Path) -> None:
    report = report_of(some_run(tmp_path))
    read = list(csv.DictReader(io.StringIO(to_csv(report))))
    rows = strict(to_json(report))["jobs"]
    assert [row["name"] for row in read] == ["a", "b", "c"]
    assert [list(row) for row in read] == [list(row) for row in rows]
    for text, row in zip(read, rows, strict=True):
        for column, value in row.items():
            assert text[column] == ("" if value is None else str(value)), column
    a, b, c = rows
    assert (a["perf"], a["n"], a["fail"], a["interval_repeats"], a["weight"]) == (102.0, 3, 0, 3, 1.0)
    assert a["interval_low"] < 102 < a["interval_high"]
    assert (b["perf"], b["perf_adj"], b["interval_low"]) == (None, 0.0, None), "absent is null, never 0"
    assert (c["n"], c["fail"], c["perf_adj"]) == (2, 1, 4.0)


def test_the_columns_do_not_depend_on_the_run(tmp_path: Path) -> None:
    keep_results(tmp_path / "bare", [make_result(rates=(), status="lost")])
    header = to_csv(report_of(tmp_path / "bare")).splitlines()[0]
    assert header == to_csv(report_of(some_run(tmp_path / "run"))).splitlines()[0]
    assert {"perf", "perf_adj", "interval_low", "ended", "weight"} <= set(header.split(","))


def test_a_report_without_jobs_has_the_same_columns(tmp_path: Path) -> None:
    keep_results(tmp_path / "mess", [])
    (tmp_path / "mess" / "cut.json").write_text("{")
    header = to_csv(report_of(tmp_path / "mess")).splitlines()
    assert header == to_csv(report_of(some_run(tmp_path / "run"))).splitlines()[:1]


def test_whole_numbers_stay_whole_beside_an_absent_one(tmp_path: Path) -> None:
    used = make_result("a", telemetry=make_telemetry(make_device(0)))
    keep_results(tmp_path, [used, make_result("b", (), status="oom")])
    a, b = csv.DictReader(io.StringIO(to_csv(report_of(tmp_path))))
    assert (a["use_tasks"], b["use_tasks"]) == ("1", "")


def test_json_gives_the_summary_back(tmp_path: Path) -> None:
    report = report_of(some_run(tmp_path))
    content = strict(to_json(report))
    assert convert(content["summary"], Summary) == report.summary
    assert (content["kind"], content["schema"], content["comparisons"]) == ("report", SCHEMA, [])
    assert content["score"]["value"] == report.score.value
    assert content["score"]["verdict"] == "FAIL"


def test_json_has_prices_scaling_and_gpus(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result("a", [rate] * 30, gpu=gpu) for gpu, rate in ((0, 100), (1, 50))])
    _, out, _ = call(capsys, "report", tmp_path, "--price", "300", "--compare-gpus", "--json", "-")
    content = strict(out)
    machine = content["score"]["machine"]
    assert content["price"] == {"price": 300.0, "per_machine_score": 300 / machine}
    assert content["scaling"] == []
    assert [(cell["gpu"]["index"], cell["mean"], cell["n"]) for cell in content["gpus"]["jobs"]["a"]] == [
        (0, 100.0, 1),
        (1, 50.0, 1),
    ]
    assert content["gpus"]["untested"] == {"a": "2 GPUs, 3 are needed"}
    bare = strict(to_json(report_of(tmp_path)))
    assert (bare["price"], bare["gpus"]) == (None, None)


def test_time_under_slowed_clocks_is_in_the_rows(tmp_path: Path) -> None:
    device = make_device(0, events={"sw_power_cap": 3.0, "hw_thermal": 1.5})
    keep_results(tmp_path, [make_result(telemetry=make_telemetry(device)), make_result("bare")])
    bare, slowed = job_rows(report_of(tmp_path)).to_dict("records")
    assert (slowed["use_sw_power_cap"], slowed["use_hw_thermal"], slowed["use_sw_thermal"]) == (0.2, 0.1, 0.0)
    assert bare["use_sw_power_cap"] is None


def test_a_base_adds_columns(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result("a", [150] * 30), make_result("only", [1000] * 30)])
    keep_run(tmp_path / "base", [make_result("a", [100] * 30)])
    _, out, err = call(capsys, "report", tmp_path / "run", "--compare", tmp_path / "base", "--json", "-")
    content = strict(out)
    assert err == ""
    assert [row["compared_ratio"] for row in content["jobs"]] == [pytest.approx(1.5), None]
    assert {row["compared_base"] for row in content["jobs"]} == {content["comparisons"][0]["name"]}
    (comparison,) = content["comparisons"]
    assert comparison["overall"]["per_gpu"]["value"] == pytest.approx(1.5)
    assert comparison["overall"]["apart"] == {"only": "not in the baseline"}
    assert comparison["base"] == "base"
    assert comparison["jobs"][0]["base_perf"] == 100.0


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("plain, with a comma", "plain, with a comma"),
        ('a "quote"', 'a "quote"'),
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("två\x1b[2J", "två [2J"),
    ],
)
def test_text_in_csv_is_safe_to_open(name: str, cell: str, tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(task=make_task(name))])
    (row,) = csv.DictReader(io.StringIO(to_csv(report_of(tmp_path))))
    assert row["name"] == cell
    (same,) = job_rows(report_of(tmp_path)).to_dict("records")
    assert same["name"] == name


@pytest.mark.parametrize("name", ["vae", "a|b", "<b>x</b>", "`x`", "[x](y)", "\x1b[2J\u202e", "_x_*y*", "\\|"])
def test_markdown_tables_are_whole(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(task=make_task(name))])
    _, out, _ = call(capsys, "report", tmp_path, "--md", "-")
    tables = re.findall(r"(?:^\|.*\n)+", out, re.MULTILINE)
    assert len(tables) >= 2
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table
        assert re.fullmatch(r"\|( -{3}:? \|)+", table.splitlines()[1])
    assert out.index("## Score") < out.index("## Jobs")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "<b>" not in out.replace("\\<b", "")
    assert "| 100.0 |" in out


def test_each_goes_to_its_file_and_the_text_is_still_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    some_run(tmp_path / "run")
    files = {kind: tmp_path / f"r.{kind}" for kind in FORMATS}
    options = [argument for kind, file in files.items() for argument in (f"--{kind}", file)]
    code, out, err = call(capsys, "report", tmp_path / "run", *options)
    assert code == 0
    assert out == call(capsys, "report", tmp_path / "run")[1]
    assert err.splitlines() == [f"benchsuite: {kind} written to {file}" for kind, file in files.items()]
    kept = {kind: file.read_bytes() for kind, file in files.items()}
    for kind in ("csv", "md", "json"):
        assert call(capsys, "report", tmp_path / "run", f"--{kind}", "-")[1].encode() == kept[kind]
    code, out, err = call(capsys, "report", tmp_path / "run", *options)
    assert (code, out) == (2, "")
    assert "r.html: exists already and is not overwritten; name another file with --html" in err
    assert {kind: file.read_bytes() for kind, file in files.items()} == kept


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--html", "-"], ["--html -", "name one"]),
        (["--csv", "-", "--md", "-"], ["--md -", "--csv goes there already"]),
        (["--csv", "x", "--json", "./x"], ["--json ./x", "--csv goes there already"]),
        (["--csv", "nowhere/x.csv"], ["nowhere/x.csv", "no such folder", "--csv"]),
        (["--md", "run"], ["run: exists already"]),
    ],
)
def test_bad_places_are_one_line(options: list[str], parts: list[str], tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result()])
    done = in_process("report", "run", *options, cwd=tmp_path)
    one_line_error(done, *parts)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


def write_all(capsys: pytest.CaptureFixture[str], folder: Path, to: Path) -> dict[str, str]:
    to.mkdir()
    options = [argument for kind in FORMATS for argument in (f"--{kind}", to / kind)]
    code, _, err = call(capsys, "report", folder, *options)
    assert "Traceback" not in err
    assert code in (0, 1), err
    return {kind: (to / kind).read_text(encoding="utf-8") for kind in FORMATS}


def test_a_run_in_progress_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    keep_run(run, [make_result()], tasks=[make_task(), make_task(gpu=1)])
    with (run / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        texts = write_all(capsys, run, tmp_path / "to")
    assert "UNFINISHED" in texts["html"]
    assert "UNFINISHED" in texts["md"]
    assert strict(texts["json"])["score"]["in_progress"] is True
    (row,) = csv.DictReader(io.StringIO(texts["csv"]))
    assert (row["n"], row["to_run"], row["fail"]) == ("2", "1", "0")


def test_a_mess_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing but bad files; then one result among them."""
    mess = tmp_path / "mess"
    keep_results(mess, [])
    (mess / "cut.json").write_text('{"kind": "result", "sta')
    (mess / "empty.json").write_text("")
    (mess / "list.json").write_bytes(b"\xff\xfe[]")
    (mess / "run.json").write_text("[]")
    texts = write_all(capsys, mess, tmp_path / "only")
    assert strict(texts["json"])["jobs"] == []
    assert len(texts["csv"].splitlines()) == 1
    assert "cut.json" in texts["html"]
    keep_results(mess, [make_result()])
    texts = write_all(capsys, mess, tmp_path / "more")
    assert strict(texts["json"])["jobs"][0]["perf"] == 100.0
    assert "empty.json" in texts["md"]
