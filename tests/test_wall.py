"""What the wall time of a run went to: every instant has one phase, and the share that is measured."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import make_result
from made_summaries import flat, made_run

from benchsuite.costs import PhaseSpan
from benchsuite.measurement import WarmUp
from benchsuite.records import Result
from benchsuite.report.show.sections.wall import wall_section
from benchsuite.report.stats.wall import all_wall, wall_time
from benchsuite.worker import phases as worker_phases
from benchsuite.worker.phases import PhaseClock

replace = msgspec.structs.replace


def result(name: str, started_s: float, ended_s: float, *phases: tuple[str, float, float], **more: Any) -> Result:
    """A task whose process ran between two instants, with its phases."""
    made = make_result()
    spans = tuple(PhaseSpan(name=phase, start_s=start, end_s=end) for phase, start, end in phases)
    timeline = replace(made.timeline, queued_s=100.0, started_s=started_s, ended_s=ended_s, phases=spans)
    return replace(made, timeline=timeline, task=replace(made.task, row=name), **more)


def test_every_second_of_a_run_has_one_phase() -> None:
    one = result("one", 101, 110, ("interpreter", 101, 103), ("measure", 103, 108), ("exit", 108, 110))
    two = result("two", 111, 121, ("interpreter", 111, 112), ("first step", 112, 115), ("measure", 115, 121))
    wall = wall_time([one, two])
    assert wall
    assert (wall.seconds, wall.measured_s, wall.measured) == (21.0, 11.0, 11 / 21)
    assert wall.phases == {
        "interpreter": 3.0, "first step": 3.0, "measure": 11.0, "exit": 2.0, "between tasks": 2.0
    }  # fmt: skip
    assert [(job.name, job.seconds) for job in wall.jobs] == [("one", 9.0), ("two", 10.0)]


def test_of_tasks_side_by_side_the_one_that_is_behind_gives_the_phase() -> None:
    quick = result(
        "quick", 100, 120, ("imports", 100, 102), ("wait", 102, 110), ("measure", 110, 115), ("hold", 115, 120)
    )
    slow = result(
        "slow", 100, 121, ("imports", 100, 104), ("first step", 104, 110), ("measure", 110, 120), ("exit", 120, 121)
    )
    wall = wall_time([quick, slow])
    assert wall
    assert wall.phases == {"imports": 4.0, "first step": 6.0, "measure": 10.0, "exit": 1.0}
    assert sum(wall.phases.values()) == wall.seconds == 21.0


def test_a_preloaded_process_counts_before_the_start_of_the_task_that_waits_for_it() -> None:
    first = result("one", 105, 110, ("preload", 101, 105), ("fork", 105, 106), ("measure", 106, 110), forked=True)
    wall = wall_time([first])
    assert wall
    assert wall.phases == {"preload": 4.0, "fork": 1.0, "measure": 4.0, "between tasks": 1.0}
    assert (wall.forked, wall.jobs[0].seconds) == (1, 9.0)


def test_time_that_no_phase_explains_is_other_and_not_measured() -> None:
    broken = result("one", 100, 110, ("imports", 100, 102))
    wall = wall_time([broken])
    assert wall
    assert wall.phases == {"imports": 2.0, "other": 8.0}
    assert wall.measured == 0.0


def test_a_result_without_phases_still_shows_what_was_measured() -> None:
    made = make_result()
    wall = wall_time([made])
    if made.timeline.started_s is None or made.timeline.ended_s is None:
        assert wall is None
    else:
        assert wall
        assert wall.measured_s > 0
        assert wall.phases.keys() <= {"start-up", "wait", "measure", "hold", "other", "between tasks"}


def test_a_task_that_never_started_has_no_part() -> None:
    made = make_result()
    assert wall_time([replace(made, timeline=replace(made.timeline, started_s=None))]) is None
    assert wall_time([]) is None


def test_invocations_of_a_resumed_run_leave_out_the_time_between_them() -> None:
    one = result("one", 100, 110, ("measure", 100, 110))
    later = result("one", 1000, 1010, ("measure", 1002, 1010))
    later = replace(later, timeline=replace(later.timeline, queued_s=1000.0))
    wall = wall_time([one, later])
    assert wall
    assert (wall.seconds, wall.measured_s) == (20.0, 18.0)
    assert (wall.jobs[0].tasks, wall.jobs[0].seconds) == (2, 10.0)


def test_runs_that_are_reported_together_add_up_their_times() -> None:
    one = wall_time([result("one", 100, 110, ("measure", 100, 110))])
    two = wall_time([result("one", 100, 130, ("imports", 100, 120), ("measure", 120, 130))])
    both = all_wall([one, two])
    assert both
    assert (both.seconds, both.measured_s) == (40.0, 20.0)
    assert both.jobs[0].phases == {"imports": 10.0, "measure": 10.0}
    assert all_wall([one, None]) is None


def test_the_report_names_the_share_and_groups_the_phases() -> None:
    wall = wall_time([result("one", 101, 111, ("fork", 101, 102), ("measure", 102, 110), forked=True)])
    section = wall_section(replace(made_run(flat("one", 1.0)), wall=wall))
    assert section
    words, table = section.parts
    assert words.text.startswith("72.7 % of 11 s of wall time is measured. 1 worker forked")  # type: ignore[union-attr]
    names = [column.name for column in table.columns]  # type: ignore[union-attr]
    assert names == ["job", "tasks", "s", "start", "measure", "other", "between", "measured %"]
    last = [cell.text for cell in table.rows[-1]]  # type: ignore[union-attr]
    assert last == ["wall time", "1", "11.0", "1.0", "8.0", "1.0", "1.0", "73"]
    assert wall_section(made_run(flat("one", 1.0))) is None


def test_a_worker_notes_its_phases_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 12.0, 12.0001, 20.0])
    monkeypatch.setattr(worker_phases.time, "monotonic", lambda: next(now))
    clock = PhaseClock()
    clock.end("imports")
    clock.end("device")
    clock.end_warm_up(WarmUp(steps=5, elapsed_s=6.0, first_step_s=4.0))
    spans = [(span.name, span.start_s, span.end_s) for span in clock.taken()]
    assert spans == [
        ("imports", 10.0, 12.0),
        ("check precision", 12.0001, 14.0),
        ("first step", 14.0, 18.0),
        ("warm-up", 18.0, 20.0),
    ], "the device took no time worth a phase"
    assert clock.taken() == ()
