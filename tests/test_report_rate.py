"""A single result holds its rate, and every command that reads results reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Call, keep_results, keep_run, make_result, make_run, make_task

from benchsuite.describe.tasks import Job
from benchsuite.records import Machine, Result
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.rate import alone, rate
from benchsuite.rundir import read_record
from benchsuite.schema import to_json

UNEVEN = [90.0, 110.0] * 15


MACHINE = make_run(gpus=1).machine


def keep(path: Path, machine: Machine = MACHINE, **fields: Any) -> Path:
    path.write_bytes(to_json(alone(make_result(**fields), machine), indent=2))
    return path


def test_the_rate_is_that_of_the_report(tmp_path: Path) -> None:
    result = make_result(rates=UNEVEN)
    found = rate(result)
    keep_results(tmp_path, [result])
    (task,) = summary_of(tmp_path).jobs[0].tasks
    assert (found.value, found.slices, found.items, found.seconds) == (task.perf, task.slices, task.items, task.seconds)
    assert (found.error, found.steady, found.unsteady) == (task.error, task.steady, task.unsteady)
    assert found.unit == "image"
    assert found.std == pytest.approx(10, rel=0.01)
    assert found.start_s is not None and found.end_s is not None
    assert found.end_s - found.start_s == pytest.approx(found.seconds)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"rates": [100] * 5}, "insufficient samples"), ({"status": "failed", "rates": ()}, "the task is failed")],
)
def test_without_a_number_the_rate_says_why(fields: dict[str, Any], reason: str) -> None:
    found = rate(make_result(**fields))
    assert found.value is None
    assert found.steady is None
    assert reason in (found.reason or "")


def test_a_result_is_read_with_its_rate_and_without(tmp_path: Path) -> None:
    """The slices count: a rate that was changed by hand changes no report."""
    file = keep(tmp_path / "r.json", rates=UNEVEN)
    kept = read_record(file, Result)
    assert kept.rate == rate(kept)
    bare = msgspec.structs.replace(kept, rate=None)
    (tmp_path / "bare.json").write_bytes(to_json(bare))
    content = json.loads(file.read_text())
    content["rate"]["value"] = 1e9
    (tmp_path / "changed.json").write_text(json.dumps(content))
    jobs = [summary_of(tmp_path / name).jobs for name in ("r.json", "bare.json", "changed.json")]
    assert {job.perf for (job,) in jobs} == {100.0}


def test_report_compare_summary_and_plot_read_one_result(call: Call, tmp_path: Path) -> None:
    fast, slow = keep(tmp_path / "fast.json", rates=[200] * 30), keep(tmp_path / "slow.json")
    code, out, err = call("report", fast, "--compare", slow)
    assert (code, err) == (0, "")
    assert "2.00" in out
    code, out, _ = call("summary", fast)
    assert code == 0
    assert json.loads(out)["jobs"][0]["perf"] == 200
    code, _, err = call("plot", fast, "--kind", "throughput", "-o", tmp_path / "t.svg")
    assert code == 0, err
    assert (tmp_path / "t.svg").stat().st_size > 1000
    code, _, err = call("plot", fast, "--kind", "throughput", "--task", "none", "-o", tmp_path / "u.svg")
    assert (code, "no task 'none'" in err) == (2, True)


def trains(batch_size: int) -> dict[str, Any]:
    """The fields of a result of the vae with this batch size."""
    job = Job(name="vae", model="vae", params={"batch_size": batch_size})
    return {"task": msgspec.structs.replace(make_task("vae", 0, 0), job=job)}


def test_single_results_of_one_machine_are_compared_by_naming_their_setting(call: Call, tmp_path: Path) -> None:
    large = keep(tmp_path / "large.json", rates=[200] * 30, **trains(64))
    small = keep(tmp_path / "small.json", **trains(32))
    named = "batch size 64 is 2.00x (no verdict) batch size 32"
    assert named in call("report", large, "--compare", small)[1]
    elsewhere = msgspec.structs.replace(MACHINE, host="elsewhere")
    other = keep(tmp_path / "other.json", elsewhere, **trains(32))
    assert named not in call("report", large, "--compare", other)[1]


def test_a_result_of_a_run_takes_its_machine_from_the_run_beside_it(call: Call, tmp_path: Path) -> None:
    run = make_run(gpus=1)
    result = make_result(**trains(32))
    own = msgspec.structs.replace(result.machine, facts_sha256=run.machine.sha256)
    (small,) = keep_run(tmp_path / "run", [msgspec.structs.replace(result, machine=own)], run=run)
    assert summary_of(small).machines == (run.machine,)
    large = keep(tmp_path / "large.json", rates=[200] * 30, **trains(64))
    assert "batch size 64 is 2.00x (no verdict) batch size 32" in call("report", large, "--compare", small)[1]
    (stray,) = keep_run(tmp_path / "another", [result], run=run)
    assert summary_of(stray).machines == (), "run.json beside it is of other facts"


def test_a_damaged_result_is_one_line(call: Call, tmp_path: Path) -> None:
    file = keep(tmp_path / "r.json")
    file.write_bytes(file.read_bytes()[:400])
    code, out, err = call("report", file)
    assert (code, out) == (2, "")
    assert err.startswith(f"benchsuite: {file}: not valid JSON")
    assert len(err.splitlines()) == 1


def test_report_reads_a_baseline_by_its_name(call: Call) -> None:
    code, out, _ = call("report", "v100")
    assert code == 0
    assert out.startswith("v100 (8 GPUs): score ")
    code, _, err = call("report", "v10")
    assert (code, "did you mean 'v100'?" in err) == (2, True)
