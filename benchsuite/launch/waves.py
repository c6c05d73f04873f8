"""Run the planned tasks wave by wave: start together, begin together, and leave exactly one result each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchsuite.data import DataError
from benchsuite.describe.plan import waves
from benchsuite.describe.tasks import Task
from benchsuite.errors import BenchError, UsageError
from benchsuite.host.monitor import Monitor
from benchsuite.isolation.fencing import Fencing
from benchsuite.launch import orphans
from benchsuite.launch.batchsize import SearchError, Sizes, with_size
from benchsuite.launch.child import Child, Ended, Found
from benchsuite.launch.datasets import give
from benchsuite.launch.interrupt import Interrupt
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.outcome import Exit, Setting, finished, not_started
from benchsuite.launch.process import GRACE_S
from benchsuite.launch.setup_commands import prepare
from benchsuite.launch.task_telemetry import follow, telemetry
from benchsuite.records import Failure, Result, Status

LOOK_EVERY_S = 0.1
# A neighbour that is not ready by then, or by half of the shortest timeout, no longer keeps the others waiting.
READY_LIMIT_S = 300.0
# A process that SIGKILL does not end by then is stuck in the kernel: the run goes on without it.
STUCK_S = 10.0
# A task that has measured and only holds is let go at its deadline, and given this long to say its last.
LAST_WORDS_S = 30.0


class Observer(Protocol):
    """Who is told how a run goes; all that people see of it."""

    def say(self, line: str) -> None:
        """Something that a user should know."""

    def begin(self, tasks: Sequence[Task]) -> None:
        """These are all that will run."""

    def wave(self, tasks: Sequence[Task]) -> None:
        """These tasks are next."""

    def look(self, children: Sequence[Child]) -> None:
        """How they stand, ten times a second."""

    def ended(self, result: Result, path: Path | None, problem: str | None) -> None:
        """A task is over; `path` is None where its result could not be kept, for the reason in `problem`."""


@dataclass(frozen=True)
class Means:
    """What a run's tasks have in common: the facts around them, their fences, and who watches."""

    setting: Setting
    fencing: Fencing
    monitor: Monitor


