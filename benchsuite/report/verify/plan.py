"""Profile, plan and attempts: does the profile give this plan, is it whole, and did every task end?"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from benchsuite import __version__
from benchsuite.describe import entries, invocation
from benchsuite.describe.changes import job_changes
from benchsuite.describe.overrides import AS_THEN, Overrides
from benchsuite.describe.plan import make_plan, with_numbers
from benchsuite.describe.profile import Profile, of_text, single
from benchsuite.describe.tasks import Gpu, Plan, Task
from benchsuite.errors import BenchError, ModelError, ProfileError
from benchsuite.findings import Finding, note, ok, unmet
from benchsuite.records import Run
from benchsuite.report.format import count
from benchsuite.report.read.load import INSUFFICIENT, OPEN
from benchsuite.report.verify import all_or_bad, budgets, hashed, remedies, some
from benchsuite.report.verify.evidence import Evidence
from benchsuite.rundir import Attempt, read_record
from benchsuite.searches import CopiesSearch, Searches

_OTHER = "verify it with the benchsuite that ran it"
# The fields of a task that the plan decides. The others depend on the environment at planning.
_DECIDED = ("profile", "repeat", "cell", "row", "axes", "per", "wave", "copy", "gpus", "ranks", "nodes")


def findings(evidence: Evidence) -> Iterator[Finding]:
    """The plan against the profile and command line, and the attempts against the plan."""
    run, tasks = evidence.run, evidence.tasks
    if run and tasks is not None:
        if run.profile.sha256:
            yield from _planned_again(evidence.path, run, tasks)
            yield _whole(run, tasks)
            if run.budget_s is not None:
                yield budgets.finding(evidence.path, run)
        else:
            yield from _single(run, tasks)
    if tasks is not None:
        yield _accounted(evidence)
        if evidence.attempts is not None:
            yield _attempts(evidence, tasks)


def _planned_again(path: Path, run: Run, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Plan again from the kept profile, command line (with its changes) and GPUs, and compare the plans."""
    try:
        profile, plan = _again(path, run, tasks)
    except BenchError as error:
        yield _not_again(error, tasks)
        yield _hash(run, hashed.jobs(tasks, path / "plan.json"))
        return
    yield from _files(plan.tasks, tasks)
    chosen = invocation.chosen(run.command)
    changes = f", with the changes {shlex.join(chosen.changes)}" if chosen.changes else ""
    fine = f"the profile and the command line give the same plan again{changes}"
    if run.budget_s is not None:
        fine = f"the profile and the command line give the first pass and each added repeat again{changes}"
    yield _compared(run, list(_differing(plan.tasks, tasks)), fine)
    older = hashed.jobs_of_schema(run.begun_schema, profile.jobs)
    yield _hash(run, (*hashed.jobs(tasks, path / "plan.json"), *older, profile.sha256))


def _compared(run: Run, troubles: Sequence[str], fine: str) -> Finding:
    """The finding about the plan. A difference contradicts the records, unless another version may have made it."""
    if not troubles:
        return ok("plan", fine)
    if run.code.version == __version__:
        return all_or_bad("plan", troubles, "", remedy=_OTHER)
    then = f"run.json names benchsuite {run.code.version}, and this one is {__version__}"
    text = f"not verified: this benchsuite makes another plan, since it changed or plan.json did ({then})"
    return unmet("plan", text, _OTHER, troubles)


def _files(again: Sequence[Task], kept: Sequence[Task]) -> Iterator[Finding]:
    """Each model of the user's own whose file here is not that of the plan. The tasks trained that of the plan."""
    here = {task.job.entry: task.entry_sha256 for task in again}
    changed = {task.job.entry: task.entry_sha256 for task in kept if task.job.entry in here}
    for entry, then in sorted((entry, then) for entry, then in changed.items() if entry and then):
        if (now := here[entry]) and now != then:
            text = f"{entry}: its file is another one here, sha256 {now[:12]}; the run trained {then[:12]}"
            yield note("model", text, "verify with the file that the run trained")


