"""The worker: read the task, build the model, warm up, measure, and report to the parent. `launch` starts it."""

from __future__ import annotations

import os
import select
import sys
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.errors import BenchError, ModelError
from benchsuite.events import Assignment, End, EventWriter, Raised, Ready, SliceClosed, pulse_file, rank_file
from benchsuite.measurement import Phase, Slice, read_clock
from benchsuite.models import Share
from benchsuite.worker.build import build, module_of, seed_of
from benchsuite.worker.causes import with_cause
from benchsuite.worker.checks import check_band, check_parameters, check_precision, intra_op_threads, other_threads
from benchsuite.worker.compiling import compiled_in
from benchsuite.worker.device import Device, open_device
from benchsuite.worker.exits import announce
from benchsuite.worker.flops import FlopCount
from benchsuite.worker.input_waits import Waits
from benchsuite.worker.loop import timed_loop
from benchsuite.worker.memory import needed, no_device_memory
from benchsuite.worker.parent_death import die_with_parent
from benchsuite.worker.precision import set_precision
from benchsuite.worker.rank_slices import AgreedRule
from benchsuite.worker.ranks import Ranks, is_of_peers, join, rank_of
from benchsuite.worker.step import Step
from benchsuite.worker.timing import Stop, StoppedBy, TimedSlice
from benchsuite.worker.tracing import traced
from benchsuite.worker.warmup import PROBE_S, loss_of, probe, warm_up
from benchsuite.worker.ways import make_step

# An event may hold no longer integer.
MOST_IN_A_SLICE = (1 << 63) - 1
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


def _exit(status: int) -> None:
    """Ranks call os._exit: communication threads of torch can abort a process during normal interpreter shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    if "RANK" in os.environ:
        os._exit(status)
    sys.exit(status)


def _clean(text: str) -> str:
    """The text with lone surrogates replaced, which UTF-8 cannot hold."""
    return text.encode("utf-8", errors="replace").decode()


def _run(assignment: Assignment, events: EventWriter, rank: int) -> None:
    task, control = assignment.task, Control(_control_fd(assignment, rank))
    module = module_of(task)
    device = open_device("cuda" if task.gpus else "cpu", rank)
    ranks = join(device.name, task.job.timeout_s, pulse_file(assignment.events)) if task.ranks > 1 else None
    training = task.job.training
    set_precision(training.precision, device.name)
    workload = build(module, task, rank)
    flops = FlopCount(workload) if rank == 0 and not assignment.probe else None
    step = make_step(workload, training, device.name, ranks)
    precision = None
    if workload.modules:
        precision = check_precision(training.precision, device.name, steps_itself=workload.step is not None)
    share = Share(rank=rank, ranks=task.ranks, seed=seed_of(task), data=assignment.data, device=device.name)
    waits = Waits()
    source = waits.counted(workload.batches(share))
    batches = step.feed(flops.seen(source) if flops else source)
    warm_up_s = 0.0 if assignment.probe else task.job.warm_up_s
    watch = None
    if precision and training.compile == "none":  # a compiled step calls kernels instead of operators
        from benchsuite.worker.products import Products, check_products

        watch = Products()
    warmed = warm_up(step, batches, device, warm_up_s, ranks, watch)
    if precision:
        precision = check_parameters(precision, workload.modules)
        precision = check_products(precision, watch) if watch else precision
    threads = other_threads(os.environ)
    ready = Ready(
        n=events.count,
        at_s=time.monotonic(),
        clock=read_clock(),
        unit=workload.unit,
        device=device.name,
        data=assignment.data.name if assignment.data else "generated in memory",
        warm_up=warmed,
        software=device.software(),
        precision=precision,
        intra_op_threads=intra_op_threads(),
        group=ranks.facts if ranks else None,
        notes=(*step.notes, *([threads] if threads else [])),
    )
    events.write(ready)
    if assignment.probe:
        probe(step, batches, device, events, limit_s=None if ranks else PROBE_S)
        return
    control.wait_for_go()
    if ranks:
        ranks.barrier()  # only rank 0 reads "go"; the others wait for it here
    measuring = Measuring(task, device, step, events, control, waits, ranks)
    stopped_by = measuring.run(batches, assignment.hold_limit_s)
    peak_memory = device.peak_memory()  # before the checks, which use memory of their own
    recorded = None
    if task.trace:
        own = rank_file(assignment.events, rank) if ranks else assignment.events
        recorded = traced(task.trace, own, step, batches, device, workload)
    step.check()
    if ranks:
        ranks.leave()
    check_band(measuring.last_loss, task.job.loss_band)
    end = End(
        n=events.count,
        at_s=time.monotonic(),
        stopped_by=stopped_by,
        peak_memory=peak_memory,
        model_flops=flops.counted() if flops else None,
        compiled=compiled_in(training, step.losses),
        traced=recorded,
    )
    events.write(end)


def _control_fd(assignment: Assignment, rank: int) -> int | None:
    """The file descriptor for the parent's words: an inherited pipe or, for rank 0 of a group, a FIFO."""
    if assignment.control_file is None:
        return assignment.control_fd
    if rank:
        return None
    fd = os.open(assignment.control_file, os.O_RDONLY | os.O_NONBLOCK)  # returns even if the parent has ended
    os.set_blocking(fd, True)
    return fd


