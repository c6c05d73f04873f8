"""Large reports: work in proportion to the number of results, records that share what is equal, light help.

Seconds and memory are measured by `scripts/bench/report_scale.py`, on a quiet machine.
"""

from __future__ import annotations

import cProfile
import importlib.util
import json
import pstats
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from conftest import keep_run, make_result
from support import environ

from benchsuite import manifest
from benchsuite.records import Result
from benchsuite.report.read.load import load
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.verify.check import DEMANDS, RECORDS, check
from benchsuite.rundir import results
from benchsuite.schema import SCHEMA, current, from_json, to_json

SCRIPT = Path(__file__).parents[1] / "scripts" / "bench" / "report_scale.py"


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report_scale", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls(folder: Path) -> int:
    """How many calls a summary of a folder takes: the same on any machine."""
    profiler = cProfile.Profile()
    profiler.runcall(lambda: summarise(load(folder)))
    return int(pstats.Stats(profiler).total_calls)  # type: ignore[attr-defined]


def test_work_grows_in_proportion(scale: ModuleType, tmp_path: Path) -> None:
    few, many = 137, 2 * 137  # whole repeats of the standard profile on eight GPUs
    for number_of in (few, many):
        each = scale.make_folder(tmp_path / str(number_of), number_of, 120)
        assert 10_000 <= each <= 20_000, "as large as real ones"
    summarise(load(tmp_path / str(few)))  # what is imported or cached on first use is not counted
    growth = calls(tmp_path / str(many)) / calls(tmp_path / str(few))
    assert growth < 2.1


def test_the_made_up_run_is_a_whole_one(scale: ModuleType, tmp_path: Path) -> None:
    scale.make_folder(tmp_path / "run", 137, 60)
    loaded = load(tmp_path / "run")
    summary = summarise(loaded)
    assert loaded.bad_files == ()
    assert (len(loaded.rows), summary.gpus_used, len(summary.jobs)) == (137, 8, 17 + 8)
    assert {row.status for row in loaded.rows} <= {"ok", "failed"}
    manifest.seal(tmp_path / "run")
    found = check(tmp_path / "run")
    records = found[RECORDS]
    assert {finding.state for finding in records} == {"ok", "note"}, records
    assert [finding.about for finding in records if finding.state == "note"] == ["events"], "no worker wrote events"
    assert {f.about for f in found[DEMANDS] if f.state != "ok"} == {"repeats", "precision"}


def test_the_script_tells_seconds_and_memory() -> None:
    arguments = [sys.executable, str(SCRIPT), "20", "--slices", "40", "--rounds", "1"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=SCRIPT.parents[2], env=environ())
    head, line = done.stdout.splitlines()
    assert head.split() == ["results", "KB", "each", "seconds", "MiB", "us", "a", "result"]
    results, each, seconds, memory, _ = (float(word.replace(",", "")) for word in line.split())
    assert results == 20
    assert 1 < each < 20
    assert seconds > 0
    assert 10 < memory < 500


def test_results_share_what_is_equal(tmp_path: Path) -> None:
    """Thousands of results would hold as many copies of few jobs and machines."""
    keep_run(tmp_path / "run", [make_result(repeat=repeat, gpu=gpu) for repeat in (0, 1) for gpu in (0, 1)])
    rows = load(tmp_path / "run").rows
    assert len({id(row.task.job) for row in rows}) == 1
    assert all(row.result and row.result.task is row.task for row in rows)
    assert len({id(row.result.machine) for row in rows if row.result}) == 2, "one a GPU"


def test_what_differs_is_not_shared(tmp_path: Path) -> None:
    """A result that has another task or machine than planned keeps its own."""
    planned = [make_result(gpu=gpu) for gpu in (0, 1)]
    task = msgspec.structs.replace(planned[0].task, data_root="/elsewhere")
    machine = msgspec.structs.replace(planned[0].machine, driver="1")
    odd = msgspec.structs.replace(planned[0], task=task, machine=machine)
    keep_run(tmp_path / "run", [planned[1], odd], [result.task for result in planned])
    found = {row.result.task.data_root: row.result.machine.driver for row in load(tmp_path / "run").rows if row.result}
    assert found == {"/elsewhere": "1", None: "580.0"}


# --- the quick way of reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [0, 2])
def test_the_quick_way_reads_what_is_written(indent: int) -> None:
    result = make_result()
    text = to_json(result, indent=indent)
    assert current(text, Result) == result == from_json(text, Result)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": SCHEMA + 1}, "newer benchsuite"),
        ({"schema": None}, "no schema number"),
        ({"kind": "run"}, "not a result"),
        ({"status": "fine"}, "not a valid result: Invalid enum value"),
        ({"identity": 3}, "not a valid result: Expected `object`"),
    ],
)
def test_what_the_quick_way_cannot_read_is_refused_as_before(change: dict[str, object], words: str) -> None:
    text = json.dumps({**json.loads(to_json(make_result())), **change}).encode()
    assert current(text, Result) is None
    with pytest.raises(ValueError, match=words):
        from_json(text, Result)


def test_a_later_schema_number_is_not_overlooked(tmp_path: Path) -> None:
    """Of a key that is given twice the last counts."""
    text = to_json(make_result()).rstrip()[:-1] + b',"schema":99}'
    assert current(text, Result) is None
    with pytest.raises(ValueError, match="newer benchsuite"):
        from_json(text, Result)


def test_keys_in_another_order_are_read_too(tmp_path: Path) -> None:
    """As a tool that sorts them writes."""
    result = make_result()
    (tmp_path / "r.json").write_text(json.dumps(json.loads(to_json(result)), sort_keys=True, indent=1))
    assert [found for _, found in results(tmp_path)] == [result]


def test_help_imports_nothing_heavy() -> None:
    commands = [["report", "--help"], ["summary", "--help"], ["verify", "--help"], ["--help"]]
    program = (
        "import sys\nfrom benchsuite import cli\n"
        f"for command in {commands!r}:\n"
        "    try:\n        cli.main(command)\n    except SystemExit as end:\n        assert end.code == 0\n"
        "heavy = {'pandas', 'numpy', 'scipy', 'matplotlib', 'torch', 'rich', 'jinja2', 'ruptures'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
