"""Go on with a run that was ended: what stands, what is to be done again, and what a crash left behind."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import psutil

from benchsuite.errors import OutputError, ProfileError, UsageError
from benchsuite.events import EventReader
from benchsuite.launch.child import Seen
from benchsuite.launch.outcome import Setting, orphaned
from benchsuite.launch.process import MARK
from benchsuite.plan import waves
from benchsuite.profile import differences
from benchsuite.records import Result, Run
from benchsuite.rundir import Attempt, RunDir, results, write_result
from benchsuite.schema import to_json
from benchsuite.tasks import Job, Plan, Task
from benchsuite.writing import replace


@dataclass(frozen=True)
class Resumed:
    """What is left of a run.

    `tasks` are those of the waves to repeat, `attempts` the number of each one's next attempt, `settled` the statuses
    that stand, by task; `swept` says what a crash had left and was mended.
    """

    plan: Plan
    tasks: tuple[Task, ...]
    attempts: Mapping[str, int]
    settled: Mapping[str, str]
    swept: tuple[str, ...]


def check(at: Path, run: Run, before: Plan, now: Plan) -> Plan:
    """The plan to go on with: as it was, with the new repeats of the present one.

    Raises:
        ProfileError: the profile, or the changes after `--`, are not those that the run was started with.
        UsageError: other GPUs are visible, or fewer repeats are asked for than are planned.
    """
    changed = differences(_jobs(before), _jobs(now))
    if changed:
        raise ProfileError(f"{at}: the run was started with another profile or other changes: {'; '.join(changed)}")
    repeats_before, repeats_now = (max((t.repeat for t in p.tasks), default=-1) + 1 for p in (before, now))
    if repeats_now < repeats_before:
        raise UsageError(f"{at}: --repeat {repeats_now}: the run has {repeats_before} repeats already; give no fewer")
    places = [(t.id, tuple(g.uuid for g in t.gpus)) for t in before.tasks]
    if places != [(t.id, tuple(g.uuid for g in t.gpus)) for t in now.tasks][: len(places)]:
        there = ", ".join(run.machine.visible) or "none"
        raise UsageError(f"{at}: the run was started on other GPUs ({there}); make them visible, in that order")
    return Plan(tasks=(*before.tasks, *now.tasks[len(before.tasks) :]))


def _jobs(plan: Plan) -> list[Job]:
    return list({task.job.name: task.job for task in plan.tasks}.values())


def reopen(rundir: RunDir, now: Plan, command: Sequence[str], setting: Setting) -> Resumed:
    """Mend what a crash left, extend the plan, and find the waves that have a task without an outcome.

    Raises:
        ResultError: run.json or plan.json is missing or damaged.
        ProfileError, UsageError: see `check`.
        OutputError: the folder cannot be written.
    """
    run, before = rundir.run(), rundir.plan()
    plan = check(rundir.path, run, before, now)
    again = datetime.now(timezone.utc).isoformat(), " ".join(command)
    repeats = max((t.repeat for t in plan.tasks), default=-1) + 1
    run = msgspec.structs.replace(run, repeats=repeats, resumed=(*run.resumed, again))
    try:
        replace(rundir.path / "plan.json", to_json(plan, indent=2))
        replace(rundir.path / "run.json", to_json(run, indent=2))
        swept = _mend(rundir, plan, setting)
    except OSError as error:
        raise OutputError(f"{rundir.path}: cannot be written: {error.strerror or error}") from None
    ends: dict[str, dict[int, str]] = defaultdict(dict)
    last: dict[str, int] = defaultdict(int)
    for line in rundir.attempts():
        if line.event != "prepare":
            last[line.task] = max(last[line.task], line.attempt)
        if line.event == "end" and line.status:
            ends[line.task][line.attempt] = line.status
    settled = {task: status for task, of in ends.items() if (status := _first(of))}
    pending = [wave for wave in waves(plan.tasks) if any(task.id not in settled for task in wave)]
    tasks = tuple(task for wave in pending for task in wave)
    return Resumed(plan, tasks, {task.id: last[task.id] + 1 for task in tasks}, settled, swept)


def _first(ends: Mapping[int, str]) -> str | None:
    """The status of the first attempt that was not interrupted: a failure can't be retried away."""
    return next((ends[attempt] for attempt in sorted(ends) if ends[attempt] != "interrupted"), None)


def _mend(rundir: RunDir, plan: Plan, setting: Setting) -> tuple[str, ...]:
    """Give every start without an end its end: of the result that is there, else an interrupted one from its events."""
    lines = rundir.attempts()
    ended = {(line.task, line.attempt) for line in lines if line.event == "end"}
    swept = [
        swept for line in lines if line.event != "end" and (line.task, line.attempt) not in ended
        for swept in _end_leftovers(line)
    ]  # fmt: skip
    cut_off = [(t, n) for t in plan.tasks for n in rundir.started(t) if (t.id, n) not in ended]
    kept = {
        (result.task.id, result.identity.attempt): (path.name, result.status)
        for path, result in (results(rundir.path) if cut_off else ())
        if isinstance(result, Result) and result.task.rerun_of is None
    }
    for task, attempt in cut_off:
        name, status = kept.get((task.id, attempt), (None, "interrupted"))
        if name is None:
            seen = Seen()
            seen.take(EventReader(rundir.log(task, attempt, "events.jsonl")).new())
            result = orphaned(task, attempt, seen, setting)
            name = write_result(rundir.path, result, datetime.now(timezone.utc)).name
            swept.append(f"{task.id}: attempt {attempt} was cut off; {len(seen.slices)} slices are kept")
        at = datetime.now(timezone.utc).isoformat()
        rundir.note_attempt(Attempt(event="end", task=task.id, attempt=attempt, at=at, status=status, result=name))
    return tuple(swept)


def _end_leftovers(start: Attempt) -> list[str]:
    """Kill what still runs of a dead run's task: the recorded process, and whatever inherited its mark."""
    swept = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            recorded = process.pid == start.pid and abs(process.create_time() - (start.pid_started or 0.0)) < 0.1
            if recorded or (start.mark and process.environ().get(MARK) == start.mark):
                if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                process.kill()
                swept.append(f"{start.task}: process {process.pid} was left running and has been killed")
    return swept
