"""The worker: read the task, build the model, warm up, measure, and report to the parent. `launch` starts it."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from benchsuite.costs import MeasuringCost
from benchsuite.errors import BenchError, ModelError
from benchsuite.events import Assignment, End, EventWriter, Raised, Ready, pulse_file, rank_file
from benchsuite.measurement import PrecisionCheck, WarmUp, read_clock
from benchsuite.models import Share, Workload
from benchsuite.worker.build import build_each, module_of, seed_of
from benchsuite.worker.causes import with_cause
from benchsuite.worker.checks import check_band, check_parameters, check_precision, intra_op_threads, other_threads
from benchsuite.worker.compiling import compiled_in
from benchsuite.worker.control import Control, control_fd
from benchsuite.worker.cost import cost_of_measuring
from benchsuite.worker.device import Device, open_device
from benchsuite.worker.epochs import Epochs
from benchsuite.worker.exits import announce
from benchsuite.worker.flops import FlopCount
from benchsuite.worker.input_waits import Waits
from benchsuite.worker.measuring import Measuring
from benchsuite.worker.memory import needed, no_device_memory
from benchsuite.worker.parent_death import die_with_parent
from benchsuite.worker.phases import PhaseClock
from benchsuite.worker.precision import set_precision
from benchsuite.worker.ranks import Ranks, is_of_peers, join, local_rank_of, rank_of
from benchsuite.worker.step import Step
from benchsuite.worker.tracing import OUTSIDE, traced
from benchsuite.worker.warmup import PROBE_S, probe, warm_up
from benchsuite.worker.ways import make_step

# Of an error's text, the result keeps this many characters.
LONGEST_TEXT = 8000


def main(task_file: str) -> int:
    """Run one assignment.

    Returns:
        The exit status: 0, or 1 after a failure, which is written as an event.
    """
    die_with_parent()
    assignment = msgspec.json.decode(Path(task_file).read_bytes(), type=Assignment)
    grouped = assignment.task.ranks > 1
    rank = rank_of(os.environ) if grouped else 0
    if grouped:
        announce(Path(pulse_file(assignment.events)), rank, assignment.task.ranks)
    events = EventWriter(rank_file(assignment.events, rank) if grouped else assignment.events)
    try:
        _run(assignment, events, rank)
    except (Exception, SystemExit) as error:  # the one place where any error of a model becomes a result
        oom = no_device_memory(error)
        kind = "model" if isinstance(error, BenchError) else type(error).__name__
        text = "".join(traceback.format_exception(error))
        if not isinstance(error, SystemExit):  # argparse, for one, has printed the reason: it stays the last line
            print(text, file=sys.stderr, flush=True)
        size = None if assignment.probe else assignment.task.job.params.get("batch_size")
        message = _clean(needed(error, size) if oom else _message(error))
        raised = Raised(
            n=events.count,
            at_s=time.monotonic(),
            kind=kind[:200],
            message=message[:LONGEST_TEXT],
            traceback=_clean(text[-LONGEST_TEXT:]),
            oom=oom,
            of_peers=grouped and is_of_peers(error),
        )
        events.write(raised)
        return 1
    return 0


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the model ended the process by sys.exit({error.code!r})"
    return with_cause(str(error).strip(), os.environ) or type(error).__name__


def run(task_file: str) -> NoReturn:
    """Run one assignment and end this process."""
    _exit(main(task_file), task_file)


def _exit(status: int, task_file: str) -> NoReturn:
    """End this process at once, without the interpreter's shutdown.

    The shutdown takes seconds once torch is loaded, and torch's threads of communication can abort a process in it.
    Only a profiler that started this process writes its file in it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    trace = msgspec.json.decode(Path(task_file).read_bytes(), type=Assignment).task.trace
    if trace and trace.tool in OUTSIDE:
        sys.exit(status)
    os._exit(status)


def _clean(text: str) -> str:
    """The text with lone surrogates replaced, which UTF-8 cannot hold."""
    return text.encode("utf-8", errors="replace").decode()


@dataclass(frozen=True)
class _Setup:
    """What a rank trains, with what, and on what.

    Attributes:
        batches: on the device, each taken once.
        waits: the time that the host waits for batches.
        flops: counts the model's FLOPs; on rank 0 only.
        epochs: of a training by epochs.
    """

    rank: int
    device: Device
    ranks: Ranks | None
    workload: Workload
    step: Step
    batches: Iterator[Any]
    waits: Waits
    flops: FlopCount | None
    epochs: Epochs | None


def _run(assignment: Assignment, events: EventWriter, rank: int) -> None:
    """Set up, warm up, wait for "go", measure and check, and report each of these to the parent."""
    task, control, phases = assignment.task, Control(control_fd(assignment, rank)), PhaseClock()
    setup = _set_up(assignment, rank, phases)
    warmed, precision = _warmed_up(assignment, setup)
    phases.end_warm_up(warmed)
    events.write(_ready(assignment, setup, warmed, precision, phases, events.count))
    device, ranks, step, epochs = setup.device, setup.ranks, setup.step, setup.epochs
    if assignment.probe:
        probe(step, setup.batches, device, events, limit_s=None if ranks else PROBE_S)
        return
    control.wait_for_go()
    if ranks:
        ranks.barrier()  # only rank 0 reads "go"; the others wait for it here
    measuring = Measuring(task, device, epochs.counted if epochs else step, events, control, setup.waits, ranks)
    stopped_by = epochs.run(measuring) if epochs else measuring.run(setup.batches, assignment.hold_limit_s)
    cost = cost_of_measuring(task.cost, measuring, setup.batches) if task.cost else None
    events.write(_end(assignment, setup, measuring, stopped_by, cost, phases))


