"""The largest batch that fits, for jobs that leave `batch_size` to be found: tried in processes of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import psutil

from benchsuite.describe import entries
from benchsuite.describe.tasks import Task
from benchsuite.errors import BenchError
from benchsuite.isolation.fencing import Fencing
from benchsuite.launch.child import Child, Found
from benchsuite.launch.datasets import Given
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.outcome import Exit, classify
from benchsuite.launch.process import GRACE_S, last_lines
from benchsuite.records import BatchProbe, BatchSearch, Failure, Result
from benchsuite.rundir import RunDir, results

MOST = 1 << 20
TRIES = 28
# What is not known to fit is found to within this part of what is.
WITHIN = 16
# The size is tried that would, by two peaks, take this share of a GPU's memory; though not at once one of so many times
# the largest that fits: what is small says little of what is large.
GPU_SHARE = 0.97
LEAP = 8
# Where this share of the memory would be needed on a CPU, no larger batch is tried: the kernel would end others too.
HOST_SHARE = 0.8
# A batch whose warm-up takes longer than that is large enough.
LONGEST_WARM_UP_S = 60.0
# How torch and Python say that the host has no more memory.
_NO_MEMORY = ("MemoryError", "allocate memory", "out of memory", "alloc_cpu")


class SearchError(BenchError):
    """No batch size could be found; `failure` is that of the last one that was tried."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class Tried:
    """One try: `why` says what stopped it where it does not fit; `failure` that it says nothing about memory."""

    probe: BatchProbe
    why: str = ""
    failure: Failure | None = None


def asks(task: Task) -> bool:
    """Does the job leave its batch size to be found?"""
    return task.job.params.get(entries.BATCH_SIZE) == entries.AUTO


def with_size(task: Task, size: int) -> Task:
    """The task with its batch size."""
    params = {**task.job.params, entries.BATCH_SIZE: size}
    return msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, params=params))


