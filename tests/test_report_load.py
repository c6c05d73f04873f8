"""One row a planned task, whatever mess the folder is in."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import msgspec
import pytest
from conftest import keep_results, keep_run, make_gpu, make_result, make_run, make_task

from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import Job, Placement, RerunOf
from benchsuite.errors import ResultError
from benchsuite.measurement import Measurement, Slice, Stream, read_clock
from benchsuite.records import Result
from benchsuite.report.read.load import Loaded, load
from benchsuite.report.stats.score import score
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.weights import Weights, weigh
from benchsuite.rundir import LOCK, Attempt, RunDir, results
from benchsuite.schema import to_json

AT = "2026-01-06T16:00:00+00:00"


def states(loaded: Loaded) -> dict[str, str]:
    return {row.task.id: row.status for row in loaded.rows}


def attempt_of(result: Result, number: int) -> Result:
    return msgspec.structs.replace(result, identity=msgspec.structs.replace(result.identity, attempt=number))


def note(folder: Path, task: str, attempt: int, event: str, status: str | None = None, file: str | None = None) -> None:
    RunDir(folder).note_attempt(Attempt(event=event, task=task, attempt=attempt, at=AT, status=status, result=file))


def make_mess(folder: Path) -> None:
    """Write three good result files and one file of each kind of damage."""
    good = keep_results(folder, [make_result(gpu=gpu) for gpu in range(3)])
    (folder / "empty.json").write_bytes(b"")
    (folder / "cut.json").write_bytes(good[0].read_bytes()[:400])
    (folder / "list.json").write_bytes(b"[]")
    (folder / "latin.json").write_bytes(b'{"kind": "r\xe9sult"}')
    (folder / "gone.json").symlink_to(folder / "nowhere")
    (folder / ".half.tmp").write_bytes(b'{"kind":')
    (folder / "old.json.tmp").write_bytes(b'{"kind":')
    (folder / "folder.json").mkdir()


def test_good_files_are_used_and_bad_ones_listed(tmp_path: Path) -> None:
    make_mess(tmp_path)
    loaded = load(tmp_path)
    assert [row.status for row in loaded.rows] == ["ok"] * 3
    assert not loaded.planned
    reasons = {file.name: reason for file, reason in loaded.bad_files}
    assert sorted(reasons) == ["cut.json", "empty.json", "gone.json", "latin.json", "list.json"]
    assert reasons["empty.json"] == "the file is empty"
    assert "no such file" in reasons["gone.json"]
    assert all(reasons.values())


def test_missing_and_empty_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such folder"):
        load(tmp_path / "none")
    with pytest.raises(ResultError, match="no results in this folder"):
        load(tmp_path)


def test_a_folder_of_several_runs_is_refused(tmp_path: Path) -> None:
    keep_run(tmp_path / "a", [make_result()])
    keep_run(tmp_path / "b", [make_result()])
    with pytest.raises(ResultError, match=r"holds 2 runs; name one of them, such as .*b"):
        load(tmp_path)


def test_every_planned_task_has_one_row(tmp_path: Path) -> None:
    tasks = [make_task(repeat=repeat, gpu=gpu) for repeat in range(2) for gpu in range(3)]
    results = [make_result(task=tasks[0]), make_result(task=tasks[1], status="oom", rates=())]
    keep_run(tmp_path / "run", results, tasks)
    note(tmp_path / "run", "vae.J0.2", 1, "start")
    note(tmp_path / "run", "vae.J0.2", 1, "end", "killed")
    note(tmp_path / "run", "vae.J1.0", 1, "start")
    note(tmp_path / "run", "vae.J1.1", 1, "start")
    note(tmp_path / "run", "vae.J1.1", 1, "end", "ok", "vanished.json")
    loaded = load(tmp_path / "run")
    assert loaded.planned
    assert states(loaded) == {
        "vae.J0.0": "ok",
        "vae.J0.1": "oom",
        "vae.J0.2": "lost",
        "vae.J1.0": "interrupted",
        "vae.J1.1": "lost",
        "vae.J1.2": "not run",
    }
    assert "vanished.json is missing" in (loaded.rows[4].reason or "")


def test_a_damaged_result_is_lost(tmp_path: Path) -> None:
    (file,) = keep_run(tmp_path / "run", [make_result()])
    file.write_bytes(b"")
    loaded = load(tmp_path / "run")
    assert states(loaded) == {"vae.J0.0": "lost"}
    assert "damaged: the file is empty" in (loaded.rows[0].reason or "")
    assert len(loaded.bad_files) == 1


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [("interrupted", "ok", "ok"), ("failed", "ok", "failed"), ("interrupted", "timeout", "timeout")],
)
@pytest.mark.parametrize("planned", [True, False])
def test_the_first_attempt_that_was_not_interrupted_counts(
    tmp_path: Path, first: str, second: str, counts: str, planned: bool
) -> None:
    results = [attempt_of(make_result(status=second), 2), attempt_of(make_result(status=first), 1)]
    if planned:
        keep_run(tmp_path / "run", results, [make_task()])
    else:
        keep_results(tmp_path / "run", results)
    assert states(load(tmp_path / "run")) == {"vae.J0.0": counts}


def test_lost_tasks_cannot_be_retried_away(tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [attempt_of(make_result(), 2)], [make_task()])
    note(tmp_path / "run", "vae.J0.0", 1, "start")
    note(tmp_path / "run", "vae.J0.0", 1, "end", "lost")
    assert states(load(tmp_path / "run")) == {"vae.J0.0": "lost"}


def test_a_start_without_an_end_is_running_while_the_folder_is_locked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = attempt_of(make_result(status="interrupted"), 1)
    keep_run(folder, [first], [make_task(gpu=gpu) for gpu in range(4)])
    note(folder, "vae.J0.0", 2, "start")
    note(folder, "vae.J0.1", 1, "start")
    note(folder, "vae.J0.2", 1, "start")
    note(folder, "vae.J0.2", 1, "end", "killed")
    ended = {"vae.J0.2": "lost", "vae.J0.3": "not run"}
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        loaded = load(folder)
        assert loaded.in_progress
        assert states(loaded) == {"vae.J0.0": "running", "vae.J0.1": "running", **ended}
    loaded = load(folder)
    assert not loaded.in_progress
    assert states(loaded) == {"vae.J0.0": "interrupted", "vae.J0.1": "interrupted", **ended}


def test_a_task_that_ends_while_it_is_read_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result and its end come after the attempts have been read."""
    folder, read = tmp_path / "run", RunDir.attempts
    keep_run(folder, [], [make_task()])
    note(folder, "vae.J0.0", 1, "start")

    def then_it_ends(rundir: RunDir) -> list[Attempt]:
        lines = read(rundir)
        (file,) = keep_results(folder, [make_result()])
        note(folder, "vae.J0.0", 1, "end", "ok", file.name)
        return lines

    monkeypatch.setattr(RunDir, "attempts", then_it_ends)
    assert states(load(folder)) == {"vae.J0.0": "ok"}