def _single(run: Run, tasks: Sequence[Task]) -> Iterator[Finding]:
    """The plan of `benchsuite run` against its command line. That of a rerun rests on a result that is not here."""
    if any(task.rerun_of for task in tasks):
        yield note("plan", "no profile: 'benchsuite rerun' made the task from a result that is elsewhere")
        return
    try:
        wanted = _of_run(run, tasks)
    except ModelError as error:
        remedy = "verify in the folder from which the run was started, where the model can be found"
        yield unmet("plan", f"cannot be planned again here: {error}", remedy)
        return
    except BenchError as error:
        yield all_or_bad("plan", [f"the command line gives no plan: {error}"], "")
        return
    fine = "no profile: a single task, which the command line gives again"
    yield from _files(wanted, tasks)
    yield _compared(run, list(_differing(wanted, tasks)), fine)


def _of_run(run: Run, tasks: Sequence[Task]) -> Sequence[Task]:
    """The tasks that the command line of `benchsuite run` gives.

    Raises:
        BenchError: it names none of the planned models, or the model or a change cannot be read.
    """
    before = run.command[: run.command.index("--")] if "--" in run.command else run.command
    entry = next((name for task in tasks if (name := task.job.entry or task.job.model) in before), None)
    if entry is None:
        raise ProfileError("it names another model than plan.json")
    asked = Overrides.parse(invocation.chosen(run.command).changes)
    overrides = Overrides((*AS_THEN.get(run.begun_schema, ()), *asked.pairs))
    job = single(None, entry, overrides) if ":" in entry else single(entry, None, overrides)
    visible = _visible(run)
    chosen = visible if job.placement.devices == "all" else visible[:1]
    return make_plan("run", [job], chosen, environ={}).tasks


def _not_again(error: BenchError, tasks: Sequence[Task]) -> Finding:
    """A user's own model may be missing here. Any other failure contradicts the kept plan."""
    for entry in {task.job.entry for task in tasks if task.job.entry}:
        try:
            entries.declared(None, entry)
        except ModelError as missing:
            remedy = "verify in the folder from which the run was started, where the model can be found"
            return unmet("plan", f"cannot be planned again here: {missing}", remedy)
    return all_or_bad("plan", [f"the kept profile and command line give no plan: {error}"], "")


def _again(path: Path, run: Run, kept: Sequence[Task]) -> tuple[Profile, Plan]:
    """The profile and plan that the run's own records give; a budget chose the repeats that are kept.

    Raises:
        BenchError: the profile cannot be read any more, or asks for more GPUs than were visible.
    """
    chosen = invocation.chosen(run.command)
    asked = Overrides.parse(chosen.changes)
    overrides = Overrides((*AS_THEN.get(run.begun_schema, ()), *asked.pairs))
    profile = of_text(
        run.profile.text, Path(run.profile.path), only=chosen.only, exclude=chosen.exclude, overrides=overrides
    )
    repeats = run.repeats if run.budget_s is None else max((task.repeat for task in kept), default=0) + 1
    plan = make_plan(profile.name, profile.jobs, _visible(run), environ={}, repeats=repeats, seats=run.seats)
    plan = with_numbers(plan, {cell: search.numbers for cell, search in _searches(path).items()})
    return profile, plan if run.budget_s is None else budgets.as_chosen(plan, kept)


def _searches(path: Path) -> Mapping[str, CopiesSearch]:
    """The searches of the cells whose `copies` was `fit`; empty if there was none."""
    file = path / "searches.json"
    return read_record(file, Searches).cells if file.exists() else {}


def _visible(run: Run) -> list[Gpu]:
    """The GPUs that the run might use, in their order."""
    gpus = {gpu.uuid: gpu for gpu in run.machine.gpus}
    return [
        msgspec.structs.replace(gpus[uuid], visible_index=index)
        for index, uuid in enumerate(run.machine.visible)
        if uuid in gpus
    ]


