"""Several runs of one machine as the sessions of one summary."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations

from msgspec.structs import replace

from benchsuite.errors import ResultError
from benchsuite.report.read.mixed import facts_of_machine, joined
from benchsuite.report.read.summary import BadFile, JobSummary, ProfileRef, RerunSummary, Session, Summary
from benchsuite.report.read.workload import data_used, tally
from benchsuite.report.stats.differences import differences, trained_changes
from benchsuite.report.stats.figures import with_figures
from benchsuite.report.stats.samples import MIN_SESSIONS
from benchsuite.report.stats.together import all_together
from benchsuite.report.stats.wall import all_wall

# Differences between runs that a list of sessions shows elsewhere: where and when they ran, and what failed.
_SHOWN_ELSEWHERE = ("host", "ok tasks a repeat")


def together(summaries: Sequence[Summary], names: Sequence[str]) -> Summary:
    """One summary of several runs, with each run as a session; a single summary is returned as it is.

    A summary that has sessions already adds all of them. Facts of the machine, the profile and the jobs are those of
    the first run. Each session keeps how its run differs from the first one.

    Args:
        names: of the runs, as the user gave them.

    Raises:
        ResultError: the runs cannot be sessions of one machine.
    """
    first = summaries[0]
    if len(summaries) == 1:
        return first
    _check(summaries, names)
    numbered = _numbered(summaries)
    sessions = tuple(session for summary in summaries for session in _sessions(summary, first))
    jobs: dict[str, list[JobSummary]] = defaultdict(list)
    for job in (job for summary in numbered for job in summary.jobs):
        jobs[job.name].append(job)
    run = {job.job for of in jobs.values() for job in of}
    left_out = dict.fromkeys(name for summary in summaries for name in summary.left_out if name not in run)
    merged = tuple(_job(of) for of in jobs.values())
    return replace(
        first,
        source=", ".join(session.source for session in sessions),
        created=min((s.created for s in summaries if s.created), default=None),
        provenance="; ".join(dict.fromkeys(s.provenance for s in summaries if s.provenance)) or None,
        planned=all(s.planned for s in summaries),
        in_progress=any(s.in_progress for s in summaries),
        profile=_profile([s.profile for s in summaries]),
        measured_with=joined(map(_measured_with, summaries)),
        code=tuple(dict.fromkeys(code for s in summaries for code in s.code)),
        isolation=_added(s.isolation for s in summaries),
        data=_added(s.data for s in summaries),
        overlap=min((s.overlap for s in summaries if s.overlap is not None), default=None),
        budget_s=first.budget_s if len({s.budget_s for s in summaries}) == 1 else None,
        jobs=merged,
        reruns=tuple(rerun for s in numbered for rerun in s.reruns),
        bad_files=tuple(bad for s in summaries for bad in _bad_files(s)),
        sessions=sessions,
        left_out=tuple(left_out),
        needs_more_gpus={k: v for s in summaries for k, v in s.needs_more_gpus.items() if k not in jobs},
        wall=all_wall([s.wall for s in summaries]),
        complete=_complete(summaries, merged),
    )


def _complete(summaries: Sequence[Summary], merged: Sequence[JobSummary]) -> bool | None:
    """Whether each run is complete, and has every job; None if a summary does not state it."""
    if any(summary.complete is None for summary in summaries):
        return None
    return all(s.complete for s in summaries) and all(len(s.jobs) == len(merged) for s in summaries)


def not_in_every(summary: Summary) -> dict[str, str]:
    """Job -> the number of sessions that have it, in words; only jobs that a session lacks or in which it has no ok
    task. Empty without sessions.
    """
    of, found = len(summary.sessions), {}
    for job in summary.jobs if of else ():
        planned, ok = ({task.session for task in tasks} for tasks in (job.tasks, [t for t in job.tasks if t.perf]))
        words = [f"in {len(planned)} of {of} sessions"] if len(planned) < of else []
        if 0 < len(ok) < len(planned):
            words.append(f"ok in {len(ok)}" if words else f"ok in {len(ok)} of {of} sessions")
        if words and len(ok) < MIN_SESSIONS <= of and job.interval:
            words.append("its interval is over repeats")
        if words:
            found[job.name] = ", ".join(words)
    return found


def _check(summaries: Sequence[Summary], names: Sequence[str]) -> None:
    """Refuse runs that cannot be sessions of one machine.

    Raises:
        ResultError: names the run, or both runs, and the reason.
    """
    for summary, name in zip(summaries, names, strict=True):
        if summary.origin or any(job.n != len(job.tasks) for job in summary.jobs):
            what = f"a result of {summary.origin}" if summary.origin else "it keeps no single tasks and repeats"
            raise ResultError(f"{name}: {what}, so that it cannot be one of several sessions; name it alone")
    for (name, summary), (other, another) in combinations(zip(names, summaries, strict=True), 2):
        if _same_run(summary, another):
            raise ResultError(f"{name} and {other} are the same run; name each run once")
    for summary, name in zip(summaries[1:], names[1:], strict=True):
        if unlike := _mismatch(summaries[0], summary):
            ours, theirs, rule = unlike
            raise ResultError(f"{names[0]}: {ours}, {name}: {theirs}; sessions are runs of {rule}")


def _mismatch(first: Summary, other: Summary) -> tuple[str, str, str] | None:
    """The profiles, GPUs or processors of two runs if they differ, and the rule that this breaks; None if they agree.

    Drivers and packages may differ, which the report says.
    """
    profiles = [_profile_words(summary.profile) for summary in (first, other)]
    if profiles[0] != profiles[1]:
        return profiles[0], profiles[1], "one profile"
    ours, theirs = _models(first), _models(other)
    used = _gpus_words(first.gpus_used, ours), _gpus_words(other.gpus_used, theirs)
    if first.gpus_used == other.gpus_used and (ours == theirs or not ours or not theirs):
        used = _processors(first), _processors(other)
        if used[0] == used[1] or not all(used):
            return None
    return *used, "one machine or of equal machines"


def _processors(summary: Summary) -> str:
    """The processors of a run's machines, in words; empty if they are not recorded."""
    return " and ".join(sorted({f"{machine.cpus} x {machine.cpu}" for machine in summary.machines}))


