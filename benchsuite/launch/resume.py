"""Continue a run that ended early: which results stand, which waves are repeated, and what a crash left behind."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import psutil

from benchsuite.describe.changes import changes
from benchsuite.describe.plan import with_numbers
from benchsuite.describe.tasks import Job, Plan, Task
from benchsuite.errors import OutputError, ProfileError, UsageError, encodable, reason
from benchsuite.events import control_file
from benchsuite.host.kernel_files import started_ticks
from benchsuite.launch.outcome import orphaned
from benchsuite.launch.process import MARK
from benchsuite.launch.searches import searches
from benchsuite.launch.worker_events import EventFiles
from benchsuite.measurement import read_boot_id
from benchsuite.records import Machine, Result, Run
from benchsuite.rundir import Attempt, RunDir, results, write_result
from benchsuite.schema import SCHEMA, to_json
from benchsuite.writing import replace

# Defaults that are newer than a run of an older schema: the change that a resume sees -> the words that undo it.
_NEW_DEFAULTS = {
    "prefetch False -> True": "--no-prefetch",
    "warm_up_s 0.0 -> 2.0": "--warm-up-s 0",
    "intra_op_threads cpus -> auto": "--intra-op-threads cpus",
}


@dataclass(frozen=True)
class Left:
    """What is left of a run.

    Attributes:
        plan: the plan of the whole run, with its new repeats.
        remaining: the waves to repeat.
        attempts: the number of the next attempt at each of these tasks, by task id.
        settled: the statuses that stand, by task id.
    """

    plan: Plan
    remaining: Plan
    attempts: Mapping[str, int]
    settled: Mapping[str, str]


def left_of(rundir: RunDir, now: Plan, machine: Machine) -> Left:
    """What a resume would do; it changes nothing.

    Args:
        now: the plan that the present command makes.
        machine: this machine.

    Raises:
        ResultError: run.json or plan.json is missing or damaged.
        ProfileError, UsageError: see `check`.
    """
    found = {cell: search.numbers for cell, search in searches(rundir).items()}
    before, now = (with_numbers(plan, found) for plan in (rundir.plan(), now))
    plan = check(rundir.path, rundir.run(), before, now, machine)
    ends: dict[str, dict[int, str]] = defaultdict(dict)
    lines = rundir.attempts()
    for line in lines:
        if line.event == "end" and line.status:
            ends[line.task][line.attempt] = line.status
    kept = _kept(rundir, lines)
    for (task, attempt), (_, status) in kept.items():
        ends[task].setdefault(attempt, status)
    settled = {task: first for task, of in ends.items() if (first := _first(of))}
    pending = tuple(wave for wave in plan.waves if any(task.id not in settled for task in wave.tasks))
    remaining = Plan(waves=pending)
    attempts = {task.id: max([*_started(rundir, task, lines), *ends[task.id], 0]) + 1 for task in remaining.tasks}
    return Left(plan, remaining, attempts, settled)


def _started(rundir: RunDir, task: Task, lines: Iterable[Attempt]) -> list[int]:
    """The attempts in which a task was started, by `logs/` (which a user may have removed) and by `lines`."""
    noted = (line.attempt for line in lines if line.task == task.id and line.event == "start")
    return sorted({*rundir.started(task), *noted})


def check(at: Path, run: Run, before: Plan, now: Plan, machine: Machine) -> Plan:
    """The plan to continue: the old one, with the new repeats of the present one.

    Args:
        at: the run's folder, for messages.

    Raises:
        ProfileError: the profile, or the changes after `--`, differ from those that the run was started with.
        UsageError: the machine or the GPUs differ, or fewer repeats are asked for than are planned.
    """
    changed = changes(_jobs(before), _jobs(now))
    if changed:
        as_then = [_NEW_DEFAULTS.get(change.rpartition(": ")[2]) for change in changed]
        remedy = ""
        if run.begun_schema < SCHEMA and all(as_then):
            remedy = f"; an older benchsuite started it, so add '-- {' '.join(dict.fromkeys(filter(None, as_then)))}'"
        raise ProfileError(
            f"{at}: the run was started with another profile or other changes: {'; '.join(changed)}{remedy}"
        )
    if (run.machine.host, run.machine.cpu) != (machine.host, machine.cpu):
        there = f"{run.machine.host} ({run.machine.cpu})"
        raise UsageError(
            f"{at}: the run was started on another machine, {there}; continue there, or start a new run here"
        )
    if now.repeats < before.repeats:
        raise UsageError(f"{at}: --repeat {now.repeats}: the run has {before.repeats} repeats already; give no fewer")
    if [task.nodes for task in before.tasks] != [task.nodes for task in now.tasks][: len(before.tasks)]:
        there = ", ".join(seat.name for seat in run.seats) or "one machine"
        raise UsageError(
            f"{at}: the run was started on other nodes ({there}); continue on these: by --join or --hosts, or "
            "by the folder of the run that --slurm started"
        )
    places = [(t.id, tuple(g.uuid for g in t.gpus)) for t in before.tasks]
    if places != [(t.id, tuple(g.uuid for g in t.gpus)) for t in now.tasks][: len(places)]:
        there = ", ".join(run.machine.visible) or "none"
        raise UsageError(f"{at}: the run was started on other GPUs ({there}); make them visible, in that order")
    return Plan(waves=(*before.waves, *now.waves[len(before.waves) :]))


def changes_since(run: Run, machine: Machine, code: object) -> list[str]:
    """The software and code that changed since the run was started, a line each. Such a change can affect the score."""
    found = []
    if run.code != code:
        found.append("benchsuite itself has changed")
    for name in sorted({**run.machine.packages, **machine.packages}):
        was, now = run.machine.packages.get(name), machine.packages.get(name)
        if was != now:
            found.append(f"{name} {was or 'absent'} -> {now or 'absent'}")
    for name in ("driver", "kernel", "python", "cpus_usable"):
        was, now = getattr(run.machine, name), getattr(machine, name)
        if was != now:
            found.append(f"{name} {was} -> {now}")
    return found


def _jobs(plan: Plan) -> dict[str, Job]:
    """The job of each cell, by the cell's name."""
    return {task.cell: task.job for task in plan.tasks}


