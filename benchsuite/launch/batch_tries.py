"""Try batch sizes in workers of their own, once a run for each job whose batch size is "auto"."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import msgspec

from benchsuite.describe import entries
from benchsuite.describe.tasks import Task
from benchsuite.errors import BenchError
from benchsuite.launch.batchsize import SearchError, Tried, asks, search, with_size
from benchsuite.launch.child import Child
from benchsuite.launch.context import RunContext, WaveContext
from benchsuite.launch.datasets import provide
from benchsuite.launch.outcome import judged
from benchsuite.launch.supervise import wait
from benchsuite.records import Failure, Result, Status
from benchsuite.rundir import RunDir, results
from benchsuite.searches import BatchProbe, BatchSearch

# A larger batch is not tried on a CPU if it would need more than this share of the memory: the kernel might then kill
# processes that have nothing to do with the run.
HOST_SHARE = 0.8
# A search on a CPU starts no further try after this time. There, larger batches soon bring no more items per second.
LONGEST_CPU_SEARCH_S = 60.0
# A batch whose warm-up takes longer than this is large enough.
LONGEST_WARM_UP_S = 60.0
# How torch and Python report that the host's memory is used up.
_NO_MEMORY = ("MemoryError", "allocate memory", "out of memory", "alloc_cpu")


@contextmanager
def batch_size(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
    """Provide the tasks with the largest batch size that fits on each of their GPUs, if their job leaves it open.

    All repeats of a job have the size that its first repeat found, also in a resumed run.

    Raises:
        SearchError: see `batchsize.search`; or a try cannot be started, or the user stopped the run.
        WaveError: the data set cannot be read again.
    """
    smallest = min(wave.tasks, key=lambda task: sum(gpu.memory_bytes or 0 for gpu in task.gpus))
    if not asks(smallest):
        yield wave
        return
    name = smallest.cell
    found = run.searches.get(name) or _earlier(run.ledger.rundir, name) or _search(run, wave, smallest)
    run.searches[name] = found
    # The tries have read from the data set, so the page cache must be made as asked once more.
    data = wave.data if smallest.job.page_cache == "any" else provide(smallest, run.asked_to_stop)
    tasks = tuple(with_size(task, found.found) for task in wave.tasks)
    yield replace(wave, tasks=tasks, data=data, batch_search=found)


def _earlier(rundir: RunDir, cell: str) -> BatchSearch | None:
    """The search of an earlier invocation of this run."""
    found = (r.batch_search for _, r in results(rundir.path) if isinstance(r, Result) and r.task.cell == cell)
    return next((search for search in found if search), None)


def _search(run: RunContext, wave: WaveContext, task: Task) -> BatchSearch:
    start = entries.declared(task.job.model, task.job.entry).parameters[entries.BATCH_SIZE].default
    room_bytes = min((gpu.memory_bytes or 0 for gpu in task.gpus), default=0) or None
    # A batch is split into `accumulate` micro-batches of at least one sample.
    tries = Tries(run, wave, task)
    run.say(f"{task.cell}: searching the largest batch_size, from {start:,}; {tries.bound()}")
    found = search(tries.attempt, start, room_bytes, least=task.job.training.accumulate, enough=tries.enough)
    took = f"{len(found.probes)} tries, {tries.elapsed_s():.0f} s"
    largest = "is the largest that was tried" if tries.enough() == found.limit else "is the largest that fits"
    run.say(f"{task.cell}: batch_size {found.found:,} {largest} ({took}); limit: {found.limit}")
    return found


class Tries:
    """Tries batch sizes with the share and the GPUs of one task of a wave; the other tasks have not started yet."""

    def __init__(self, run: RunContext, wave: WaveContext, task: Task) -> None:
        self._run, self._wave, self._task = run, wave, task
        self._began_s = time.monotonic()
        self._largest: tuple[int, int] | None = None  # the largest batch that fits so far, and its host memory in bytes

    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._began_s

    def enough(self) -> str | None:
        """Why a search on a CPU ends here, in words; None on a GPU, and before the time is over."""
        if self._task.gpus or self.elapsed_s() < LONGEST_CPU_SEARCH_S:
            return None
        return f"a search on a CPU ends after {LONGEST_CPU_SEARCH_S:g} s; no larger size was tried"

    def bound(self) -> str:
        """What bounds the search, in words."""
        if self._task.gpus:
            room = min(gpu.memory_bytes or 0 for gpu in self._task.gpus)
            return f"the GPU has {_gib(room)}" if room else "the size of the GPU's memory is unknown"
        limit = "the size of the host's memory is unknown"
        if self._run.fencing.memory_bytes is not None:
            limit = f"at most {_gib(int(HOST_SHARE * self._memory_bytes()))} of the host's memory"
        return f"{limit}, no further try after {LONGEST_CPU_SEARCH_S:g} s"

    def attempt(self, size: int) -> Tried:
        """Try one batch size.

        Raises:
            SearchError: the try cannot be started, or the user stopped the run.
        """
        expected, there = self._expected_bytes(size), self._memory_bytes()
        if expected and expected > HOST_SHARE * there:
            why = f"would take about {_gib(expected)} of the host's memory, of {_gib(there)}"
            self._run.say(f"{self._task.cell}: batch_size {size:,} is not tried: it {why}")
            probe = BatchProbe(batch_size=size, fits=False, device_bytes=None, host_bytes=None, elapsed_s=0.0)
            return Tried(probe, why)
        try:
            tried = self._in_a_worker(size)
        except SearchError:
            raise
        except (BenchError, OSError) as error:
            message = f"batch_size {size} could not be tried: {error}"
            raise SearchError(Failure(kind="start", message=message)) from None
        probe, words = tried.probe, f"{self._task.cell}: batch_size {size:,}"
        if probe.fits:
            self._largest = size, probe.host_bytes or 0
            device = probe.device_bytes
            took = f"{_gib(device)} of the GPU's" if device else f"{_gib(probe.host_bytes or 0)} of the host's"
            self._run.say(f"{words} fits: {took} memory at most, {probe.elapsed_s:.1f} s{self._highest()}")
        else:
            self._run.say(f"{words} does not fit: {tried.why}, {probe.elapsed_s:.1f} s")
        return tried

    def _highest(self) -> str:
        """The largest size that the next try on a CPU may have, as an end of a line; empty on a GPU."""
        if self._task.gpus or not self._largest or not self._largest[1] or self._run.fencing.memory_bytes is None:
            return ""
        fits, host_bytes = self._largest
        return f"; the next is at most {int(fits * HOST_SHARE * self._memory_bytes() / host_bytes):,}"

    def _expected_bytes(self, size: int) -> int | None:
        """Host memory of a larger batch on a CPU, as if all of it grew with the batch; None on a GPU."""
        if self._task.gpus or not self._largest:
            return None
        fits, host_bytes = self._largest
        return host_bytes * size // fits

    def _memory_bytes(self) -> int:
        """The host memory for one task; without bound if the kernel does not report the size of the memory."""
        there = self._run.fencing.memory_bytes
        return sys.maxsize if there is None else there // len(self._wave.tasks)

    def _in_a_worker(self, size: int) -> Tried:
        began_s = time.monotonic()
        # The pid keeps the logs apart from those of a killed run that had tried the same size.
        task = msgspec.structs.replace(with_size(self._task, size), id=f"{self._task.id}.batch{size}-{os.getpid()}")
        with self._run.fenced(self._wave.tasks) as tenants:
            tenant = tenants[self._wave.tasks.index(self._task)]
            with closing(Child(self._run, task, tenant, self._wave, probe_of=self._task)) as child:
                wait(child.step)
                child.finish()
                status, error = judged(child)
        return _tried(size, child, status, error, time.monotonic() - began_s)


def _tried(size: int, child: Child, status: Status, error: Failure | None, elapsed_s: float) -> Tried:
    """What a finished worker says about its batch size.

    Raises:
        SearchError: the user stopped the run.
    """
    if status == "interrupted":
        raise SearchError(Failure(kind="interrupted", message="the end was asked for"))
    ready, end = child.seen.ready, child.seen.end
    probe = BatchProbe(
        batch_size=size,
        fits=status == "ok",
        device_bytes=end.peak_memory.device_allocated_bytes if end else None,
        host_bytes=end.peak_memory.host_rss_bytes if end else None,
        elapsed_s=round(elapsed_s, 3),
    )
    if status == "ok" and ready and ready.warm_up.elapsed_s > LONGEST_WARM_UP_S:
        why = f"fits, but its {ready.warm_up.steps} steps of warm-up took over {LONGEST_WARM_UP_S:g} s"
        return Tried(msgspec.structs.replace(probe, fits=False), why)
    if status == "ok":
        return Tried(probe)
    assert error
    return Tried(probe, error.message, None if no_memory(status, error) or error.kind == "timeout" else error)


def no_memory(status: Status, error: Failure) -> bool:
    """Did a worker fail for want of memory?"""
    return status in ("oom", "killed") or any(word in error.message for word in _NO_MEMORY)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