def test_an_end_that_says_interrupted_is_no_failure(tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [], [make_task()])
    note(tmp_path / "run", "vae.J0.0", 1, "start")
    note(tmp_path / "run", "vae.J0.0", 1, "end", "interrupted")
    assert states(load(tmp_path / "run")) == {"vae.J0.0": "interrupted"}


@pytest.mark.parametrize("items", [10**400, -50])
def test_absurd_counts_do_not_stop_the_report(tmp_path: Path, items: int) -> None:
    slices = tuple(Slice(start_s=i, end_s=i + 1, steps=1, items=items) for i in range(15))
    stream = Stream(clock=read_clock(), device="cpu", unit="image", origin_s=0, slices=slices)
    keep_results(tmp_path, [make_result(measurement=Measurement(streams=(stream,))), make_result(gpu=1)])
    summary = summarise(load(tmp_path))
    found = score(summary, weigh(Weights(), summary))
    assert found.value is None or found.value < 100


def test_without_a_plan_equal_attempts_are_of_different_repeats(tmp_path: Path) -> None:
    """As of `benchsuite run` three times into one folder: not one wave of three tasks, whose rates would add up."""
    again = [make_result(rates=[rate] * 30, origin_s=at) for rate, at in ((100, 0), (102, 100), (104, 200))]
    keep_results(tmp_path, [*again, make_result(repeat=1), make_result(host="hostB")])
    assert [(row.task.job.name, row.task.repeat) for row in load(tmp_path).rows] == [
        ("vae", r) for r in (0, 0, 1, 2, 4)
    ]
    keep_results(tmp_path / "one", again)
    summary = summarise(load(tmp_path / "one"))
    found = score(summary, weigh(Weights(), summary))
    assert found.machine == found.value
    assert summary.jobs[0].interval is not None
    assert summary.overlap is None