def _first(ends: Mapping[int, str]) -> str | None:
    """The status of the first attempt that was not interrupted: a later attempt cannot replace a failure."""
    return next((ends[attempt] for attempt in sorted(ends) if ends[attempt] != "interrupted"), None)


def _kept(rundir: RunDir, lines: Iterable[Attempt]) -> dict[tuple[str, int], tuple[str, str]]:
    """Results whose end was not noted: (task, attempt) -> file name and status."""
    ended = {(line.task, line.attempt) for line in lines if line.event == "end"}
    if all((line.task, line.attempt) in ended for line in lines if line.event == "start"):
        return {}
    return {
        (result.task.id, result.identity.attempt): (path.name, result.status)
        for path, result in results(rundir.path)
        if isinstance(result, Result)
        and result.task.rerun_of is None
        and (result.task.id, result.identity.attempt) not in ended
    }


def mend(rundir: RunDir, left: Left, command: Sequence[str]) -> tuple[str, ...]:
    """Note that the run continues, with its new plan, and give every start without an end its end.

    The end is that of the result that was written, else an interrupted result made of the events.

    Args:
        left: what is left of the run.
        command: the present command line.

    Returns:
        What was done, a line each.

    Raises:
        OutputError: the folder cannot be written.
    """
    run = rundir.run()
    again = datetime.now(timezone.utc).isoformat(), encodable(shlex.join(command))
    try:
        (rundir.path / "logs").mkdir(exist_ok=True)
        replace(rundir.path / "plan.json", to_json(left.plan, indent=2))
        resumed = msgspec.structs.replace(run, repeats=left.plan.repeats, resumed=(*run.resumed, again))
        replace(rundir.path / "run.json", to_json(resumed, indent=2))
        return tuple(_mend(rundir, left.plan, run))
    except OSError as error:
        raise OutputError(f"{rundir.path}: cannot be written: {reason(error)}") from None


def _mend(rundir: RunDir, plan: Plan, run: Run) -> list[str]:
    lines = rundir.attempts()
    ended = {(line.task, line.attempt) for line in lines if line.event == "end"}
    open_lines = [line for line in lines if line.event != "end" and (line.task, line.attempt) not in ended]
    swept = [words for line in open_lines for words in _end_leftovers(line)]
    starts = {(line.task, line.attempt): line for line in open_lines if line.event == "start"}
    kept = _kept(rundir, lines)
    for task in plan.tasks:
        for attempt in _started(rundir, task, open_lines):
            if (task.id, attempt) in ended:
                continue
            Path(control_file(str(rundir.log(task, attempt, "events.jsonl")))).unlink(missing_ok=True)
            name, status = kept.get((task.id, attempt), (None, "interrupted"))
            if name is None:
                events = EventFiles(rundir.log(task, attempt, "events.jsonl"), task.ranks)
                events.read()
                seen = events.seen
                result = orphaned(task, attempt, seen, run, starts.get((task.id, attempt)))
                name = write_result(rundir.path, result, datetime.now(timezone.utc)).name
                swept.append(f"{task.id}: attempt {attempt} was cut off; {len(seen.slices)} slices are kept")
            at = datetime.now(timezone.utc).isoformat()
            rundir.note_attempt(Attempt(event="end", task=task.id, attempt=attempt, at=at, status=status, result=name))
    return swept


def _end_leftovers(start: Attempt) -> list[str]:
    """Kill what still runs of a dead run's task: the recorded process, and all that inherited its mark.

    Nothing is killed if the run is alive: the folder may be a copy of one in progress.
    """
    parent_lives = start.parent_pid and started_ticks(start.parent_pid) == start.parent_ticks
    if start.boot_id != read_boot_id() or not start.mark or parent_lives:
        return []
    swept = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            recorded = process.pid == start.pid and started_ticks(process.pid) == start.ticks
            if recorded or process.environ().get(MARK) == start.mark:
                process.kill()
                swept.append(f"{start.task}: process {process.pid} was left running and has been killed")
    return swept
