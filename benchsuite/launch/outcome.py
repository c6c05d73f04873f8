"""What became of a task: from exit code and events to its status, error and result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal

from benchsuite.launch import confine, process
from benchsuite.launch.child import Child, Seen
from benchsuite.records import (
    Anchor,
    Code,
    DataUsed,
    Failure,
    Identity,
    Machine,
    Measurement,
    Result,
    Slice,
    Status,
    Stream,
    TaskMachine,
    Tenant,
    Timeline,
)
from benchsuite.tasks import Task
from benchsuite.telemetry import Telemetry

Ended = Literal["exited", "timed_out", "interrupted"]


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


def classify(
    seen: Seen, exit_code: int | None, ended: Ended, timeout_s: float, printed: str, oom_kills: int = 0
) -> tuple[Status, Failure | None]:
    """The status, and why it is not ok.

    Args:
        exit_code: of the worker, negative for a signal; None where it could not be learnt.
        printed: the last lines of its stderr.
        oom_kills: how many processes of its group the kernel killed for want of memory.
    """
    done = f"{len(seen.slices)} slices were finished"
    if ended == "timed_out":
        return "timeout", Failure(
            kind="timeout", message=f"not ended within {timeout_s:g} s; {done}", traceback=printed
        )
    if seen.raised:
        kind, message = seen.raised.kind, seen.raised.message
        status: Status = "oom" if seen.raised.oom else "failed"
        return status, Failure(kind=kind, message=message, traceback=seen.raised.traceback)
    if seen.end and exit_code == 0:
        return "ok", None
    if oom_kills and ended == "exited":
        message = f"{oom_kills} of its processes were killed at the memory limit of its group; {done}"
        return "oom", Failure(kind="oom", message=message, traceback=printed)
    if ended == "interrupted":
        return "interrupted", Failure(kind="interrupted", message=f"stopped by the user; {done}")
    name = process.signal_name(exit_code) if exit_code is not None else None
    if name:
        return "killed", Failure(kind=name, message=f"the process was killed by {name}; {done}", traceback=printed)
    if exit_code == confine.FAILED and not seen.ready:
        return "failed", Failure(kind="isolation", message=printed.rpartition("\n")[2], traceback=printed)
    if seen.end or exit_code:
        message = f"the process exited with status {exit_code}; {done}"
        return "failed", Failure(kind="exit", message=message, traceback=printed)
    return "failed", Failure(
        kind="silent", message=f"the process exited with 0 before its end; {done}", traceback=printed
    )


def finished(child: Child, exit_code: int | None, ended: Ended, setting: Setting, telemetry: Telemetry) -> Result:
    """The result of a worker that is gone, its share of the machine not yet given back."""
    seen, task = child.seen, child.task
    tenant = child.tenant.described()
    printed = process.last_lines(child.err)
    status, error = classify(seen, exit_code, ended, task.job.timeout_s, printed, tenant.oom_kills or 0)
    timeline = Timeline(
        queued_s=setting.queued_s,
        started_s=child.started_s,
        ready_s=seen.ready.at_s if seen.ready else None,
        go_s=child.go_s,
        ended_s=time.monotonic(),
    )
    known = Known(seen, exit_code if ended == "exited" else None, tenant, telemetry)
    return _result(task, child.attempt, status, error, setting, timeline, known)


def not_started(task: Task, attempt: int, status: Status, error: Failure, setting: Setting) -> Result:
    """The result of a task that was skipped, or whose preparation failed."""
    return _result(task, attempt, status, error, setting, Timeline(queued_s=setting.queued_s), Known(Seen()))


def orphaned(task: Task, attempt: int, seen: Seen, setting: Setting) -> Result:
    """The result of a task whose run was killed before it could write one: interrupted, with the slices it finished."""
    message = f"the run was cut off; {len(seen.slices)} slices were finished"
    error = Failure(kind="interrupted", message=message)
    timeline = Timeline(queued_s=setting.queued_s, ready_s=seen.ready.at_s if seen.ready else None)
    return _result(task, attempt, "interrupted", error, setting, timeline, Known(seen))


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
        data=DataUsed(name=seen.ready.data, real=False) if seen.ready else None,
        timeline=timeline,
        anchor=anchor(setting.machine.boot_id),
        measurement=Measurement(streams=_streams(seen)),
        telemetry=known.telemetry,
        telemetry_reason=None if known.telemetry else "the task was not watched to its end",
        exit_code=known.exit_code,
    )


def _streams(seen: Seen) -> tuple[Stream, ...]:
    if not seen.ready:
        return ()
    notes = seen.ready.notes
    if seen.damaged:
        notes = (*notes, f"{seen.damaged} damaged lines in the event file were passed over")
    held = [s.slice for s in seen.slices if s.slice.phase == "hold"]
    measured = [s for s in seen.slices if s.slice.phase == "measure"]
    stream = Stream(
        device=seen.ready.device,
        unit=seen.ready.unit,
        origin_s=seen.slices[0].origin_s if seen.slices else seen.ready.at_s,
        slices=(*(s.slice for s in measured), *_joined(held)),
        losses=tuple(s.loss for s in measured),
        warm_up=seen.ready.warm_up,
        stopped_by=seen.end.stopped_by if seen.end else None,
        peak_memory=seen.end.peak_memory if seen.end else None,
        compiled=seen.end.compiled if seen.end else None,
        precision=seen.ready.precision,
        notes=notes,
    )
    return (stream,)


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


def anchor(boot_id: str) -> Anchor:
    """This instant on both clocks."""
    return Anchor(boot_id=boot_id, wall=datetime.now(timezone.utc).isoformat(), monotonic_s=time.monotonic())