def test_without_a_plan_a_copy_is_no_repeat(tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(), make_result(), make_result(gpu=1)])
    loaded = load(tmp_path)
    assert [row.task.repeat for row in loaded.rows] == [0, 0]
    ((copy, reason),) = loaded.bad_files
    kept = next(row.file for row in loaded.rows if row.file and row.task.gpus[0].visible_index == 0)
    assert reason == f"a copy of {kept.name}, which counts"
    assert copy != kept


def test_results_outside_the_plan_are_not_counted(tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result(), make_result(), make_result(job="other")], [make_task()])
    loaded = load(tmp_path / "run")
    assert len(loaded.rows) == 1
    assert sorted(reason[:15] for _, reason in loaded.bad_files) == ["a second result", "its task 'other"]


def test_reruns_are_kept_apart(tmp_path: Path) -> None:
    rerun = make_result(task=make_task(rerun_of=RerunOf(result="x.json")))
    keep_run(tmp_path / "run", [make_result(), rerun])
    loaded = load(tmp_path / "run")
    assert (len(loaded.rows), len(loaded.reruns), loaded.bad_files) == (1, 1, ())


def test_a_result_too_short_to_measure_is_insufficient(tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(rates=[5, 50]), make_result(gpu=1, rates=[])])
    rows = load(tmp_path).rows
    assert [(row.status, row.perf) for row in rows] == [("insufficient", None)] * 2
    assert "2 slices" in (rows[0].reason or "")
    assert rows[1].reason == "no throughput was recorded"


def test_a_progression_is_a_job_for_each_number_of_gpus_and_perf_is_per_gpu(tmp_path: Path) -> None:
    job = Job(name="scaling", model="vae", placement=Placement(devices="progression"))
    one = make_task(job=job)
    two = make_task(job=job, gpus=(make_gpu(0), make_gpu(1)), ranks=2)
    keep_run(tmp_path / "run", [make_result(task=one), make_result(task=two)])
    assert [(row.task.row, row.perf) for row in load(tmp_path / "run").rows] == [
        ("scaling.1", 100.0),
        ("scaling.2", 50.0),
    ]


@pytest.mark.parametrize("name", ["run.json", "plan.json", "attempts.jsonl"])
@pytest.mark.parametrize("content", [b"", b"[1", b"\xff\xfe", b"{}", None])
def test_damage_to_the_runs_own_files_is_survived(tmp_path: Path, name: str, content: bytes | None) -> None:
    folder = tmp_path / "run"
    keep_run(folder, [make_result()])
    (folder / name).unlink()
    if content is None:
        (folder / name).mkdir()
    else:
        (folder / name).write_bytes(content)
    loaded = load(folder)
    assert states(loaded) == {"vae.J0.0": "ok"}
    assert loaded.planned is (name != "plan.json")
    if name != "attempts.jsonl":
        assert [file.name for file, _ in loaded.bad_files] == [name]


def test_ten_thousand_results_take_seconds(tmp_path: Path) -> None:
    """A tenth of them here, within a tenth of the time and some slack for a loaded machine."""
    tasks = [make_task(repeat=repeat, gpu=gpu) for repeat in range(125) for gpu in range(8)]
    (tmp_path / "run").mkdir()
    RunDir.create(tmp_path / "run", make_run(8), plan_of(tasks))
    for task in tasks:
        (tmp_path / "run" / f"{task.id}.json").write_bytes(to_json(make_result(task=task)))
    start_s = time.perf_counter()
    assert len(load(tmp_path / "run").rows) == 1000
    assert time.perf_counter() - start_s < 20


def test_a_foreign_result_does_not_push_out_the_runs_own(tmp_path: Path) -> None:
    own, foreign = make_result(rates=[100] * 30), make_result(rates=[1000] * 30, host="hostB")
    keep_run(tmp_path, [own])
    file = next(file for file, _ in results(tmp_path))
    end = Attempt(event="end", task=own.task.id, attempt=1, at="now", status="ok", result=file.name)
    (tmp_path / "attempts.jsonl").write_bytes(msgspec.json.encode(end) + b"\n")
    (tmp_path / "aaa.json").write_bytes(to_json(foreign))
    loaded = load(tmp_path)
    assert [row.perf for row in loaded.rows] == [100.0]
    assert [(bad.name, "a second result" in why) for bad, why in loaded.bad_files] == [("aaa.json", True)]
