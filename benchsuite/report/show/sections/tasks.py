"""Failures, unsteady windows, reruns, and files that cannot be used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from benchsuite.report.format import NONE, count, few, number, one_line, percent, ratio
from benchsuite.report.measure.steadiness import STEADY_SPREAD
from benchsuite.report.read.load import INSUFFICIENT, OPEN
from benchsuite.report.read.summary import RerunSummary, Summary, TaskSummary
from benchsuite.report.show.document import Cell, Column, Fact, Section, fact, sentence, table
from benchsuite.report.stats.smoke import smoke_check
from benchsuite.rundir import distinct_slug

# The number of tasks named that failed in the same way.
_NAMED = 8
_Alike = tuple[str, str, Sequence[TaskSummary]]

_FAILURE_COLUMNS: tuple[Column[_Alike], ...] = (
    Column("status", lambda alike: Cell(alike[0], alike[0], "bad")),
    Column("task", lambda alike: _names(alike[2]), prose=True),
    Column("why", lambda alike: alike[1], prose=True),
)
_UNSTEADY_COLUMNS: tuple[Column[TaskSummary], ...] = (
    Column("task", lambda task: task.id),
    Column("device", lambda task: task.device, rank=1),
    Column("error", lambda task: Cell(f"± {percent(task.error)}", task.error), right=True, optional=True),
    Column("spread", lambda task: _percent(task.spread, task.spread_half), right=True, rank=5),
    Column("drift per 10 s", lambda task: _percent(task.drift, task.drift_half, "+"), right=True, rank=4),
    Column("slices", lambda task: task.slices, right=True, rank=3),
    Column("seconds", lambda task: Cell(f"{task.seconds:.1f}", task.seconds), right=True, rank=2),
    Column("why", lambda task: "; ".join(map(one_line, task.unsteady)) or NONE, prose=True),
)
_RERUN_COLUMNS: tuple[Column[RerunSummary], ...] = (
    Column("task", lambda rerun: rerun.task.id),
    Column("device", lambda rerun: rerun.task.device, rank=2),
    Column("perf", lambda rerun: rerun.task.perf, number, right=True),
    Column("original", lambda rerun: rerun.original_perf, number, right=True, rank=1),
    Column("ratio", lambda rerun: _ratio(rerun), ratio, right=True),
    Column("of", lambda rerun: _of(rerun), prose=True),
)


def failures_section(summary: Summary, logs: str | None) -> Section | None:
    """A row for each job, session, status and reason, and the folder of the tasks' output; None if all tasks are ok."""
    alike = list(_alike(summary))
    kept = [sentence(f"All that the tasks printed: {logs}/TASK.aATTEMPT.out and .err")] if logs else []
    session: Column[_Alike] = Column("session", lambda alike: alike[2][0].session + 1, right=True)
    columns = (session, *_FAILURE_COLUMNS) if summary.sessions else _FAILURE_COLUMNS
    return Section("Not ok", (table(columns, alike), *kept)) if alike else None


def failure_facts(summary: Summary, logs: str | None, limit: int) -> tuple[Fact, ...]:
    """The first failures, of the jobs with the largest share of failures: type, message and the log of one task."""
    share = {job.name: job.fail / job.n for job in summary.jobs if job.n}
    trains = {INSUFFICIENT} if smoke_check(summary) else set()
    found = (one for one in _by_job(summary) if one[1] not in trains)
    alike = sorted(found, key=lambda one: -share.get(one[0], 0.0))
    facts = [
        fact(f"{one_line(name)} {status}", _failure(tasks, reason, None if summary.sessions else logs), "bad")
        for name, status, reason, tasks in alike[:limit]
    ]
    more = [fact("", f"and {count(len(alike) - limit, 'other kind')} of failure")] if len(alike) > limit else []
    return (*facts, *more)


def _by_job(summary: Summary) -> Iterator[tuple[str, str, str, Sequence[TaskSummary]]]:
    for job in summary.jobs:
        for status, reason, tasks in _alike(replace(summary, jobs=(job,))):
            if status not in OPEN:
                yield job.name, status, reason, tasks


def _failure(tasks: Sequence[TaskSummary], reason: str, logs: str | None) -> str:
    """The tasks, why they failed, and the log of the first one."""
    first = tasks[0]
    log = f"; log: {logs}/{distinct_slug(first.id)}.a{first.attempt}.err" if logs and first.attempt else ""
    return f"{reason} ({_names(tasks)}{log})"


