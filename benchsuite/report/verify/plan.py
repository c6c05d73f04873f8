"""Profile, plan and attempts: is the plan the one of the profile, is it whole, and did every task come to an end?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchsuite.describe.tasks import Job, Task
from benchsuite.errors import ProfileError
from benchsuite.files import parse_mapping
from benchsuite.records import Run
from benchsuite.report.read.load import INSUFFICIENT, OPEN
from benchsuite.report.show.format import count
from benchsuite.report.verify import Finding, all_or_bad, hashed, note, ok, some, unmet
from benchsuite.report.verify.evidence import Evidence

# Fields that a profile may write in short forms, which only the run side knows.
_SHORT = ("placement", "compile", "env", "prepare")
# What may leave jobs out, or change them, on a command line.
_CHOOSING = ("--name", "--exclude")


def findings(evidence: Evidence) -> Iterator[Finding]:
    """All that is planned, beside what was asked for and what is noted to have happened."""
    run, tasks = evidence.run, evidence.tasks
    if run and tasks is not None:
        if run.profile.sha256:
            yield _profile_hash(evidence.path, run, tasks)
            yield from _profile_text(run, tasks)
            yield _whole(run, tasks)
        else:
            yield note("plan", "no profile: a single task, as 'benchsuite run' and 'rerun' make it")
    if tasks is not None:
        yield _accounted(evidence)
        if evidence.attempts is not None:
            yield _attempts(evidence, tasks)


def _jobs(tasks: Sequence[Task]) -> tuple[Job, ...]:
    return tuple({task.job.name: task.job for task in tasks}.values())


def _profile_hash(path: Path, run: Run, tasks: Sequence[Task]) -> Finding:
    troubles = []
    recomputed = hashed.jobs(tasks, path / "plan.json")
    if run.profile.sha256 not in recomputed:
        troubles.append(f"run.json says {run.profile.sha256[:12]}, the jobs of plan.json give {recomputed[-1][:12]}")
    by_name: dict[str, Job] = {}
    for task in tasks:
        if by_name.setdefault(task.job.name, task.job) != task.job:
            troubles.append(f"{task.id} has another job of that name than the tasks before")
        if task.profile != run.profile.name:
            troubles.append(f"{task.id} is of profile '{task.profile}', the run of '{run.profile.name}'")
    fine = f"the jobs of plan.json are those of the profile, sha256 {run.profile.sha256[:12]}"
    return all_or_bad("plan", troubles, fine, "contradiction")


def _profile_text(run: Run, tasks: Sequence[Task]) -> Iterator[Finding]:
    """The profile as it was written beside the jobs that were planned: what differs must come from the command line."""
    try:
        raw = parse_mapping(run.profile.text, Path(run.profile.path))
    except ProfileError as error:
        yield all_or_bad("profile text", [str(error)], "", "contradiction")
        return
    common = raw.get("*") or {}
    written = {name: fields for name, fields in raw.items() if name != "*" and isinstance(fields, dict)}
    planned = {job.name: job for job in _jobs(tasks)}
    left_out = [name for name in written if name not in planned]
    differing = [line for name, job in planned.items() for line in _differing(common, written.get(name), job)]
    chosen = any(word.split("=")[0] in _CHOOSING for word in run.command)
    changed = "--" in run.command
    troubles = [] if changed else differing
    troubles += [] if chosen else [f"{name} is in the profile, not in the plan" for name in left_out]
    troubles += [f"{name} is in the plan, not in the profile" for name in planned if name not in written]
    if troubles:
        yield all_or_bad("profile text", troubles, "", "contradiction")
    elif differing or left_out:
        lines = [*differing, *(f"{name}: left out" for name in left_out)]
        yield note("profile text", "the command line changed what the profile says", None, lines)
    else:
        yield ok("profile text", "what run.json holds of the profile is what was planned")


def _differing(common: dict[str, Any], own: dict[str, Any] | None, job: Job) -> Iterator[str]:
    if own is None:
        return
    planned = msgspec.to_builtins(job)
    params = {**(common.get("params") or {}), **(own.get("params") or {})}
    rival = {"entry": "model", "model": "entry"}
    inherited = {name: value for name, value in common.items() if rival.get(name) not in own}
    fields = {**inherited, **own, "params": params}
    for name, value in fields.items():
        if name == "params":
            for param, wanted in params.items():
                if _plain(planned["params"].get(param)) != _plain(wanted):
                    yield f"{job.name}: params.{param} {wanted} in the profile, {planned['params'].get(param)} planned"
        elif name not in _SHORT and value is not None and _plain(planned.get(name)) != _plain(value):
            yield f"{job.name}: {name} {value} in the profile, {planned.get(name)} planned"


def _plain(value: Any) -> Any:
    """Lists for tuples, and mappings without what is not given."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if part is not None}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _whole(run: Run, tasks: Sequence[Task]) -> Finding:
    """Every job in every repeat, and in each on all the GPUs that its placement asks for."""
    troubles = []
    repeats = sorted({task.repeat for task in tasks})
    if len(repeats) != run.repeats or repeats != list(range(len(repeats))):
        shown = ", ".join(map(str, repeats)) or "none"
        troubles.append(f"run.json says {count(run.repeats, 'repeat')}, plan.json holds {shown}")
    places: dict[str, dict[int, list[Task]]] = defaultdict(lambda: defaultdict(list))
    for task in tasks:
        places[task.job.name][task.repeat].append(task)
    for name, by_repeat in places.items():
        for repeat in repeats:
            if wrong := _wrong_places(by_repeat.get(repeat, []), run):
                troubles.append(f"{name}, repeat {repeat}: {wrong}")
    ids = Counter(task.id for task in tasks)
    troubles += [f"{task} is planned {times} times" for task, times in ids.items() if times > 1]
    of = f"{count(len(tasks), 'task')}: {count(len(places), 'job')}"
    fine = f"{of}, each on all its GPUs in {count(run.repeats, 'repeat')}"
    return all_or_bad("plan is whole", troubles, fine, "gap")


