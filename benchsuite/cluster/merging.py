"""The one result of a task over nodes, from the events of its ranks and the reports of its agents."""

from __future__ import annotations

import time

import msgspec

from benchsuite.cluster.spanned import Spanned
from benchsuite.launch import process
from benchsuite.launch.outcome import Setting, classify, result_of
from benchsuite.launch.streams import streams_of
from benchsuite.measurement import Measurement, read_clock
from benchsuite.records import Failure, NodePart, Result, Status, Timeline
from benchsuite.telemetry import Telemetry


def merged(spanned: Spanned, setting: Setting) -> Result:
    """The result of a task over nodes that is finished."""
    assert spanned.exit
    seen, task = spanned.seen, spanned.task
    ended_s, clock = time.monotonic(), read_clock()
    status, error = _judged(spanned)
    parts = [spanned.parts[place] for place in range(len(spanned.colleagues))]
    result = result_of(task, spanned.attempt, setting, status, error, seen, clock)
    first = spanned.colleagues[0].hello.machine
    telemetry = _telemetry(spanned, parts)
    return msgspec.structs.replace(
        result,
        machine=msgspec.structs.replace(
            result.machine,
            cpu=first.cpu,
            driver=first.driver if task.gpus else None,
            facts_sha256=parts[0].facts_sha256,
        ),
        tenant=parts[0].tenant,
        data=parts[0].data or result.data,
        measurement=Measurement(streams=streams_of(seen, clock)),
        timeline=Timeline(
            clock=clock,
            queued_s=setting.queued_s,
            started_s=spanned.started_s,
            ready_s=seen.ready.at_s - parts[0].offset_s if seen.ready else None,
            go_s=spanned.go_s,
            ended_s=ended_s,
        ),
        telemetry=telemetry,
        telemetry_reason=None if telemetry else "no node has reported its samples",
        parts=tuple(_without_devices(part, spanned, place) for place, part in enumerate(parts)),
        exit_code=spanned.exit.code if spanned.exit.ended == "exited" else None,
    )


def _judged(spanned: Spanned) -> tuple[Status, Failure | None]:
    """The status and failure. Words of a rank name its node."""
    assert spanned.exit
    if spanned.problem:
        return spanned.problem
    seen, task = spanned.seen, spanned.task
    killed = next((part for part in spanned.parts.values() if part.tenant.oom_kills), None)
    printed = process.last_lines(spanned.err)
    status, error = classify(seen, spanned.exit, task.job.timeout_s, printed, killed.tenant if killed else None)
    if error is None:
        return status, None
    if killed and error.kind == "oom":
        return status, msgspec.structs.replace(error, message=f"{killed.node}: {error.message}")
    return status, msgspec.structs.replace(error, message=_with_node(error.message, spanned))


def _with_node(message: str, spanned: Spanned) -> str:
    """ "rank 1 of 2 (m2): boom" instead of "rank 1 of 2: boom"."""
    first = 0
    for share in spanned.task.nodes:
        for rank in range(first, first + share.ranks):
            words = f"rank {rank} of {spanned.task.ranks}"
            if words in message:
                return message.replace(words, f"{words} ({share.node})", 1)
        first += share.ranks
    return message


def _telemetry(spanned: Spanned, parts: list[NodePart]) -> Telemetry | None:
    """The samples of all GPUs. The window and the processes are those of the first node that reported.

    The window is on this host's clock.
    """
    known = [(place, part.telemetry) for place, part in enumerate(parts) if part.telemetry]
    if not known:
        return None
    place, first = known[0]
    return msgspec.structs.replace(
        first,
        start_s=first.start_s - parts[place].offset_s,
        end_s=first.end_s - parts[place].offset_s,
        devices=tuple(device for _, one in known for device in one.devices),
        series=_series(spanned, place),
        notes=tuple(f"{parts[at].node}: {note}" for at, one in known for note in one.notes),
    )


def _series(spanned: Spanned, place: int) -> str | None:
    path = spanned.series(place)
    return f"telemetry/{path.name}" if path.is_file() else None


def _without_devices(part: NodePart, spanned: Spanned, place: int) -> NodePart:
    """The part without its GPUs, which `telemetry` of the result has."""
    if part.telemetry is None:
        return part
    return msgspec.structs.replace(
        part, telemetry=msgspec.structs.replace(part.telemetry, devices=(), series=_series(spanned, place))
    )