def unsteady_section(summary: Summary) -> Section | None:
    """A row for each ok task whose window is not steady, and a note on slices that spread; None without both."""
    ok = [(job, task) for job in summary.jobs for task in job.tasks if task.status == "ok"]
    tasks = [task for _, task in ok if task.steady is False]
    spreads: dict[str, list[float]] = defaultdict(list)
    for job, task in ok:
        if task.steady and (task.spread or 0.0) > STEADY_SPREAD:
            spreads[job.name].append(task.spread or 0.0)
    session: Column[TaskSummary] = Column("session", lambda task: task.session + 1, right=True)
    columns = (session, *_UNSTEADY_COLUMNS) if summary.sessions else _UNSTEADY_COLUMNS
    flagged = (table(columns, tasks),) if tasks else ()
    notes = (sentence(_spread_note(spreads)),) if spreads else ()
    title = f"Flagged ({flagged_words(summary)})" if tasks else "Note on slices"
    return Section(title, (*flagged, *notes)) if tasks or spreads else None


def flagged_words(summary: Summary) -> str:
    """What flags a task. Another version may have flagged it by another rule; no error of its rate is then recorded."""
    flagged = [task for job in summary.jobs for task in job.tasks if task.status == "ok" and task.steady is False]
    if any(task.error is None for task in flagged):
        return "not steady by the rule of the version that measured"
    return "not steady, so the rate is not known to 2 % or does not hold"


def _spread_note(spreads: dict[str, list[float]]) -> str:
    """The jobs whose slices spread although their windows are steady: no flaw."""
    names = (f"{job} ({count(len(of), 'task')}, up to {percent(max(of))})" for job, of in spreads.items())
    what = f"Slice rates spread by more than {percent(STEADY_SPREAD, 0)}, but average out to 2 % or less"
    return f"{what}, in {', '.join(few(names, _NAMED))}."


def reruns_section(summary: Summary) -> Section | None:
    """A row for each rerun; None without reruns."""
    parts = (table(_RERUN_COLUMNS, summary.reruns),)
    return Section("Reruns (in no number above)", parts) if summary.reruns else None


def bad_files_section(summary: Summary) -> Section | None:
    """Each file with the reason why it cannot be used; None without such a file."""
    files = tuple(fact(bad.file, one_line(bad.reason)) for bad in summary.bad_files)
    return Section(f"Files that cannot be used ({len(files)}; counted as no task)", (files,)) if files else None


def _alike(summary: Summary) -> Iterator[_Alike]:
    """Status, reason and tasks of all that are not ok. Tasks still to run are no failures."""
    passed_over = {"ok", *OPEN}
    for job in summary.jobs:
        alike: dict[tuple[int, str, str], list[TaskSummary]] = defaultdict(list)
        for task in job.tasks:
            if task.status not in passed_over:
                alike[task.session, task.status, one_line(task.reason)].append(task)
        for (_, status, reason), tasks in alike.items():
            yield status, reason, tasks


def _names(tasks: Sequence[TaskSummary]) -> str:
    """ "vae.J0.0 on GPU 0" for one task; "vae.J0.0 J0.1" for several, with the job's name once."""
    first = tasks[0]
    if len(tasks) == 1:
        return f"{first.id} on {first.device}"
    return " ".join(few([first.id, *(f"J{task.id.rpartition('.J')[2]}" for task in tasks[1:])], _NAMED))


def _percent(value: float | None, half: float | None, sign: str = "") -> Cell:
    """A share as percent, with the half width of its interval if it has one; `sign` is "+" to show it always."""
    if value is None:
        return Cell(NONE)
    return Cell(f"{100 * value:{sign}.1f} {'%' if half is None else f'± {percent(half)}'}", value)


def _ratio(rerun: RerunSummary) -> float | None:
    perf, original = rerun.task.perf, rerun.original_perf
    return perf / original if perf is not None and original else None


def _of(rerun: RerunSummary) -> str:
    """The original, the changes, and why the rerun is not ok."""
    of = rerun.of if rerun.original_perf is not None else f"{rerun.of} (not here, or not ok)"
    notes = [of, *(one_line(change) for change in rerun.changes)]
    if rerun.task.status != "ok":
        notes.append(f"{rerun.task.status}: {one_line(rerun.task.reason)}")
    return "; ".join(notes)