def search(attempt: Callable[[int], Tried], start: int, room_bytes: int | None = None) -> BatchSearch:
    """The largest batch that fits, to within a sixteenth, from `start` on.

    Sizes double until a batch does not fit (halve until one does), then the gap is halved. Where it is known which
    memory of the device there is, two peaks tell what is tried next.

    Raises:
        SearchError: not even a batch of one fits, or it failed for another reason.
    """
    probes: list[BatchProbe] = []
    low = high = 0
    limit = f"larger than {MOST:,} is not tried"
    size = min(start, MOST)
    while len(probes) < TRIES:
        tried = attempt(size)
        probes.append(tried.probe)
        failure = tried.failure
        if failure and not low and (failure.kind != "model" or size == 1):
            raise SearchError(failure)
        if tried.probe.fits:
            low = size
        else:
            high, limit = size, f"batch_size {size:,}: {tried.why}"
        if not low and high == 1:
            raise SearchError(Failure(kind="oom", message=f"not even batch_size 1 fits: {tried.why}"))
        if low >= MOST:
            break
        if low and high and high - low <= max(1, low // WITHIN):
            break
        size = _next(low, high, _guess(probes, room_bytes))
    else:
        limit += f"; ended after {TRIES} tries"
    assert low  # that many halvings of a start below MOST end at 1
    return BatchSearch(found=low, limit=limit, probes=tuple(probes))


def _guess(probes: Sequence[BatchProbe], room_bytes: int | None) -> int:
    """The size at which memory would be used up, on the line through the two largest that fit; 0 if that is unknown."""
    known = sorted((p.batch_size, p.device_bytes) for p in probes if p.fits and p.device_bytes)[-2:]
    if room_bytes is None or len(known) < 2:
        return 0
    (small, less), (large, more) = known
    if more <= less:
        return 0
    return int(large + (GPU_SHARE * room_bytes - more) * (large - small) / (more - less))


def _next(low: int, high: int, guess: int) -> int:
    """The size to try after these: the largest known to fit and the smallest known not to, 0 where there is none.

    A guess of 0, or one that is far below what fits, is none.
    """
    if not low:
        return high // 2
    near = max(1, low // WITHIN)  # where so many more do not fit, `low` is what was looked for
    if guess >= low - near:
        size = max(_whole(guess, low), _whole(low + near, low))
        if not high:
            return min(size, LEAP * low, MOST)
        if size < high:
            return size
        below = -(-high * WITHIN // (WITHIN + 1) // 8) * 8  # near enough below one that does not fit
        if guess - 8 < high and low < below < high:
            return below
    elif not high:
        return min(2 * low, MOST)
    return _whole((low + high) // 2, low)


def _whole(size: int, above: int) -> int:
    """Kernels are made for multiples of 8: the next one below, if that is still above."""
    return size // 8 * 8 if size // 8 * 8 > above else size


class Sizes:
    """Finds the batch size of each job once a run: repeats have the first one's, and so has a run that is resumed."""

    def __init__(
        self, ledger: Ledger, environ: Mapping[str, str], fencing: Fencing, say: Callable[[str], None]
    ) -> None:
        self._ledger, self._environ, self._fencing, self._say = ledger, environ, fencing, say
        self._found: dict[str, BatchSearch] = {}

    def find(self, tasks: Sequence[Task], data: Given | None, asked_to_stop: Callable[[], bool]) -> BatchSearch | None:
        """One size for all tasks of a wave, by tries on the GPU that has the least memory; None where none is asked.

        Raises:
            SearchError: see `search`; the end was asked for.
        """
        first = min(tasks, key=lambda task: sum(gpu.memory_bytes or 0 for gpu in task.gpus))
        if not asks(first):
            return None
        name = first.cell
        found = self._found.get(name) or _earlier(self._ledger.rundir, name)
        if found is None:
            place = _Place(self, tasks, first, data, asked_to_stop)
            default = entries.declared(first.job.model, first.job.entry).parameters[entries.BATCH_SIZE].default
            room_bytes = min((gpu.memory_bytes or 0 for gpu in first.gpus), default=0) or None
            found = search(place.attempt, default, room_bytes)
            self._say(f"{name}: batch_size {found.found:,} is the largest that fits ({len(found.probes)} tries)")
        self._found[name] = found
        return found


def _earlier(rundir: RunDir, job: str) -> BatchSearch | None:
    """What an earlier invocation of this run found."""
    found = (r.batch_search for _, r in results(rundir.path) if isinstance(r, Result) and r.task.cell == job)
    return next((search for search in found if search), None)


class _Place:
    """Where tries are made: the share and the GPU of one task of a wave, whose neighbours wait."""

    def __init__(
        self, sizes: Sizes, wave: Sequence[Task], task: Task, data: Given | None, asked_to_stop: Callable[[], bool]
    ) -> None:
        self._sizes, self._wave, self._task, self._data = sizes, wave, task, data
        self._asked_to_stop = asked_to_stop
        self._host: tuple[int, int] | None = None  # the largest batch so far that fits, and the host memory it took

    def attempt(self, size: int) -> Tried:
        """Try one batch size."""
        began = time.monotonic()
        guess = self._guess_bytes(size)
        there = self._memory_bytes()
        if guess and guess > HOST_SHARE * there:
            why = f"would take about {_gib(guess)} of the host's memory, of {_gib(there)}"
            return Tried(
                BatchProbe(batch_size=size, fits=False, device_bytes=None, host_bytes=None, elapsed_s=0.0), why
            )
        tried = self._run(size, began)
        if tried.probe.fits:
            self._host = size, tried.probe.host_bytes or 0
            device = tried.probe.device_bytes
            took = f"{_gib(device)} of the GPU's" if device else f"{_gib(tried.probe.host_bytes or 0)} of the host's"
            self._sizes._say(f"{self._task.job.name}: batch_size {size:,} fits: {took} memory at most")
        else:
            self._sizes._say(f"{self._task.job.name}: batch_size {size:,} does not fit: {tried.why}")
        return tried

    def _guess_bytes(self, size: int) -> int | None:
        """Host memory for a larger batch on a CPU, as if all of it grew with the batch; None on a GPU."""
        if self._task.gpus or not self._host:
            return None
        return self._host[1] * size // self._host[0]

    def _memory_bytes(self) -> int:
        return min(psutil.virtual_memory().total, self._sizes._fencing.memory_bytes // len(self._wave))

    def _run(self, size: int, began: float) -> Tried:
        """Raises SearchError: the try cannot be started, or the end was asked for."""
        try:
            return self._in_a_process(size, began)
        except SearchError:
            raise
        except (BenchError, OSError) as error:
            message = f"batch_size {size} could not be tried: {error}"
            raise SearchError(Failure(kind="start", message=message)) from None

    def _in_a_process(self, size: int, began: float) -> Tried:
        sizes = self._sizes
        # A search that a killed run had begun has left its logs: those of a process are its own.
        name = f"{self._task.id}.batch{size}-{os.getpid()}"
        task = msgspec.structs.replace(with_size(self._task, size), id=name)
        tenants = sizes._fencing.fence(self._wave)
        tenant = tenants[self._wave.index(self._task)]
        for other in tenants:
            if other is not tenant:
                other.close()
        child = None
        try:
            found = Found(self._data, probe=True)
            child = Child(task, sizes._ledger, sizes._environ, tenant, alone=True, found=found)
            sizes._ledger.began("prepare", self._task, child.tree)
            exit_code = self._wait(child)
            child.end()
            child.look()
            how = Exit(exit_code, child.ending or "exited", stuck=child.stuck)
            printed = last_lines(child.err)
            status, error = classify(child.seen, how, task.job.timeout_s, printed, tenant.described())
        finally:
            if child:
                child.close()
            tenant.close()
        return self._judge(size, child, status, error, time.monotonic() - began)

    def _wait(self, child: Child) -> int | None:
        while (exit_code := child.look()) is None:
            now = time.monotonic()
            if child.ending is None and (self._asked_to_stop() or now > child.deadline_s):
                child.ending = "interrupted" if self._asked_to_stop() else "timed_out"
                child.kill_s = now + GRACE_S
                child.tree.terminate()
            elif child.ending and now > child.kill_s:
                child.tree.kill()
                child.stuck = child.look() is None
                return child.look()
            time.sleep(0.05)
        return exit_code

    def _judge(self, size: int, child: Child, status: str, error: Failure | None, elapsed_s: float) -> Tried:
        seen = child.seen
        peak = seen.end.peak_memory if seen.end else None
        device, host = (peak.device_allocated_bytes, peak.host_rss_bytes) if peak else (None, None)
        if status == "interrupted":
            raise SearchError(Failure(kind="interrupted", message="the end was asked for"))
        probe = BatchProbe(
            batch_size=size,
            fits=status == "ok",
            device_bytes=device,
            host_bytes=host,
            elapsed_s=round(elapsed_s, 3),
        )
        if status == "ok" and seen.ready and seen.ready.warm_up.elapsed_s > LONGEST_WARM_UP_S:
            why = f"fits, but its {seen.ready.warm_up.steps} steps of warm-up took over {LONGEST_WARM_UP_S:g} s"
            return Tried(msgspec.structs.replace(probe, fits=False), why)
        if status == "ok":
            return Tried(probe)
        assert error
        out_of_memory = status in ("oom", "killed") or any(word in error.message for word in _NO_MEMORY)
        return Tried(probe, error.message, None if out_of_memory or error.kind == "timeout" else error)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