def _wrong_places(tasks: Sequence[Task], run: Run) -> str | None:
    """Why the tasks of one job in one repeat are not all that they should be."""
    if not tasks:
        return "not planned"
    job, visible = tasks[0].job, run.machine.visible
    on_gpus = job.placement.devices != "none" and bool(visible)
    if job.placement.devices == "each" and on_gpus:
        found = [gpu.uuid for task in tasks for gpu in task.gpus]
        lacking = [uuid for uuid in visible if uuid not in found]
        return f"no task for GPU {some(lacking)}" if lacking else None
    if any(task.skip for task in tasks):
        return None
    found_ranks = sorted(task.ranks for task in tasks)
    most = job.parallel.dp or (len(visible) if on_gpus and job.placement.devices in ("all", "progression") else None)
    if job.placement.devices == "progression":
        wanted = list(range(1, (most or max(found_ranks)) + 1))
    else:
        wanted = [most or found_ranks[0]]
    return (
        None
        if found_ranks == wanted
        else f"groups of {some(map(str, found_ranks))} planned, not of {some(map(str, wanted))}"
    )


def _accounted(evidence: Evidence) -> Finding:
    rows = evidence.loaded.rows
    counts = Counter("ok" if row.status == INSUFFICIENT else row.status for row in rows)
    shown = ", ".join(f"{number} {status}" for status, number in sorted(counts.items())) or "none"
    text = f"{count(len(rows), 'task')} planned: {shown}"
    open_rows = [row for row in rows if row.status in OPEN]
    if open_rows:
        lines = [f"{row.task.id}: {row.status}, {row.reason}" for row in open_rows]
        return unmet("tasks", text, "finish the run: the same 'benchsuite jobs' with --resume", lines)
    return ok("tasks", f"{text}; every one has ended")


def _attempts(evidence: Evidence, tasks: Sequence[Task]) -> Finding:
    """Each line against the results: an end names its result, a result has its end, attempts count from 1."""
    results = {file.name: result for file, result in evidence.kept}
    starts: dict[str, set[int]] = defaultdict(set)
    ends: dict[tuple[str, int], str | None] = {}
    planned = {task.id for task in tasks}
    troubles = []
    for line in evidence.attempts or ():
        if line.task not in planned:
            troubles.append(f"a line of {line.task}, which is not planned")
        elif line.event == "end":
            ends[line.task, line.attempt] = line.result
            result = results.get(line.result or "")
            what = (line.task, line.attempt, line.status)
            if line.result and result is None:
                troubles.append(f"{line.task}: its result {line.result} is not here")
            elif result and what != (result.task.id, result.identity.attempt, result.status):
                said = f"attempt {line.attempt}, {line.status}"
                own = f"{result.task.id}, attempt {result.identity.attempt}, {result.status}"
                troubles.append(f"{line.result}: it is of {own}; its end says {line.task}, {said}")
        else:
            starts[line.task].add(line.attempt)
    for name, result in results.items():
        at = result.task.id, result.identity.attempt
        if result.task.id in planned and ends.get(at) != name:
            troubles.append(f"{name}: no end of attempt {at[1]} names it")
        if result.timeline.started_s is not None and at[1] not in starts[at[0]] and result.status != "interrupted":
            troubles.append(f"{name}: it was measured, but no start of attempt {at[1]} is noted")
    numbers: dict[str, set[int]] = defaultdict(set)
    for task, attempt in ends:
        numbers[task].add(attempt)
    troubles += [
        f"{task}: attempts {some(map(str, sorted(of)))}"
        for task, of in numbers.items()
        if sorted(of) != list(range(1, len(of) + 1))
    ]
    fine = f"{count(len(ends), 'end')} noted, each with the result that it names"
    return all_or_bad("attempts", troubles, fine, "contradiction")