def _differing(again: Sequence[Task], kept: Sequence[Task]) -> Iterator[str]:
    """How the kept plan differs from the new one."""
    wanted, found = {task.id: task for task in again}, {task.id: task for task in kept}
    yield from (f"{task} is not in plan.json" for task in wanted if task not in found)
    yield from (f"{task} is in plan.json, but was not asked for" for task in found if task not in wanted)
    for name, task in found.items():
        if name not in wanted:
            continue
        yield from (f"{name}: {change} in plan.json" for change in job_changes(wanted[name].job, task.job))
        for field in _DECIDED:
            if getattr(wanted[name], field) != getattr(task, field):
                yield f"{name}: {field} differs from the new plan"
    if not wanted.keys() ^ found.keys() and [*wanted] != [*found]:
        yield "the tasks are in another order"


def _hash(run: Run, candidates: Sequence[str]) -> Finding:
    own = run.profile.sha256
    troubles = [] if own in candidates else [f"run.json says {own[:12]}, its jobs give {candidates[-1][:12]}"]
    return all_or_bad("profile hash", troubles, f"that of the planned jobs, {own[:12]}")


def _whole(run: Run, tasks: Sequence[Task]) -> Finding:
    """The number of repeats, and each task once."""
    troubles = []
    repeats = sorted({task.repeat for task in tasks})
    planned = run.repeats if run.budget_s is None else len(repeats)
    if run.budget_s is None and (len(repeats) != run.repeats or repeats != list(range(len(repeats)))):
        shown = ", ".join(map(str, repeats)) or "none"
        troubles.append(f"run.json says {count(run.repeats, 'repeat')}, plan.json holds {shown}")
    ids = Counter(task.id for task in tasks)
    troubles += [f"{task} is planned {times} times" for task, times in ids.items() if times > 1]
    rows = count(len({task.row for task in tasks}), "row")
    fine = f"{count(len(tasks), 'task')}: {rows} in {count(planned, 'repeat' if run.budget_s is None else 'round')}"
    return all_or_bad("plan is whole", troubles, fine, "gap")


def _accounted(evidence: Evidence) -> Finding:
    rows = evidence.loaded.rows
    counts = Counter("ok" if row.status == INSUFFICIENT else row.status for row in rows)
    shown = ", ".join(f"{number} {status}" for status, number in sorted(counts.items())) or "none"
    text = f"{count(len(rows), 'task')} planned: {shown}"
    open_rows = [row for row in rows if row.status in OPEN]
    if open_rows:
        lines = [f"{row.task.id}: {row.status}, {row.reason}" for row in open_rows]
        return unmet("tasks", text, remedies.finish(evidence), lines)
    return ok("tasks", f"{text}; every one has ended")


def _of_tasks(evidence: Evidence) -> Iterator[Attempt]:
    """The lines of attempts.jsonl without those of the tries of searches, whose tasks no plan keeps."""
    searched = _searches(evidence.path)
    for line in evidence.attempts or ():
        if line.event != "prepare" or line.task.rpartition(".J")[0] not in searched:
            yield line


def _attempts(evidence: Evidence, tasks: Sequence[Task]) -> Finding:
    """Each line against the results: an end names its result, each result has an end, attempts count from 1."""
    results = {file.name: result for file, result in evidence.kept}
    starts: dict[str, set[int]] = defaultdict(set)
    ends: dict[tuple[str, int], str | None] = {}
    planned = {task.id for task in tasks}
    troubles = []
    for line in _of_tasks(evidence):
        if line.task not in planned:
            troubles.append(f"a line of {line.task}, which plan.json does not hold")
        elif line.event == "end":
            ends[line.task, line.attempt] = line.result
            result = results.get(line.result or "")
            what = (line.task, line.attempt, line.status)
            if line.result and result is None:
                troubles.append(f"{line.task}: its result {line.result} is missing")
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
            troubles.append(f"{name}: it was measured, but attempts.jsonl holds no start of attempt {at[1]}")
    numbers: dict[str, set[int]] = defaultdict(set)
    for task, attempt in ends:
        numbers[task].add(attempt)
    troubles += [
        f"{task}: attempts {some(map(str, sorted(of)))}"
        for task, of in numbers.items()
        if sorted(of) != list(range(1, len(of) + 1))
    ]
    fine = f"{count(len(ends), 'end')} in attempts.jsonl, each with the result that it names"
    return all_or_bad("attempts", troubles, fine)
