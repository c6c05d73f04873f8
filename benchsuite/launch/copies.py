"""Find how many copies of a model fit on a GPU, for jobs whose `copies` is `fit`, before the run's tasks are settled.

The plan of such a run first holds one task in each place that stands for what is to be found. Each search is kept in
`searches.json` as it ends, so that a run that ends early searches only what is missing. Then `plan.json` is written
again, with every task, before the first of them starts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import msgspec

from benchsuite.describe import sharing
from benchsuite.describe.matrix import Cell
from benchsuite.describe.plan import copied, with_numbers
from benchsuite.describe.tasks import FIT, Plan, Task
from benchsuite.errors import BenchError, OutputError, reason
from benchsuite.launch import together
from benchsuite.launch.batch_tries import HOST_SHARE, LONGEST_CPU_SEARCH_S, no_memory
from benchsuite.launch.child import Child
from benchsuite.launch.context import RunContext, WaveContext, WaveError
from benchsuite.launch.datasets import data_set
from benchsuite.launch.outcome import judged
from benchsuite.launch.searches import NAME, searches
from benchsuite.launch.sharing import shared
from benchsuite.rundir import RunDir
from benchsuite.schema import to_json
from benchsuite.searches import CopiesProbe, CopiesSearch, Searches
from benchsuite.writing import replace as write_again

# A try takes this many steps, all copies at the same time.
STEPS = 10
STOPPED = "stopped by the user"
# How CUDA reports that a GPU has no room for another process, besides the words for memory.
_NO_ROOM = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDNN_STATUS_NOT_INITIALIZED", "MPS client")


@dataclass(frozen=True)
class Tried:
    """One try: whether it fits, what stopped it, and whether that has nothing to do with memory."""

    probe: CopiesProbe
    why: str = ""
    bug: bool = False


def settled(run: RunContext, rundir: RunDir, plan: Plan) -> Plan:
    """The plan with the numbers of copies that fit, which `plan.json` and `searches.json` then hold.

    Raises:
        OutputError: a file cannot be written.
    """
    open_tasks = {task.cell: task for task in reversed(plan.tasks) if task.job.copies == FIT and task.skip is None}
    found = dict(searches(rundir))
    for cell, task in reversed(open_tasks.items()):
        if cell in found or run.asked_to_stop():
            continue
        if search := _search(run, task):
            found[cell] = search
            _write(rundir, NAME, to_json(Searches(cells=found), indent=2))
    if not open_tasks:
        return plan
    plan = with_numbers(plan, {cell: search.numbers for cell, search in found.items()})
    _write(rundir, "plan.json", to_json(plan, indent=2))
    return plan


def _write(rundir: RunDir, name: str, content: bytes) -> None:
    try:
        write_again(rundir.path / name, content)
    except OSError as error:
        raise OutputError(f"{rundir.path / name}: cannot be written: {reason(error)}") from None


def _search(run: RunContext, task: Task) -> CopiesSearch | None:
    """The search for one cell; None if the user stopped it."""
    way = task.job.sharing
    most = sharing.MOST[way]
    if not task.gpus and way != "fused":
        most = min(most, run.fencing.count)
    run.say(f"{task.cell}: searching the largest number of copies, at most {most:,}")
    tries = Tries(run, task)
    found = search(tries.attempt, most, sharing.MOST_NUMBERS[way], task.cell, tries.enough)
    if run.asked_to_stop():
        return None
    run.say(f"{task.cell}: {found.most:,} copies fit; limit: {found.limit}; to measure: {found.words}")
    return found


def search(
    attempt: Callable[[int], Tried],
    most: int,
    at_most: int,
    seed: str,
    enough: Callable[[], str | None] = lambda: None,
) -> CopiesSearch:
    """Find the largest number of copies that fits: doubled until one does not, then bisected.

    A number that fails for another reason than memory ends the search and is among the numbers to measure: its task
    then has a result that shows the failure. So is 1 if not even one model fits.

    Args:
        attempt: tries a number.
        most: the largest number to try.
        at_most: how many numbers are measured at most, without one that failed.
        seed: of the draw, see `sharing.numbers`.
        enough: why the search ends now with the largest number that fits; None to go on.
    """
    probes: list[CopiesProbe] = []
    low, high, failed = 0, most + 1, 0
    limit, number = f"more than {most:,} are not tried", 1
    while high - low > 1:
        tried = attempt(number)
        probes.append(tried.probe)
        if tried.probe.fits:
            low = number
        else:
            high, limit = number, f"{number:,}: {tried.why}"
        if tried.bug:
            failed = number
            break
        if low and high - low > 1 and (why := enough()):
            limit = why
            break
        number = min(2 * low, most) if high > most else (low + high) // 2
    numbers = {*(sharing.numbers(low, at_most, seed) if low else (1,)), *([failed] if failed else [])}
    return CopiesSearch(most=low, limit=limit, probes=tuple(probes), numbers=tuple(sorted(numbers)))


class Tries:
    """Tries numbers of copies in the place of one task: all copies train a few steps at the same time."""

    def __init__(self, run: RunContext, task: Task) -> None:
        self._run, self._task = run, task
        self._began_s = time.monotonic()
        self._largest: tuple[int, int] | None = None  # the largest number that fits, and its host memory in bytes

    def enough(self) -> str | None:
        """Why the search ends here: on a CPU after some time, and anywhere if the user stopped it."""
        if self._run.asked_to_stop():
            return STOPPED
        if self._task.gpus or time.monotonic() - self._began_s < LONGEST_CPU_SEARCH_S:
            return None
        return f"a search on a CPU ends after {LONGEST_CPU_SEARCH_S:g} s; no larger number was tried"

    def attempt(self, copies: int) -> Tried:
        """Try a number of copies."""
        began_s = time.monotonic()
        if self._too_large(copies):
            why = f"would take more than {HOST_SHARE:.0%} of the host's memory"
            return Tried(CopiesProbe(copies=copies, fits=False, device_bytes=None, host_bytes=None, elapsed_s=0.0), why)
        try:
            children, why, bug = self._train(copies)
        except WaveError as error:
            children, why, bug = [], error.failure.message, True
        except (BenchError, OSError) as error:
            children, why, bug = [], str(error), True
        probe = CopiesProbe(
            copies=copies,
            fits=not why,
            device_bytes=_sum(children, "device_reserved_bytes") if not why else None,
            host_bytes=_sum(children, "host_rss_bytes") if not why else None,
            elapsed_s=round(time.monotonic() - began_s, 3),
        )
        if probe.fits:
            self._largest = copies, probe.host_bytes or 0
        words = f"does not fit: {why}" if why and why != STOPPED else why or "fits"
        self._run.say(f"{self._task.cell}: {copies} {words}, {probe.elapsed_s:.1f} s")
        return Tried(probe, why, bug)

    def _too_large(self, copies: int) -> bool:
        there = self._run.fencing.memory_bytes
        if self._task.gpus or self._largest is None or there is None:
            return False
        fits, host_bytes = self._largest
        return host_bytes * copies / fits > HOST_SHARE * there

    def _tasks(self, copies: int) -> tuple[Task, ...]:
        """The tasks of a try. The pid keeps their logs apart from those of a killed run."""
        job = msgspec.structs.replace(
            self._task.job, max_count=None, max_steps=STEPS, min_time_s=0.0, warm_up_s=0.0, loss_band=None
        )
        cell = Cell(self._task.cell, self._task.axes, job)
        made = copied(self._task, cell, copies)
        return tuple(msgspec.structs.replace(task, id=f"{task.id}.try-{os.getpid()}") for task in made)

    def _train(self, copies: int) -> tuple[list[Child], str, bool]:
        """The workers of a try, and why one of them failed: empty if none did. True: not for want of memory."""
        with ExitStack() as given_back:
            wave = WaveContext(self._tasks(copies))
            for mean in (data_set, shared):
                wave = given_back.enter_context(mean(self._run, wave))
            tenants = given_back.enter_context(self._run.fenced(wave.tasks))
            wave = replace(wave, tenants=tenants)
            children = []
            for task, tenant in zip(wave.tasks, tenants, strict=True):
                child = Child(self._run, task, tenant, wave, prepares=self._task)
                children.append(given_back.enter_context(closing(child)))
            for child in _ended(children):
                child.finish()
                status, error = judged(child)
                if status == "interrupted":
                    return children, STOPPED, False
                if status != "ok":
                    assert error
                    room = no_memory(status, error) or any(word in error.words for word in _NO_ROOM)
                    return children, error.words, not room and error.kind != "timeout"
            why = _unproven(wave, children)
            return children, why, bool(why)


def _unproven(wave: WaveContext, children: list[Child]) -> str:
    """Why the copies did not share the GPU in the way that was asked for; empty if they did."""
    used = [wave.sharing.used(child.task) for child in children] if wave.sharing else []
    return next((one.seen or "" for one in used if one.in_use is False), "")


def _ended(children: list[Child]) -> Iterator[Child]:
    """Each worker as it ends; the others begin and stop together."""
    running = list(children)
    while running:
        for child in list(running):
            if child.step():
                running.remove(child)
                yield child
        together.say(running)
        time.sleep(0.05)


def _sum(children: list[Child], name: str) -> int | None:
    """The sum of a peak over the workers; None if one does not report it."""
    ends = [child.seen.end for child in children]
    peaks: list[int | None] = [getattr(end.peak_memory, name) if end else None for end in ends]
    known = [peak for peak in peaks if peak is not None]
    return sum(known) if known and len(known) == len(peaks) else None