class Measuring:
    """The measured part, then hold.

    During hold a task trains on, unmeasured, so that its neighbours are measured under full load.
    """

    def __init__(
        self,
        task: Task,
        device: Device,
        step: Step,
        events: EventWriter,
        control: Control,
        waits: Waits,
        ranks: Ranks | None = None,
    ) -> None:
        self.job = task.job
        self.device = device
        self.step = step
        self.events = events
        self.control = control
        self.waits = waits
        self.ranks = ranks
        self.origin_ns = 0
        self.phase: Phase = "measure"
        self.last_loss: float | None = None

    def run(self, batches: Iterator[Any], hold_limit_s: float) -> StoppedBy:
        """Train and report each slice to the parent as it closes.

        Args:
            hold_limit_s: the longest time to hold; 0 for a task without neighbours.

        Returns:
            The rule that ended the measured part.

        Raises:
            ModelError: the data of this rank ended before those of the others.
        """
        job = self.job
        self.device.reset_peaks()
        self.waits.taken_s()  # those of the warm-up
        self.origin_ns = time.monotonic_ns()
        stopped_by = self._loop(batches, job.max_count, job.max_steps, job.min_time_s, job.max_time_s)
        if self.ranks and stopped_by == "data":
            raise ModelError(f"the data of rank {self.ranks.rank} ended before those of the others")
        if hold_limit_s > 0 and stopped_by not in ("data", "stop"):
            self.phase = "hold"
            self._loop(batches, None, None, hold_limit_s, hold_limit_s)
        return stopped_by

    def _loop(
        self, batches: Iterator[Any], items: int | None, steps: int | None, min_time_s: float, max_time_s: float
    ) -> StoppedBy:
        stop = Stop(items, steps, int(min_time_s * 1e9), int(max_time_s * 1e9))
        run, sync, ranks, heard = self.step.run, self.device.sync, self.ranks, self.control.stop_said
        if ranks is None:
            return timed_loop(run, batches, stop, self._close, sync=sync, ended=heard)
        rule_of = partial(AgreedRule, ranks, heard)
        return timed_loop(run, batches, stop, self._close, sync=sync, rule_of=rule_of, ended=lambda: ranks.said_stop)

    def _close(self, timed: TimedSlice) -> None:
        start_s, end_s = ((ns - self.origin_ns) / 1e9 for ns in (timed.start_ns, timed.end_ns))
        one = Slice(
            start_s=round(start_s, 6), end_s=round(end_s, 6), steps=timed.steps, items=timed.items, phase=self.phase
        )
        if timed.items > MOST_IN_A_SLICE:
            raise ModelError(f"{timed.steps} steps took {timed.items:,} items, too many to record; use a larger unit")
        loss = loss_of(self.step)
        if self.phase == "measure":
            self.last_loss = loss
        self.events.write(
            SliceClosed(
                n=self.events.count,
                origin_s=self.origin_ns / 1e9,
                slice=one,
                loss=loss,
                input_s=self.waits.taken_s(),
                last=timed.last and self.phase == "measure",
            )
        )


class Control:
    """Reads "go" and "stop" from the parent. The worker exits if the parent has closed the pipe."""

    def __init__(self, fd: int | None) -> None:
        self.fd = fd
        self._heard = b""

    def wait_for_go(self) -> None:
        """Block until the parent says "go"; return at once if there is no parent."""
        while self.fd is not None and b"go\n" not in self._heard:
            self._listen()

    def stop_said(self) -> bool:
        """Has the parent said "stop"? Never blocks."""
        if self.fd is None:
            return False
        while select.select([self.fd], [], [], 0)[0]:
            self._listen()
        return b"stop\n" in self._heard

    def _listen(self) -> None:
        assert self.fd is not None
        said = os.read(self.fd, 64)
        if not said:
            raise SystemExit("the parent is gone")
        self._heard += said


if __name__ == "__main__":
    _exit(main(sys.argv[1]))