def _set_up(assignment: Assignment, rank: int, phases: PhaseClock) -> _Setup:
    """Import and build the model, join the other ranks, and open the data.

    Raises:
        ModelError: the task cannot be trained in its way.
    """
    task = assignment.task
    module = module_of(task)
    phases.end("imports")
    device = open_device("cuda" if task.gpus else "cpu", local_rank_of(os.environ) if task.ranks > 1 else 0)
    phases.end("device")
    ranks = _joined(assignment, device) if task.ranks > 1 else None
    phases.end("meet ranks")
    set_precision(task.job.training.precision, device.name)
    workload, *others = build_each(module, task, rank)
    if assignment.member and workload.by_ranks == "lead":
        raise ModelError("one process of the model uses the GPUs of all ranks: it cannot span nodes")
    flops = FlopCount(workload) if rank == 0 and not assignment.probe else None
    phases.end("build")
    step = make_step(workload, task.job.training, device.name, ranks, others)
    phases.end("to device")
    workload = replace(workload, modules=step.modules or workload.modules)
    part, parts = task.job.training.parallel.share(rank, task.ranks)
    share = Share(rank=part, ranks=parts, seed=seed_of(task), data=assignment.data, device=device.name)
    waits = Waits()
    source = waits.counted(workload.batches(share))
    batches = step.feed(flops.seen(source) if flops else source)
    epochs = None
    if task.job.by_epochs and not assignment.probe:
        epochs = Epochs(assignment, step, lambda part: step.feed(waits.counted(workload.batches(part))), share, ranks)
    phases.end("data")
    return _Setup(rank, device, ranks, workload, step, batches, waits, flops, epochs)


def _ready(
    assignment: Assignment,
    setup: _Setup,
    warmed: WarmUp,
    precision: PrecisionCheck | None,
    phases: PhaseClock,
    n: int,
) -> Ready:
    threads, step, epochs = other_threads(os.environ), setup.step, setup.epochs
    return Ready(
        n=n,
        at_s=time.monotonic(),
        clock=read_clock(),
        unit=setup.workload.unit,
        device=setup.device.name,
        data=assignment.data.name if assignment.data else "generated in memory",
        warm_up=warmed,
        software=setup.device.software(),
        precision=precision,
        intra_op_threads=intra_op_threads(),
        group=setup.ranks.facts if setup.ranks else None,
        counts_items=step.counts_items and not (setup.rank and setup.workload.by_ranks),
        models=assignment.task.job.training.array,
        notes=(*step.notes, *step.found, *([threads] if threads else []), *(epochs.notes if epochs else ())),
        phases=phases.taken(),
    )


def _end(
    assignment: Assignment,
    setup: _Setup,
    measuring: Measuring,
    stopped_by: str,
    cost: MeasuringCost | None,
    phases: PhaseClock,
) -> End:
    """Record and check what comes after the measurement.

    Raises:
        ModelError: a check of the trained model fails.
    """
    task, step, rank, ranks, workload = assignment.task, setup.step, setup.rank, setup.ranks, setup.workload
    phases.begin()
    peak_memory = setup.device.peak_memory()  # before traces and checks, which use memory of their own
    own = rank_file(assignment.events, rank) if ranks else assignment.events
    recorded = traced(task.trace, own, step, setup.batches, setup.device, workload) if task.trace else None
    pipeline = step.observe(setup.batches) if step.observe else None
    phases.end("recordings")
    step.check()
    readings = dict(workload.readings()) if workload.readings and not (rank and workload.by_ranks == "lead") else {}
    if ranks:
        ranks.leave()
    check_band(measuring.last_loss, task.job.loss_band)
    phases.end("checks")
    model_flops = setup.flops.counted() if setup.flops else None
    phases.end("count FLOPs")
    return End(
        n=measuring.events.count,
        at_s=time.monotonic(),
        stopped_by=stopped_by,
        peak_memory=peak_memory,
        model_flops=model_flops,
        pipeline=pipeline if rank == 0 else None,
        compiled=compiled_in(task.job.training, step.losses),
        traced=recorded,
        readings=readings,
        phases=phases.taken(),
        cost=cost,
    )


def _joined(assignment: Assignment, device: Device) -> Ranks:
    """Join the other ranks; see `join`."""
    job = assignment.task.job
    return join(device.name, job.timeout_s, pulse_file(assignment.events), job.training.parallel.backend)


def _warmed_up(assignment: Assignment, setup: _Setup) -> tuple[WarmUp, PrecisionCheck | None]:
    """Warm up, and check precision, parameters and products of a model with modules.

    Raises:
        ModelError: see `warm_up` and the checks.
    """
    training, warm_up_s = assignment.task.job.training, 0.0 if assignment.probe else assignment.task.job.warm_up_s
    step, batches, device, ranks, workload = setup.step, setup.batches, setup.device, setup.ranks, setup.workload
    if not workload.modules:
        return warm_up(step, batches, device, warm_up_s, ranks), None
    precision = check_precision(training.precision, device.name, steps_itself=workload.step is not None)
    watch = None
    if training.compile == "none":  # a compiled step calls kernels instead of operators
        from benchsuite.worker.products import Products, check_products

        watch = Products()
    warmed = warm_up(step, batches, device, warm_up_s, ranks, watch)
    precision = check_parameters(precision, workload.modules)
    return warmed, check_products(precision, watch, workload.products) if watch else precision


if __name__ == "__main__":
    run(sys.argv[1])
