"""Each result against its planned task, the run's machine, its clocks and slices, and the other results."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.findings import Finding, note
from benchsuite.measurement import Slice
from benchsuite.records import Result, Run
from benchsuite.report.format import count
from benchsuite.report.measure.clocks import streams_on_one_clock
from benchsuite.report.verify import all_or_bad, events, hashed, some
from benchsuite.report.verify.evidence import Evidence, Kept

# Instants come from two processes, in microseconds.
TOLERANCE_S = 0.001
# Between two slices lies only the writing of the first. A slice lasts half a second, so a removed one leaves a gap.
LARGEST_GAP_S = 0.5
# The reasons to stop after which at least min_time_s has passed.
_TIMED = ("count", "min_time", "max_time")
# The wall clock and the monotonic clock of one boot drift apart by less, unless the wall clock is set.
CLOCK_STEP_S = 10.0


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Findings about every result, also of interrupted attempts."""
    results = {file.name: result for file, result in evidence.kept}
    total = count(len(results), "result")
    if evidence.tasks is not None:
        planned = {task.id: task for task in evidence.tasks}
        troubles = _each(results, lambda result: _not_as_planned(result, planned, evidence.run))
        yield all_or_bad("results", troubles, f"{total}, each of a planned task, as planned")
    if evidence.run:
        yield _machine(evidence.path, evidence.run, results)
    yield _clocks(evidence.run, results)
    disorder = [*_each(results, _timeline), *_overtaking(evidence.kept)]
    yield all_or_bad("timeline", disorder, "queued, started, ready, go, ended, wave after wave")
    slices = sum(len(s.slices) for r in results.values() for s in r.measurement.streams)
    odd = [*_each(results, _slices), *_twins(evidence.kept)]
    yield all_or_bad("slices", odd, f"{count(slices, 'slice')}: without gap, inside their task's time")
    yield from events.findings(evidence)


def _each(results: Mapping[str, Result], ask: Callable[[Result], Iterable[str]]) -> Iterator[str]:
    for name, result in results.items():
        yield from (f"{name}: {trouble}" for trouble in ask(result))


def _not_as_planned(result: Result, planned: Mapping[str, Task], run: Run | None) -> Iterator[str]:
    task, identity = planned.get(result.task.id), result.identity
    if task is None:
        yield f"its task {result.task.id} is not in plan.json"
        return
    if differing := list(_differences(task, _as_asked(result))):
        yield f"its task differs from the planned one in {', '.join(differing)}"
    own = identity.profile, identity.job, identity.cell, identity.row, identity.axes, identity.repeat, identity.copy
    devices = tuple(gpu.visible_index for gpu in task.gpus)
    planned_as = task.profile, task.job.name, task.cell, task.row, task.axes, task.repeat, task.copy
    if (own, identity.devices) != (planned_as, devices):
        yield "its identity is not that of its task"
    if result.machine.gpus != task.gpus:
        yield "its GPUs are not the planned ones"
    hosts = {machine.host for machine in run.machines} if run else set()
    own_hosts = {identity.host, *(stream.clock.host for stream in result.measurement.streams)}
    if run and (foreign := sorted(own_hosts - hosts)):
        yield f"its host is {some(foreign)}, the run names {some(sorted(hosts))}"


def _as_asked(result: Result) -> Task:
    """The task with `auto` in place of the batch size that the search found."""
    if result.batch_search is None or result.task.job.params.get("batch_size") != result.batch_search.found:
        return result.task
    job = result.task.job
    asked = msgspec.structs.replace(job, params={**job.params, "batch_size": "auto"})
    return msgspec.structs.replace(result.task, job=asked)


def _differences(planned: Task, found: Task) -> Iterator[str]:
    for prefix, one, other in (("job.", planned.job, found.job), ("", planned, found)):
        fields = (name for name in one.__struct_fields__ if name != "job")
        yield from (f"{prefix}{name}" for name in fields if getattr(one, name) != getattr(other, name))


def _machine(path: Path, run: Run, results: Mapping[str, Result]) -> Finding:
    """Results after a resumption may name other machine facts: another boot, a new driver."""
    facts = (*(one.sha256 for one in run.machines[1:]), *hashed.facts(run.machine, path / "run.json"))
    drivers = {one.sha256: one.driver for one in run.machines}
    other = {name: result for name, result in results.items() if result.machine.facts_sha256 not in facts}
    later = {name for name, result in other.items() if run.resumed and result.timeline.clock.wall >= run.resumed[0][0]}
    troubles = [f"{name}: its machine facts are not those in run.json" for name in other if name not in later]
    for name, result in results.items():
        of_run = drivers.get(result.machine.facts_sha256, run.machine.driver)
        if result.task.gpus and name not in later and result.machine.driver != of_run:
            troubles.append(f"{name}: driver {result.machine.driver}, the run has {of_run}")
    if later and not troubles:
        text = f"{count(len(later), 'result')} after a resumption with other machine facts than run.json"
        return note("machine", f"{text}: another boot, driver or package", None, sorted(later))
    return all_or_bad("machine", troubles, f"all results name the machine of run.json, facts {facts[-1][:12]}")


