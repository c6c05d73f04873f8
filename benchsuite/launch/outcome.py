"""What became of a task: from exit code and events to its status, error and result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchsuite.describe.tasks import Task
from benchsuite.events import Ready
from benchsuite.host.machine import facts_sha256
from benchsuite.isolation import enter
from benchsuite.launch import process
from benchsuite.launch.child import Child, Ended
from benchsuite.launch.worker_events import Seen, Told
from benchsuite.measurement import Clock, read_clock
from benchsuite.records import (
    BatchSearch,
    Code,
    DataUsed,
    Failure,
    Identity,
    Machine,
    Measurement,
    Result,
    Run,
    Slice,
    Status,
    Stream,
    TaskMachine,
    Tenant,
    Timeline,
)
from benchsuite.rundir import Attempt
from benchsuite.telemetry import Telemetry


@dataclass(frozen=True)
class Setting:
    """What all results of a run share."""

    machine: Machine
    facts_sha256: str
    code: Code
    queued_s: float


@dataclass(frozen=True)
class Known:
    """What is known of a task beside its status: all of it only of one that ran to an end that was seen."""

    seen: Seen
    exit_code: int | None = None
    tenant: Tenant | None = None
    telemetry: Telemetry | None = None
    data: DataUsed | None = None
    batch_search: BatchSearch | None = None


@dataclass(frozen=True)
class Exit:
    """How a worker went: exit code (negative for a signal), why it was ended if it was, when that was asked for, which
    ranks of a group were behind then, and whether SIGKILL could not end it."""

    code: int | None
    ended: Ended = "exited"
    asked_s: float | None = None
    behind: str | None = None
    stuck: bool = False


def classify(
    seen: Seen, exit: Exit, timeout_s: float, printed: str, tenant: Tenant | None = None
) -> tuple[Status, Failure | None]:
    """The status, and why it is not ok.

    Args:
        printed: the last lines of the worker's stderr.
        tenant: what the kernel counted: how often it killed in the task's group for want of memory.
    """
    done = f"{len(seen.slices)} slices were finished"
    if exit.stuck:
        done = f"{done}; SIGKILL does not end it: it is stuck in the kernel, and may still use its GPU and processors"
    raised = seen.raised
    if raised and exit.ended == "interrupted" and exit.asked_s is not None and raised.at_s > exit.asked_s:
        raised = None  # what a model makes of SIGTERM is no fault of its own
    if seen.end and exit.code == 0:
        return "ok", None
    if tenant and tenant.oom_kills and exit.ended == "exited":
        limit = f" of {tenant.memory_bytes / 2**30:.2f} GiB" if tenant.memory_bytes else ""
        message = f"it was killed for want of memory in its group{limit}; {done}"
        return "oom", Failure(kind="oom", message=message, traceback=raised.traceback if raised else printed)
    if exit.ended == "timed_out":
        return "timeout", Failure(
            kind="timeout",
            message="; ".join(filter(None, [f"not ended within {timeout_s:g} s", exit.behind, done])),
            traceback=printed,
        )
    if raised:
        status: Status = "oom" if raised.oom else "killed" if raised.kind.startswith("SIG") else "failed"
        return status, Failure(kind=raised.kind, message=raised.message, traceback=raised.traceback)
    if exit.ended == "interrupted":
        return "interrupted", Failure(kind="interrupted", message=f"stopped by the user; {done}")
    return _exited(seen, exit.code, done, printed)


def _exited(seen: Seen, code: int | None, done: str, printed: str) -> tuple[Status, Failure]:
    """Of a worker that went by itself without a word."""
    name = process.signal_name(code) if code is not None else None
    if name:
        return "killed", Failure(kind=name, message=f"the process was killed by {name}; {done}", traceback=printed)
    if code == enter.FAILED and not seen.ready:
        return "failed", Failure(kind="isolation", message=printed.rpartition("\n")[2], traceback=printed)
    if seen.end or code:
        message = f"the process exited with status {code}; {done}"
        return "failed", Failure(kind="exit", message=message, traceback=printed)
    return "failed", Failure(
        kind="silent", message=f"the process exited with 0 before its end; {done}", traceback=printed
    )


def finished(child: Child, exit: Exit, setting: Setting, telemetry: Telemetry) -> Result:
    """The result of a worker that is gone, its share of the machine not yet given back."""
    seen, task = child.seen, child.task
    tenant = child.tenant.described()
    printed = process.last_lines(child.err)
    status, error = classify(seen, exit, task.job.timeout_s, printed, tenant)
    timeline = Timeline(
        clock=read_clock(),
        queued_s=setting.queued_s,
        started_s=child.started_s,
        ready_s=seen.ready.at_s if seen.ready else None,
        go_s=child.go_s,
        ended_s=time.monotonic(),
    )
    found = child.found
    data = found.data.used if found.data else None
    known = Known(seen, exit.code if exit.ended == "exited" else None, tenant, telemetry, data, found.batch_search)
    return _result(task, child.attempt, status, error, setting, timeline, known)


def not_started(task: Task, attempt: int, status: Status, error: Failure, setting: Setting) -> Result:
    """The result of a task that was skipped, or whose preparation failed."""
    return _result(
        task, attempt, status, error, setting, Timeline(clock=read_clock(), queued_s=setting.queued_s), Known(Seen())
    )


def orphaned(task: Task, attempt: int, seen: Seen, run: Run, start: Attempt | None) -> Result:
    """The result of a task whose run was killed before it could write one: interrupted, with the slices it finished.

    Args:
        run: of the invocation that was killed: its machine and code are the task's.
        start: the line that noted its start; without one the clock that its slices count on is not known.
    """
    began_s = start.monotonic_s if start and start.monotonic_s is not None else None
    setting = Setting(run.machine, facts_sha256(run.machine), run.code, began_s or 0.0)
    message = f"the run was cut off; {len(seen.slices)} slices were finished"
    error = Failure(kind="interrupted", message=message)
    clock = Clock(
        host=run.machine.host,
        boot_id=(start.boot_id if start else None) or "unknown",
        wall=start.at if start else run.created,
        monotonic_s=setting.queued_s,
    )
    ready_s = seen.ready.at_s if seen.ready else None
    timeline = Timeline(clock=clock, queued_s=setting.queued_s, started_s=began_s, ready_s=ready_s)
    tenant = Tenant(asked=task.job.tenant, reason="not known: the run was cut off")
    return _result(task, attempt, "interrupted", error, setting, timeline, Known(seen, tenant=tenant))


def _result(
    task: Task,
    attempt: int,
    status: Status,
    error: Failure | None,
    setting: Setting,
    timeline: Timeline,
    known: Known,
) -> Result:
    seen, tenant = known.seen, known.tenant
    identity = Identity(
        host=setting.machine.host,
        profile=task.profile,
        job=task.job.name,
        cell=task.cell,
        row=task.row,
        axes=task.axes,
        repeat=task.repeat,
        devices=tuple(g.visible_index for g in task.gpus),
        copy=task.copy,
        attempt=attempt,
    )
    machine = TaskMachine(
        gpus=task.gpus,
        driver=setting.machine.driver if task.gpus else None,
        facts_sha256=setting.facts_sha256,
        software=seen.ready.software if seen.ready else {},
    )
    return Result(
        status=status,
        error=error,
        identity=identity,
        task=task,
        machine=machine,
        code=setting.code,
        tenant=tenant or Tenant(asked=task.job.tenant, reason="the task was not started"),
        data=known.data or _made(task, seen),
        batch_search=known.batch_search,
        group=seen.ready.group if seen.ready else None,
        timeline=timeline,
        measurement=Measurement(streams=_streams(seen, timeline.clock)),
        telemetry=known.telemetry,
        telemetry_reason=None if known.telemetry else "the task was not watched to its end",
        exit_code=known.exit_code,
    )


def _made(task: Task, seen: Seen) -> DataUsed | None:
    """Input made in memory. Of a data set that a killed run had found nothing is known any more."""
    return DataUsed(name=seen.ready.data, real=False) if seen.ready and task.job.data is None else None


def _streams(seen: Seen, clock: Clock) -> tuple[Stream, ...]:
    """One for each rank that became ready; `clock` is that of the parent."""
    return tuple(_stream(told, told.ready, rank, clock) for rank, told in enumerate(seen.ranks) if told.ready)


def _stream(told: Told, ready: Ready, rank: int, clock: Clock) -> Stream:
    notes = ready.notes
    if told.damaged:
        notes = (*notes, f"{told.damaged} damaged lines in the event file were passed over")
    held = [s.slice for s in told.slices if s.slice.phase == "hold"]
    measured = [s for s in told.slices if s.slice.phase == "measure"]
    return Stream(
        clock=ready.clock or clock,
        device=ready.device,
        rank=rank,
        unit=ready.unit,
        origin_s=told.slices[0].origin_s if told.slices else ready.at_s,
        slices=(*(s.slice for s in measured), *_joined(held)),
        losses=tuple(s.loss for s in measured),
        warm_up=ready.warm_up,
        stopped_by=told.end.stopped_by if told.end else None,
        peak_memory=told.end.peak_memory if told.end else None,
        compiled=told.end.compiled if told.end else None,
        precision=ready.precision,
        notes=notes,
    )


def _joined(held: Sequence[Slice]) -> tuple[Slice, ...]:
    """Hold as one slice: it counts for nothing, and must not make the result large."""
    if not held:
        return ()
    whole = Slice(
        start_s=held[0].start_s,
        end_s=held[-1].end_s,
        steps=sum(s.steps for s in held),
        items=sum(s.items for s in held),
        phase="hold",
    )
    return (whole,)
