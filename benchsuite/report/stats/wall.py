"""What the wall time of a run went to, from the times of its tasks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchsuite.costs import PhaseSpan
from benchsuite.records import Result
from benchsuite.report.read.wall import JobTime, WallTime

BETWEEN = "between tasks"
# The phases in their order. Time of a task that no phase explains is "other", as all after an error is.
PHASES = (
    "preload",
    "start-up",
    "interpreter",
    "fork",
    "imports",
    "device",
    "meet ranks",
    "build",
    "to device",
    "data",
    "check precision",
    "first step",
    "warm-up",
    "other",
    "wait",
    "measure",
    "hold",
    "cost of measuring",
    "recordings",
    "checks",
    "count FLOPs",
    "exit",
)
_RANK = {name: rank for rank, name in enumerate(PHASES)}


def wall_time(results: Iterable[Result]) -> WallTime | None:
    """The wall time of the invocations that wrote these results; None if no task has both a start and an end."""
    ended = [one for one in results if one.timeline.started_s is not None and one.timeline.ended_s is not None]
    if not ended:
        return None
    spans = {id(one): list(_spans(one)) for one in ended}
    invocations: dict[tuple[str, float], list[Result]] = defaultdict(list)
    rows: dict[str, list[Result]] = defaultdict(list)
    for one in ended:
        invocations[one.timeline.clock.boot_id, one.timeline.queued_s].append(one)
        rows[one.task.row].append(one)
    phases: dict[str, float] = defaultdict(float)
    for (_, queued_s), of in invocations.items():
        for name, seconds in _swept([span for one in of for span in spans[id(one)]], queued_s).items():
            phases[name] += seconds
    return WallTime(
        seconds=_rounded(math.fsum(phases.values())),
        measured_s=_rounded(phases["measure"]),
        phases=_in_order(phases),
        jobs=tuple(_job(name, [spans[id(one)] for one in of]) for name, of in rows.items()),
        forked=sum(one.forked is True for one in ended),
    )


def _job(name: str, tasks: Sequence[Sequence[PhaseSpan]]) -> JobTime:
    total: dict[str, float] = defaultdict(float)
    for span in (span for task in tasks for span in task):
        total[span.name] += (span.end_s - span.start_s) / len(tasks)
    return JobTime(name=name, tasks=len(tasks), seconds=_rounded(math.fsum(total.values())), phases=_in_order(total))


def _spans(result: Result) -> Iterator[PhaseSpan]:
    """Phases that fill the whole time of a task."""
    timeline = result.timeline
    assert timeline.started_s is not None and timeline.ended_s is not None
    at_s = min([timeline.started_s, *(span.start_s for span in timeline.phases)])
    for span in timeline.phases or _known(result):
        start_s, end_s = max(span.start_s, at_s), min(span.end_s, timeline.ended_s)
        if start_s > at_s:
            yield PhaseSpan(name="other", start_s=at_s, end_s=min(start_s, timeline.ended_s))
        if end_s > start_s:
            yield PhaseSpan(name=span.name, start_s=start_s, end_s=end_s)
        at_s = max(at_s, end_s)
    if timeline.ended_s > at_s:
        yield PhaseSpan(name="other", start_s=at_s, end_s=timeline.ended_s)


def _known(result: Result) -> Iterator[PhaseSpan]:
    """What a result without phases says of its time: start-up, wait, measured part and hold."""
    timeline = result.timeline
    if timeline.started_s is None or timeline.ready_s is None:
        return
    yield PhaseSpan(name="start-up", start_s=timeline.started_s, end_s=timeline.ready_s)
    stream = next((one for one in result.measurement.streams if one.clock.boot_id == timeline.clock.boot_id), None)
    if stream is None or not stream.slices:
        return
    yield PhaseSpan(name="wait", start_s=timeline.ready_s, end_s=stream.origin_s)
    for phase in ("measure", "hold"):
        if of := [one for one in stream.slices if one.phase == phase]:
            start_s = stream.origin_s + (of[0].start_s if phase == "hold" else 0.0)
            yield PhaseSpan(name=phase, start_s=start_s, end_s=stream.origin_s + of[-1].end_s)


def _swept(spans: Sequence[PhaseSpan], began_s: float) -> dict[str, float]:
    """Seconds of wall time from `began_s` to the end of the last span, by phase; see `WallTime`."""
    changes = sorted([(s.start_s, 1, s.name) for s in spans] + [(s.end_s, -1, s.name) for s in spans])
    seconds: dict[str, float] = defaultdict(float)
    active: Counter[str] = Counter()
    at_s = min(began_s, changes[0][0])
    for time_s, change, name in changes:
        if time_s > at_s:
            seconds[_label(active)] += time_s - at_s
            at_s = time_s
        active[name] += change
    return seconds


def _label(active: Counter[str]) -> str:
    now = [name for name, count in active.items() if count > 0]
    return "measure" if "measure" in now else min(now, key=lambda name: _RANK.get(name, 0), default=BETWEEN)


def _in_order(seconds: Mapping[str, float]) -> dict[str, float]:
    names = sorted(seconds, key=lambda name: _RANK.get(name, len(_RANK)))
    return {name: _rounded(seconds[name]) for name in names if seconds[name] > 0}


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def all_wall(times: Sequence[WallTime | None]) -> WallTime | None:
    """The wall time of several runs; None unless each has one."""
    known = [one for one in times if one]
    if not known or len(known) < len(times):
        return None
    jobs: dict[str, list[JobTime]] = defaultdict(list)
    for job in (job for one in known for job in one.jobs):
        jobs[job.name].append(job)
    return WallTime(
        seconds=_rounded(math.fsum(one.seconds for one in known)),
        measured_s=_rounded(math.fsum(one.measured_s for one in known)),
        phases=_in_order(_added([one.phases for one in known])),
        jobs=tuple(_all_of(name, of) for name, of in jobs.items()),
        forked=sum(one.forked for one in known),
    )


def _all_of(name: str, of: Sequence[JobTime]) -> JobTime:
    tasks = sum(job.tasks for job in of)
    total = _added([{phase: seconds * job.tasks / tasks for phase, seconds in job.phases.items()} for job in of])
    return JobTime(name=name, tasks=tasks, seconds=_rounded(math.fsum(total.values())), phases=_in_order(total))


def _added(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for phase, seconds in (item for one in each for item in one.items()):
        total[phase] += seconds
    return total