def _measured_with(summary: Summary) -> Mapping[str, tuple[str, ...]]:
    """The facts of a run's results, else those of its machines."""
    return summary.measured_with or joined(map(facts_of_machine, summary.machines))


def _same_run(one: Summary, other: Summary) -> bool:
    """Whether a run of one began on the same hosts at the same moment, or all measured tasks of one are of the other.

    A copy of a run, also one that was made while the run went on, is the same run.
    """
    began = [{(of.created, of.hosts) for of in _sessions(summary) if of.created} for summary in (one, other)]
    tasks = [_measured(summary) for summary in (one, other)]
    fewer, more = sorted(tasks, key=len)
    return bool(began[0] & began[1]) or (bool(fewer) and fewer <= more)


def _measured(summary: Summary) -> set[tuple[object, ...]]:
    """The identities of the measured tasks: the name of a result's file contains the moment at which it was written."""
    tasks = (task for job in summary.jobs for task in job.tasks)
    return {(task.host, task.file, task.items, task.seconds) for task in tasks if task.file and task.items}


def _profile_words(profile: ProfileRef | None) -> str:
    if profile is None:
        return "an unknown profile"
    changed = profile.based_on and profile.based_on != profile.name
    return f"profile {profile.name}{f' (based on {profile.based_on})' if changed else ''}"


def _models(summary: Summary) -> tuple[str, ...]:
    """The models of the GPUs used; empty without GPUs, or if no machine is recorded."""
    used = {gpu.uuid for job in summary.jobs for task in job.tasks for gpu in task.gpus}
    present = [gpu for machine in summary.machines for gpu in machine.gpus]
    models = {gpu.name for gpu in present if gpu.uuid in used} or {gpu.name for gpu in present}
    return tuple(sorted(models)) if summary.gpus_used else ()


def _gpus_words(number: int, models: Sequence[str]) -> str:
    return f"{number} x {', '.join(models) or 'GPU'}" if number else "no GPU"


def _numbered(summaries: Sequence[Summary]) -> list[Summary]:
    """The summaries with the sessions of their tasks counted on from one to the next."""
    starts = accumulate((max(1, len(summary.sessions)) for summary in summaries), initial=0)
    return [
        replace(
            summary,
            jobs=tuple(
                replace(job, tasks=tuple(replace(task, session=task.session + start) for task in job.tasks))
                for job in summary.jobs
            ),
            reruns=tuple(_of_session(rerun, start) for rerun in summary.reruns),
        )
        for summary, start in zip(summaries, starts, strict=False)
    ]


