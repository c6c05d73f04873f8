"""Folders that many hosts write to: who comes first, what is lost, and clocks that differ."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest
from conftest import keep_run, make_result, make_run, make_task
from test_cluster import FLEET

from benchsuite.cluster import slurm
from benchsuite.cluster.fleet import Fleet, FleetDir, Submitted
from benchsuite.cluster.survey import Survey
from benchsuite.cluster.tally import Tallies
from benchsuite.cluster.waiting import Waiting
from benchsuite.describe.plan import plan_of
from benchsuite.errors import OutputError, ResultError
from benchsuite.report.read.load import load
from benchsuite.report.stats.summarise import summarise
from benchsuite.rundir import Attempt, RunDir, write_result

AT_ONCE = 8


def at_once(work: Callable[[int], object]) -> list[object]:
    """What some threads return, or the OutputError that they raise, if all of them begin at the same moment."""
    ready = threading.Barrier(AT_ONCE)

    def one(number: int) -> object:
        ready.wait()
        try:
            return work(number)
        except OutputError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, range(AT_ONCE)))


def of_run(number: int) -> Fleet:
    return msgspec.structs.replace(FLEET, run_id=f"{number:08x}")


def test_of_hosts_that_create_a_run_in_one_folder_at_once_a_single_one_succeeds(tmp_path: Path) -> None:
    found = at_once(lambda number: (FleetDir.create(tmp_path / "out", of_run(number)), number)[1])
    (first,) = [one for one in found if isinstance(one, int)]
    assert all("name " in str(one) for one in found if isinstance(one, OutputError))
    assert FleetDir(tmp_path / "out").fleet() == of_run(first)


def test_of_nodes_that_create_a_run_folder_at_once_a_single_one_succeeds(tmp_path: Path) -> None:
    """Without any lock: a shared file system may have none."""
    task = make_task()

    def create(number: int) -> int:
        RunDir.create(tmp_path / "n1", msgspec.structs.replace(make_run(), created=str(number)), plan_of([task]))
        return number

    (first,) = [one for one in at_once(create) if isinstance(one, int)]
    assert RunDir(tmp_path / "n1").run().created == str(first)


def test_hosts_that_submit_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    folder = FleetDir.create(tmp_path, FLEET)
    found = at_once(lambda host: folder.new_submission(lambda number: f"{number} of {host}"))
    assert sorted(found, key=str) == list(range(1, AT_ONCE + 1))
    for host, number in enumerate(found):
        assert isinstance(number, int)
        assert folder.script(number).read_text() == f"{number} of {host}"


def test_results_that_hosts_write_at_the_same_instant_all_stay(tmp_path: Path) -> None:
    result, when = make_result(), datetime(2026, 1, 6, 16, tzinfo=timezone.utc)
    found = at_once(lambda _: write_result(tmp_path, result, when))
    assert len(set(found)) == AT_ONCE == len(list(tmp_path.iterdir()))


def test_lines_that_hosts_note_at_once_are_all_read(tmp_path: Path) -> None:
    folder = FleetDir.create(tmp_path, FLEET)
    at_once(lambda host: folder.note(Submitted(node=f"n{host}", submission=1, job_id=str(host), at="now")))
    assert sorted(line.node for line in folder.submitted()) == [f"n{host}" for host in range(AT_ONCE)]


def test_jobs_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
    """`jobs --resume` would submit them a second time."""
    folder = FleetDir.create(tmp_path, FLEET)
    assert folder.submitted() == []
    (tmp_path / ".cluster" / "jobs.jsonl").mkdir()
    with pytest.raises(ResultError, match=r"jobs\.jsonl: cannot be read: is a directory"):
        folder.submitted()


def test_a_wait_outlasts_a_file_system_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = FleetDir.create(tmp_path, FLEET)
    said: list[str] = []
    monkeypatch.setattr(slurm, "jobs", lambda name: [])
    (tmp_path / ".cluster" / "jobs.jsonl").mkdir()
    Waiting(Survey(folder), lambda statuses: None, said.append, lambda: True).wait()
    assert said[0].endswith("is a directory; the jobs go on, and benchsuite asks again")


def test_the_newest_job_of_a_node_is_known_by_its_number_whatever_the_clocks_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host that submitted first has a clock that is an hour ahead."""
    folder = FleetDir.create(tmp_path, FLEET)
    folder.note(Submitted(node="n1", submission=1, job_id="7", at="2026-01-06T17:00:00+00:00", state="NODE_FAIL"))
    folder.note(Submitted(node="n1", submission=2, job_id="8", at="2026-01-06T16:00:00+00:00", state="TIMEOUT"))
    monkeypatch.setattr(slurm, "jobs", lambda name: [])
    monkeypatch.setattr(slurm, "accounted", lambda ids: [])
    first, _ = Survey(folder).look()
    assert (first.word, first.job_id) == ("time limit", "8")


def test_a_node_whose_clock_is_an_hour_ahead_has_its_statuses_and_durations(tmp_path: Path) -> None:
    """Its second task starts an hour before its first one, by the wall clock, which was set back in between."""
    tasks = [make_task(name) for name in ("vae", "gnmt", "ssd")]
    ahead, back = "2026-01-06T17:00:00+00:00", "2026-01-06T16:00:30+00:00"
    results = [make_result(task=task) for task in tasks[:2]]
    clocks = [msgspec.structs.replace(results[0].timeline.clock, wall=wall) for wall in (ahead, back)]
    results = [
        msgspec.structs.replace(one, timeline=msgspec.structs.replace(one.timeline, clock=clock))
        for one, clock in zip(results, clocks, strict=True)
    ]
    keep_run(tmp_path, results, tasks)
    RunDir(tmp_path).note_attempt(Attempt(event="start", task=tasks[2].id, attempt=1, at="2026-01-06T15:00:00+00:00"))
    tally = Tallies().of(tmp_path)
    assert tally is not None
    assert (tally.words, tally.now) == ("2 of 3 tasks: 2 ok", tasks[2].id)
    jobs = summarise(load(tmp_path)).jobs
    assert [job.tasks[0].status for job in jobs] == ["ok", "ok", "interrupted"]
    assert [job.tasks[0].seconds for job in jobs[:2]] == [9.0, 9.0]
