"""What measuring costs: bare blocks of the same loop, their turns with measured ones, and the verdict."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from conftest import make_result, make_task
from made_summaries import flat, made_run
from support import benchsuite, in_process, one_line_error, read_results, write_profile

from benchsuite.costs import CostAsked, CostRound, MeasuringCost
from benchsuite.describe.costed import costed
from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import Job, Task
from benchsuite.errors import ModelError
from benchsuite.events import BlockDue, EventReader, EventWriter, SliceClosed
from benchsuite.host.monitor import Monitor
from benchsuite.launch import blocks
from benchsuite.report.read.cost import JobCost
from benchsuite.report.show.sections.cost import cost_section
from benchsuite.report.stats.cost import costs
from benchsuite.worker.control import Control
from benchsuite.worker.cost import OneSlice, cost_of_measuring
from benchsuite.worker.device import Cpu
from benchsuite.worker.input_waits import Waits
from benchsuite.worker.loop import timed_loop
from benchsuite.worker.measuring import Measuring
from benchsuite.worker.timing import Stop, TimedSlice

replace = msgspec.structs.replace
ASKED = CostAsked(rounds=3, block_s=0.5)


def test_a_bare_block_is_one_slice_between_two_syncs() -> None:
    seen: list[str] = []
    closed: list[TimedSlice] = []

    def step(batch: int) -> int:
        seen.append("step")
        return batch

    stop = Stop(max_steps=5)
    ended = timed_loop(
        step, itertools.repeat(2), stop, closed.append, sync=lambda: seen.append("sync"), rule_of=OneSlice
    )
    assert ended == "count"
    assert seen == ["sync", *["step"] * 5, "sync"]
    assert [(one.steps, one.items, one.last) for one in closed] == [(5, 10, True)]


def measuring(tmp_path: Path, waits: Waits) -> Measuring:
    """A measured part of a model that does nothing, as if it had taken 20 steps a second."""
    task = make_task("vae", 0, None)
    step: Any = SimpleNamespace(run=lambda batch: 1, read_losses=None, losses=[], scales=[])
    made = Measuring(task, Cpu(), step, EventWriter(str(tmp_path / "events.jsonl")), Control(None), waits)
    made.steps, made.trained_s = 100, 5.0
    return made


def test_blocks_take_turns_in_changing_order_and_have_equal_steps(tmp_path: Path) -> None:
    waits, taken = Waits(), 0
    made = measuring(tmp_path, waits)

    def source() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    found = cost_of_measuring(ASKED, made, waits.counted(source()))
    assert found.steps == 10
    assert taken == 3 * 2 * (10 + 1), "each block has a tenth of its steps before it"
    assert all(one.bare_s > 0 and one.measured_s > 0 for one in found.rounds)
    events = EventReader(tmp_path / "events.jsonl").new()
    due = [event.measured for event in events if isinstance(event, BlockDue)]
    assert due == [True, False, False, True, True, False]
    slices = [event.slice for event in events if isinstance(event, SliceClosed)]
    assert {one.phase for one in slices} == {"hold"}, "they count for no rate"
    assert sum(one.steps for one in slices) == 3 * (10 + 1), "a bare block reports none"
    assert not waits.paused


def test_data_that_ends_in_a_block_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the data ended while the cost of measuring was measured"):
        cost_of_measuring(ASKED, measuring(tmp_path, Waits()), iter(range(5)))


def test_batches_of_a_bare_block_pass_without_a_look_at_the_clock() -> None:
    looks = 0

    def clock() -> int:
        nonlocal looks
        looks += 1
        return looks * 10_000_000  # every step is slow, and timed

    waits = Waits(clock)
    batches = waits.counted(iter(range(100)))
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    before, waits.paused = looks, True
    assert [next(batches) for _ in range(40)] == [*range(3, 43)]
    assert looks == before
    waits.paused = False
    assert [*batches] == [*range(43, 100)]
    assert looks > before


def test_the_parent_turns_telemetry_off_for_a_bare_block() -> None:
    said: list[str] = []
    child: Any = SimpleNamespace(
        seen=SimpleNamespace(ranks=[SimpleNamespace(blocks=[])]),
        blocks_begun=0,
        task=replace(make_task("vae", 0, None), cost=ASKED),
        say_go_on=lambda: said.append("go"),
    )
    monitor: Any = SimpleNamespace(pause=lambda: said.append("pause"), resume=lambda: said.append("resume"))
    assert blocks.answer([child], monitor) == 0.0
    due = child.seen.ranks[0].blocks
    due.append(BlockDue(n=1, at_s=1.0, measured=False))
    assert blocks.answer([child], monitor) == pytest.approx(0.55), "it sleeps through the block and its lead"
    assert blocks.answer([child], monitor) == 0.0
    due.append(BlockDue(n=2, at_s=2.0, measured=True))
    assert blocks.answer([child], monitor) == 0.0
    assert said == ["pause", "go", "resume", "go"]


def test_a_paused_monitor_takes_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Monitor([], every_s=0.0)
    ticks = monitor._ticks()
    next(ticks)
    monitor.pause()
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 5:
            monitor.resume()

    monkeypatch.setattr(monitor._over, "wait", nap)
    next(ticks)
    assert len(naps) == 5


def planned(**changed: Any) -> Task:
    job = replace(Job(name="job", model="vae", timeout_s=100.0), **changed)
    return Task(id="job.J0", profile="p", repeat=0, job=job, cell="job", row="job", wave="w")


def test_tasks_get_time_for_their_blocks_and_others_are_skipped_with_the_reason() -> None:
    (task,) = costed(plan_of([planned()]), ASKED).tasks
    assert task.cost == ASKED
    assert task.job.timeout_s == 100.0 + 4 * 2 * 3 * 0.5
    ranks = replace(planned(), ranks=2)
    (task,) = costed(plan_of([ranks]), ASKED).tasks
    assert task.skip == "the cost of measuring is not measured for it: it has several ranks"
    two = [replace(planned(), id=name) for name in ("a", "b")]
    assert {str(task.skip).rpartition(": ")[2] for task in costed(plan_of(two), ASKED).tasks} == {
        "another task runs beside it"
    }
    (task,) = costed(plan_of([replace(planned(), skip="no GPU")]), ASKED).tasks
    assert (task.skip, task.cost) == ("no GPU", None)


def with_ratios(*ratios: float) -> Any:
    rounds = tuple(CostRound(2.0, 2.0 * ratio, 1.0, 1.0 * ratio) for ratio in ratios)
    made = make_result()
    (stream,) = made.measurement.streams
    cost = MeasuringCost(steps=7, rounds=rounds)
    return replace(made, measurement=replace(made.measurement, streams=(replace(stream, cost=cost),)))


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((1.001, 1.002, 1.001, 1.002), "PASS"),
        ((1.02, 1.021, 1.019, 1.02), "FAIL"),
        ((0.98, 1.02, 0.99, 1.01), "OPEN"),
        ((1.0, 1.0), "OPEN"),
    ],
)
def test_the_verdict_rests_on_the_interval(ratios: tuple[float, ...], verdict: str) -> None:
    (job,) = costs([with_ratios(*ratios)])
    assert job.verdict == verdict
    assert (job.rounds, job.steps, job.block_s) == (len(ratios), 7, 2.0)
    if len(ratios) > 2:
        assert job.low is not None
        assert job.high is not None
        assert job.low < job.cost < job.high


def test_the_report_shows_the_cost_of_each_job() -> None:
    section = cost_section(replace(made_run(flat("vae", 1.0)), costs=costs([with_ratios(1.001, 1.002, 1.0015)])))
    assert section
    (table,) = section.parts
    assert [cell.text for cell in table.rows[0]] == [  # type: ignore[union-attr]
        "vae", "3", "7", "2.00", "+0.15", "+0.03 to +0.27", "+0.15", "+0.03 to +0.27", "PASS"
    ]  # fmt: skip
    assert cost_section(made_run(flat("vae", 1.0))) is None
    assert costs([make_result()]) == ()


def test_a_kept_summary_without_processor_time_has_no_such_column() -> None:
    job = JobCost(name="vae", rounds=3, steps=1, block_s=1.0, cost=0.0, low=-0.01, high=0.01)
    section = cost_section(replace(made_run(flat("vae", 1.0)), costs=(job,)))
    assert section
    names = [column.name for column in section.parts[0].columns]  # type: ignore[union-attr]
    assert names == ["job", "rounds", "steps", "block s", "cost %", "95 %", "verdict"]


def test_each_go_of_the_parent_lets_one_block_begin() -> None:
    reading, writing = os.pipe()
    control = Control(reading)
    os.write(writing, b"go\ngo\n")
    os.close(writing)
    control.wait_for_go()
    control.wait_for_go()
    with pytest.raises(SystemExit, match="the parent is gone"):
        control.wait_for_go()
    os.close(reading)


def test_the_command_measures_the_cost_and_keeps_it(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", one={})
    words = ("overhead", "p.json", "--name", "one", "--rounds", "3", "--block", "0.05", "-o", "out")
    done = benchsuite(*words, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr  # the verdict depends on the machine
    assert "Cost of measuring" in done.stdout
    result = read_results(tmp_path / "out")["one"]
    (stream,) = result.measurement.streams
    assert result.status == "ok", result.error
    assert stream.cost
    assert len(stream.cost.rounds) == 3
    assert "cost of measuring" in [span.name for span in result.timeline.phases]
    shown = in_process("report", "out", "--full", cwd=tmp_path).stdout
    assert "Cost of measuring" in shown
    assert "Where the time went" in shown
    assert "of wall time is measured. 1 worker started anew." in shown


def test_bad_words_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps({"one": {"model": "polynome"}}), encoding="utf-8")
    one_line_error(in_process("overhead", "p.json", "--name", "two", cwd=tmp_path), "no job 'two'")
    one_line_error(in_process("overhead", "no-such-profile", cwd=tmp_path), "no-such-profile")
    one_line_error(in_process("overhead", "p.json", "-o", "x.json", cwd=tmp_path), "name a folder")