def _of_session(rerun: RerunSummary, start: int) -> RerunSummary:
    return replace(rerun, task=replace(rerun.task, session=rerun.task.session + start))


def _sessions(summary: Summary, first: Summary | None = None) -> Iterator[Session]:
    """The sessions of a summary; a single run is one. `first` is the run to compare with."""
    hosts = tuple(dict.fromkeys(machine.host for machine in summary.machines))
    hosts = hosts or tuple(sorted({task.host for job in summary.jobs for task in job.tasks if task.host}))
    changed = tuple(_differences(summary, first)) if first else ()
    for session in summary.sessions or (Session(source=summary.source, created=summary.created, hosts=hosts),):
        yield replace(session, differences=tuple(dict.fromkeys((*changed, *session.differences))))


def _differences(summary: Summary, first: Summary) -> Iterator[str]:
    for found in differences(summary, first).found:
        if not found.what.startswith(_SHOWN_ELSEWHERE):
            jobs = f" ({', '.join(found.jobs)})" if found.jobs else ""
            yield f"{found.what} {found.base} -> {found.here}{jobs}"


def _profile(profiles: Sequence[ProfileRef | None]) -> ProfileRef | None:
    """The first profile; official if all are."""
    first, officials = profiles[0], [profile.official for profile in profiles if profile]
    return first and replace(first, official=None if None in officials else all(officials))


def _added(tallies: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return tally(what for numbers in tallies for what in Counter(numbers).elements())


def _bad_files(summary: Summary) -> Iterator[BadFile]:
    """The files with their run's name in front; a summary of several sessions has it already."""
    for bad in summary.bad_files:
        yield bad if summary.sessions else replace(bad, file=f"{summary.source}/{bad.file}")


def _job(sessions: Sequence[JobSummary]) -> JobSummary:
    """One job of several runs, the same row of each. Facts that no line names are those of the first."""
    first = sessions[0]
    merged = replace(
        first,
        tasks=tuple(task for job in sessions for task in job.tasks),
        to_run=sum(job.to_run for job in sessions),
        not_run=sum(job.not_run for job in sessions),
        unit=next((job.unit for job in sessions if job.unit), None),
        unlike_machines=tuple(dict.fromkeys(change for job in sessions for change in job.unlike_machines)),
        unlike=tuple(dict.fromkeys(change for job in sessions for change in (*job.unlike, *_changes(job, first)))),
        data_used=data_used(used for job in sessions for used in job.data_used),
        batch_size=first.batch_size if len({job.batch_size for job in sessions}) == 1 else None,
        backend=first.backend if len({job.backend for job in sessions}) == 1 else None,
        peak_memory_bytes=max((job.peak_memory_bytes for job in sessions if job.peak_memory_bytes), default=None),
        excluded=next((job.excluded for job in sessions if job.excluded), None),
        together=all_together([job.together for job in sessions]),
    )
    return with_figures(merged, _items_per_joule(sessions))


def _changes(job: JobSummary, first: JobSummary) -> Iterator[str]:
    """How two sessions of a job differ so that the mean of their rates means nothing, the first one's value first."""
    if job.workload != first.workload:
        old, new = ((of.workload or "not known")[:12] for of in (first, job))
        yield from trained_changes(job.settings, first.settings) or (f"workload {old} -> {new}",)
    for what in ("unit", "per", "ranks", "unit_factor"):
        old, new = getattr(first, what), getattr(job, what)
        if old != new and not (what == "unit" and None in (old, new)):  # a job without an ok task has no unit
            yield f"{what} {old} -> {new}"


def _items_per_joule(sessions: Sequence[JobSummary]) -> float | None:
    """Work over energy: the sum of the sessions' rates over the sum of their powers.

    A session's power is its rate over its items per joule. Its rate is that of the tasks with an energy counter of
    their own; copies that share a GPU have none, and all their ok tasks count.
    """
    rates, powers = [], []
    for job in sessions:
        ok = [task for task in job.tasks if task.perf is not None]
        counted = [task for task in ok if task.use and task.use.items_per_joule is not None] or ok
        rate = math.fsum(task.perf or 0.0 for task in counted) * job.per
        if rate and job.use and job.use.items_per_joule:
            rates.append(rate)
            powers.append(rate / job.use.items_per_joule)
    return math.fsum(rates) / math.fsum(powers) if powers else None