def _clocks(run: Run | None, results: Mapping[str, Result]) -> Finding:
    """One boot, and at most one more for each resumption; within a boot the two clocks keep their offset."""
    boots: dict[str, dict[str, float]] = defaultdict(dict)
    troubles = []
    for name, result in results.items():
        for clock in {result.timeline.clock, *(stream.clock for stream in result.measurement.streams)}:
            try:
                wall_s = datetime.fromisoformat(clock.wall).timestamp()
            except ValueError:
                troubles.append(f"{name}: its wall clock '{clock.wall}' is not a time")
                continue
            boots[clock.boot_id][name] = wall_s - clock.monotonic_s
    known = {machine.boot_id for machine in run.machines} if run else set()
    allowed = len(run.resumed) if run else len(boots)
    if len(set(boots) - known) > allowed:
        troubles.append(f"results of {count(len(boots), 'boot')}, but the run was resumed {count(allowed, 'time')}")
    stepped = []
    for offsets in boots.values():
        usual = sorted(offsets.values())[len(offsets) // 2]
        stepped += [name for name, offset in offsets.items() if abs(offset - usual) > CLOCK_STEP_S]
    if troubles or not stepped:
        fine = f"{count(len(boots), 'boot')}, the offset between both clocks is constant"
        return all_or_bad("clocks", troubles, fine)
    text = f"the wall clock was set during the run, or {count(len(stepped), 'result')} come from another run"
    return note("clocks", text, None, stepped)


def _timeline(result: Result) -> Iterator[str]:
    timeline = result.timeline
    instants = {name: getattr(timeline, f"{name}_s") for name in ("queued", "started", "ready", "go", "ended")}
    known = [(name, at_s) for name, at_s in instants.items() if at_s is not None]
    for (before, before_s), (after, after_s) in itertools.pairwise(known):
        if after_s < before_s - TOLERANCE_S:
            yield f"{after} {before_s - after_s:.3f} s before {before}"
    if timeline.ended_s is not None and timeline.clock.monotonic_s < timeline.ended_s - TOLERANCE_S:
        yield "it was written before its task ended"
    if (result.status == "ok") != (result.error is None):
        yield f"status {result.status} {'without' if result.error is None else 'with'} an error"


def _overtaking(kept: Iterable[Kept]) -> Iterator[str]:
    """Tasks that start while a task of another wave still runs."""
    by_boot: dict[str, list[tuple[float, float, str, str]]] = defaultdict(list)
    for file, result in kept:
        task, timeline = result.task, result.timeline
        if timeline.started_s is not None and timeline.ended_s is not None:
            boot_id = timeline.clock.boot_id
            by_boot[boot_id].append((timeline.started_s, timeline.ended_s, file.name, task.wave))
    for spans in by_boot.values():
        last = None
        for span in sorted(spans):
            if last and span[0] < last[1] - TOLERANCE_S and span[3] != last[3]:
                yield f"{span[2]}: it starts before {last[2]}, of another wave, ends"
            last = max(last or span, span, key=lambda one: one[1])


def _slices(result: Result) -> Iterator[str]:
    for stream in streams_on_one_clock(result):
        rank = f"rank {stream.rank}, " if len(result.measurement.streams) > 1 else ""
        yield from (f"{rank}{trouble}" for trouble in _series(stream.slices))
        measured = [s for s in stream.slices if s.phase == "measure"]
        if len(stream.losses) != len(measured):
            yield f"{rank}{count(len(measured), 'measured slice')}, but {len(stream.losses)} losses"
        # The clock of rank 0 decides when a group stops. Another rank may have begun later.
        least_s = result.task.job.min_time_s if stream.stopped_by in _TIMED and not stream.rank else 0.0
        if result.status == "ok" and (not measured or measured[-1].end_s < least_s - TOLERANCE_S):
            yield f"{rank}its status is ok, but it is measured for less than min_time_s {least_s:g}"
        ended_s, ready_s = result.timeline.ended_s, result.timeline.ready_s
        if ended_s is not None and stream.slices and stream.origin_s + stream.slices[-1].end_s > ended_s + TOLERANCE_S:
            yield f"{rank}slices after its end"
        if ready_s is not None and len(result.measurement.streams) == 1 and stream.origin_s < ready_s - TOLERANCE_S:
            yield f"{rank}slices before it is ready"


def _series(slices: tuple[Slice, ...]) -> Iterator[str]:
    end_s = 0.0
    for number, one in enumerate(slices, 1):
        if one.end_s <= one.start_s or one.steps < 1 or one.items < 0:
            yield f"slice {number} has no length, no step, or a negative number of items"
        if one.start_s < end_s - TOLERANCE_S:
            yield f"slice {number} begins before the one before it ends"
        elif one.phase == "measure" and one.start_s - end_s >= LARGEST_GAP_S:
            yield f"{one.start_s - end_s:.2f} s are missing before slice {number}"
        end_s = one.end_s


def _twins(kept: Iterable[Kept]) -> Iterator[str]:
    """Streams with the same slices to the microsecond, which two tasks never have."""
    seen: dict[tuple[Slice, ...], Path] = {}
    for file, result in kept:
        for stream in result.measurement.streams:
            if stream.slices and (first := seen.setdefault(stream.slices, file)) != file:
                yield f"{file.name}: the same slices as {first.name}"