class Runner:
    """Runs tasks, one wave after another."""

    def __init__(
        self, ledger: Ledger, means: Means, environ: Mapping[str, str], observer: Observer, interrupt: Interrupt
    ) -> None:
        self.ledger = ledger
        self.setting = means.setting
        self.fencing = means.fencing
        self.monitor = means.monitor
        self.environ = environ
        self.observer = observer
        self.interrupt = interrupt
        self.sizes = Sizes(ledger, environ, means.fencing, observer.say)

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks. A failure of one stops no other.

        Raises:
            Interrupted: a signal asked for the end; what was finished is kept, running tasks are marked interrupted.
        """
        self.observer.begin(tasks)
        with orphans.adopted() as end_strays:
            for wave in waves(tasks):
                self.interrupt.check()
                self.observer.wave(wave)
                self._wave(wave)
                for line in end_strays():
                    self.observer.say(line)
        self.interrupt.check()

    def _wave(self, wave: Sequence[Task]) -> None:
        runnable = [task for task in wave if task.skip is None]
        for task in wave:
            if task.skip is not None:
                self._not_started(task, "skipped", Failure(kind="skipped", message=task.skip))
        if not runnable:
            return
        problem = prepare(runnable[0], self.environ, self.ledger, self.fencing, self.interrupt.asked)
        self.interrupt.check()
        if problem:
            for task in runnable:
                self._not_started(task, "failed", problem)
            return
        try:
            sized, found = self._find(runnable)
        except (DataError, SearchError) as error:
            self.interrupt.check()
            why = Failure(kind="data", message=str(error)) if isinstance(error, DataError) else error.failure
            for task in runnable:
                self._not_started(task, "oom" if why.kind == "oom" else "failed", why)
            return
        self._watch(self._start(sized, found))
        self.monitor.trim(time.monotonic())

    def _find(self, tasks: Sequence[Task]) -> tuple[Sequence[Task], Found]:
        """The wave's data set, and the tasks with the batch size that fits where their job leaves it to be found.

        Raises:
            DataError, SearchError: there is none.
        """
        data = give(tasks[0], self.interrupt.asked)
        search = self.sizes.find(tasks, data, self.interrupt.asked)
        self.interrupt.check()
        if search is None:
            return tasks, Found(data)
        if tasks[0].job.page_cache != "any":
            data = give(tasks[0], self.interrupt.asked)  # the tries have read of it
        return [with_size(task, search.found) for task in tasks], Found(data, search)

    def _start(self, tasks: Sequence[Task], found: Found) -> list[Child]:
        children: list[Child] = []
        try:
            tenants = self.fencing.fence(tasks)
        except UsageError as error:
            for task in tasks:
                self._not_started(task, "failed", Failure(kind="isolation", message=str(error)))
            return children
        for task, tenant in zip(tasks, tenants, strict=True):
            try:
                child = Child(task, self.ledger, self.environ, tenant, alone=len(tasks) == 1, found=found)
            except BenchError as error:
                tenant.close()
                self._not_started(task, "failed", Failure(kind="start", message=str(error)))
                continue
            try:
                self.ledger.began("start", task, child.tree)
            except OSError as error:
                child.close()
                message = f"its start could not be noted: {error.strerror or error}"
                self._not_started(task, "failed", Failure(kind="start", message=message))
                continue
            follow(self.monitor, child)
            children.append(child)
        return children

    def _watch(self, children: Sequence[Child]) -> None:
        """Until all are gone: say go and stop at the right times, end what is late, keep each result as it comes."""
        running = list(children)
        try:
            while running:
                for child in list(running):
                    if self._is_over(child):
                        running.remove(child)
                _say(running)
                self.observer.look(running)
                if running:
                    time.sleep(LOOK_EVERY_S)
        finally:
            for child in running:  # only where something of ours went wrong
                child.close()

    def _is_over(self, child: Child) -> bool:
        """Look at one child, without ever waiting for it: ask it to end, kill it after the grace, keep its result."""
        exit_code = child.look()
        if exit_code is not None:
            self._end(child)
            return True
        if child.ending is None:
            why = _why_end(child, self.interrupt)
            if why:
                child.ending, child.behind_then = why, child.behind()
                child.kill_s = time.monotonic() + GRACE_S
                child.tree.terminate()
        elif time.monotonic() > child.kill_s + STUCK_S:
            child.stuck = True
            self._end(child)
            return True
        elif time.monotonic() > child.kill_s:
            child.tree.kill(limit_s=0.2)  # again at the next look: its neighbours are waiting for theirs
        return False

    def _end(self, child: Child) -> None:
        try:
            child.end()
            exit_code = child.look()
            seen = telemetry(self.monitor, child, self.ledger.rundir)
            how = Exit(exit_code, child.ending or "exited", self.interrupt.asked_s, child.behind_then, child.stuck)
            self._keep(finished(child, how, self.setting, seen))
        finally:
            child.close()

    def _not_started(self, task: Task, status: Status, why: Failure) -> None:
        self._keep(not_started(task, self.ledger.attempt(task), status, why, self.setting))

    def _keep(self, result: Result) -> None:
        path, problem = self.ledger.keep(result)
        self.observer.ended(result, path, problem)


def _why_end(child: Child, interrupt: Interrupt) -> Ended | None:
    """Why a child must be ended now; None while it may go on."""
    if interrupt.asked():
        return "interrupted"
    if time.monotonic() > child.deadline_s:
        if not child.seen.measured or child.stop_said:
            return "timed_out"
        child.say_stop()
        child.deadline_s += LAST_WORDS_S
    return None


def _say(running: Sequence[Child]) -> None:
    """Go, once all that still run are ready or the wait is over its limit; stop, once all have measured."""
    waiting = [c for c in running if c.seen.ready and c.go_s is None]
    if waiting:
        others_ready = all(c.seen.ready for c in running)
        limit_s = min(READY_LIMIT_S, *(c.task.job.timeout_s / 2 for c in running))
        late = time.monotonic() - min(c.started_s for c in running) > limit_s
        if others_ready or late or any(c.go_s is not None for c in running):
            for child in waiting:
                child.say_go()
    if all(c.seen.measured for c in running):
        for child in running:
            if not child.stop_said:
                child.say_stop()
