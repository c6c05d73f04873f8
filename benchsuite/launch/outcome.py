"""Make the result of a task, with its status and error, from the exit and the events of its worker."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.errors import one_line
from benchsuite.events import Raised
from benchsuite.isolation import enter
from benchsuite.launch import process
from benchsuite.launch.child import Child
from benchsuite.launch.phases import phases_of
from benchsuite.launch.streams import streams_of
from benchsuite.launch.supervise import Exit
from benchsuite.launch.worker_events import TaskEvents, names_signal
from benchsuite.measurement import Clock, Measurement, read_clock
from benchsuite.provisions import DataUsed, Tenant
from benchsuite.records import Code, Failure, Identity, Machine, Result, Run, Status, TaskMachine, Timeline
from benchsuite.rundir import Attempt
from benchsuite.telemetry import Telemetry


@dataclass(frozen=True)
class Setting:
    """What all results of a run have in common.

    Attributes:
        facts_sha256: the hash of the machine's record.
        queued_s: when the run began, on CLOCK_MONOTONIC.
    """

    machine: Machine
    facts_sha256: str
    code: Code
    queued_s: float


def classify(
    seen: TaskEvents, exit: Exit, timeout_s: float, printed: str, tenant: Tenant | None = None
) -> tuple[Status, Failure | None]:
    """The status of a task, and the failure if the status is not ok.

    Args:
        printed: the last lines of the worker's stderr.
        tenant: what the kernel counted: how many processes of the task's group it killed for want of memory.
    """
    done = f"{len(seen.slices)} slices were finished"
    if exit.stuck:
        done = f"{done}; SIGKILL does not end it: it is stuck in the kernel, and may still use its GPU and processors"
    raised = seen.raised
    if raised and exit.ended == "interrupted" and exit.asked_s is not None and raised.at_s > exit.asked_s:
        raised = None  # the model's reaction to SIGTERM is not a failure of the model
    if seen.damaged and exit.ended != "interrupted":
        return "failed", Failure(kind="events", message=f"{seen.damaged}; {done}", traceback=printed)
    if seen.end and exit.code == 0:
        return "ok", None
    if tenant and tenant.oom_kills and exit.ended == "exited":
        limit = f" of {tenant.memory_bytes / 2**30:.2f} GiB" if tenant.memory_bytes else ""
        message = f"it was killed for want of memory in its group{limit}; {done}"
        return "oom", Failure(kind="oom", message=message, traceback=raised.traceback if raised else printed)
    if exit.ended == "timed_out":
        before = raised is not None and exit.asked_s is not None and raised.at_s <= exit.asked_s
        why = raised.message if raised and before else exit.behind
        message = "; ".join(filter(None, [f"not ended within {timeout_s:g} s", why, done]))
        return "timeout", Failure(kind="timeout", message=message, traceback=printed)
    if raised:
        status: Status = "oom" if raised.oom else "killed" if names_signal(raised) else "failed"
        return status, Failure(
            kind=raised.kind, message=_with_last_line(raised, printed), traceback=raised.traceback or printed
        )
    if exit.ended == "interrupted":
        return "interrupted", Failure(kind="interrupted", message=f"stopped by the user; {done}")
    return _exited(seen, exit.code, done, printed)


def _exited(seen: TaskEvents, code: int | None, done: str, printed: str) -> tuple[Status, Failure]:
    """The failure of a worker that exited by itself and reported no error."""
    if code == enter.FAILED and not seen.ready:
        return "failed", Failure(kind="isolation", message=printed.rpartition("\n")[2], traceback=printed)
    of = f"rank {seen.unfinished} of {len(seen.ranks)}" if seen.unfinished is not None and not code else "the process"
    name = process.signal_of(code) if code is not None else None
    last = "" if code is not None and code < 0 else _last_line(printed)
    how = "exited with status 0" if seen.end and not code else process.exit_in_words(code)
    message = f"{of} {how}; {done}{last}"
    if name:
        return "killed", Failure(kind=name, message=message, traceback=printed)
    return "failed", Failure(kind="exit" if seen.end or code else "silent", message=message, traceback=printed)


def _with_last_line(raised: Raised, printed: str) -> str:
    """The message of an error. A model that calls sys.exit, as argparse does, has said why on stderr."""
    return raised.message + (_last_line(printed) if raised.kind == "SystemExit" else "")


def _last_line(printed: str) -> str:
    """The last line that a worker printed, as the end of a message; empty if it printed nothing."""
    line = one_line(printed.rpartition("\n")[2])
    return f"; last line on stderr: {line[:200]}" if line else ""


def judged(child: Child) -> tuple[Status, Failure | None]:
    """The status and failure of a worker that is finished; its tenant is not yet closed."""
    assert child.exit
    printed = process.last_lines(child.err)
    if child.contained and not child.seen.ready and child.exit.ended == "exited":
        problem = child.contained.problem(child.exit.code, printed)
        if problem:
            return "failed", problem
    return classify(child.seen, child.exit, child.task.job.timeout_s, printed, child.tenant.described())


def finished(child: Child, setting: Setting, telemetry: Telemetry) -> Result:
    """The result of a worker that is finished; its tenant is not yet closed."""
    assert child.exit
    seen, data = child.seen, child.wave.data
    ended_s, clock = time.monotonic(), read_clock()  # the clock's anchor lies after the end
    status, error = judged(child)
    sharing = child.wave.sharing.used(child.task) if child.wave.sharing else None
    if status == "ok" and sharing and sharing.in_use is False:
        status, error = "failed", Failure(kind=sharing.way, message=f"sharing {sharing.way}: {sharing.seen}")
    result = result_of(child.task, child.attempt, setting, status, error, seen, clock)
    tenant, contained = child.tenant.described(), child.contained
    return msgspec.structs.replace(
        result,
        tenant=contained.fenced(tenant) if contained else tenant,
        container=contained.used if contained else None,
        data=data.used if data else result.data,
        batch_search=child.wave.batch_search,
        sharing=sharing,
        timeline=Timeline(
            clock=clock,
            queued_s=setting.queued_s,
            started_s=child.started_s,
            ready_s=seen.ready.at_s if seen.ready else None,
            go_s=child.go_s,
            ended_s=ended_s,
            phases=phases_of(child, ended_s),
        ),
        telemetry=telemetry,
        telemetry_reason=None,
        exit_code=child.exit.code if child.exit.ended == "exited" else None,
        forked=child.forked,
    )


def not_started(task: Task, attempt: int, setting: Setting, status: Status, error: Failure) -> Result:
    """The result of a task that was skipped, or whose wave could not start."""
    return result_of(task, attempt, setting, status, error, TaskEvents(), read_clock())


def orphaned(task: Task, attempt: int, seen: TaskEvents, run: Run, start: Attempt | None) -> Result:
    """The result of a task whose run was killed before it could write one: interrupted, with the slices it finished.

    Args:
        run: the record of the killed invocation: its machine and code are the task's.
        start: the line that noted the task's start; without it the clock of its slices is unknown.
    """
    began_s = start.monotonic_s if start and start.monotonic_s is not None else None
    setting = Setting(run.machine, run.machine.sha256, run.code, began_s or 0.0)
    message = f"the run was cut off; {len(seen.slices)} slices were finished"
    error = Failure(kind="interrupted", message=message)
    clock = Clock(
        host=run.machine.host,
        boot_id=(start.boot_id if start else None) or "unknown",
        wall=start.at if start else run.created,
        monotonic_s=setting.queued_s,
    )
    ready_s = seen.ready.at_s if seen.ready else None
    return msgspec.structs.replace(
        result_of(task, attempt, setting, "interrupted", error, seen, clock),
        tenant=Tenant(asked=task.job.tenant, reason="not known: the run was cut off"),
        timeline=Timeline(clock=clock, queued_s=setting.queued_s, started_s=began_s, ready_s=ready_s),
    )


def result_of(
    task: Task,
    attempt: int,
    setting: Setting,
    status: Status,
    error: Failure | None,
    seen: TaskEvents,
    clock: Clock,
) -> Result:
    """A result that holds what is known of any task; callers add what only the parent of a started worker knows.

    Args:
        attempt: the number of this attempt at the task, 1 for the first.
        error: why the status is not ok.
        seen: the events of its processes; empty if none was started.
        clock: the clock of the parent, which is also that of a stream that names none.
    """
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
        cpu=setting.machine.cpu,
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
        tenant=Tenant(asked=task.job.tenant, reason="the task was not started"),
        data=_made(task, seen),
        group=seen.ready.group if seen.ready else None,
        timeline=Timeline(clock=clock, queued_s=setting.queued_s),
        measurement=Measurement(streams=streams_of(seen, clock)),
        telemetry_reason="the task was not watched to its end",
    )


def _made(task: Task, seen: TaskEvents) -> DataUsed | None:
    """Input that the worker made in memory; None if the task reads a data set."""
    return DataUsed(name=seen.ready.data, real=False) if seen.ready and task.job.data is None else None
