"""Run the planned tasks wave by wave: start together, begin together, and leave exactly one result each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from benchsuite.errors import BenchError, UsageError
from benchsuite.host.monitor import Monitor
from benchsuite.launch.child import Child
from benchsuite.launch.interrupt import Interrupt
from benchsuite.launch.outcome import Ended, Setting, finished, not_started
from benchsuite.launch.prepare import prepare
from benchsuite.launch.process import Tree
from benchsuite.launch.tenants import Fencing
from benchsuite.launch.watching import follow, telemetry
from benchsuite.plan import waves
from benchsuite.records import Failure, Result, Status
from benchsuite.rundir import Attempt, RunDir, write_result
from benchsuite.tasks import Task

LOOK_EVERY_S = 0.1
# A neighbour that is not ready by then, or by half of the shortest timeout, no longer keeps the others waiting.
READY_LIMIT_S = 300.0
# A task that has measured and only holds is let go at its deadline, and given this long to say its last.
LAST_WORDS_S = 30.0


class Observer(Protocol):
    """Who is told how a run goes; all that people see of it."""

    def say(self, line: str) -> None:
        """Something that a user should know before the first task."""

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
    """Runs a plan into its folder."""

    def __init__(
        self,
        rundir: RunDir,
        means: Means,
        environ: Mapping[str, str],
        observer: Observer,
        attempts: Mapping[str, int] | None = None,
    ) -> None:
        self.rundir = rundir
        self.setting = means.setting
        self.fencing = means.fencing
        self.monitor = means.monitor
        self.environ = environ
        self.observer = observer
        self.attempts = attempts or {}

    def attempt(self, task: Task) -> int:
        """The number of a task's attempt in this run; 1 unless the run is resumed."""
        return self.attempts.get(task.id, 1)

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks. A failure of one stops no other.

        Raises:
            Interrupted: a signal asked for the end; what was finished is kept, running tasks are marked interrupted.
        """
        with Interrupt() as interrupt:
            self.observer.begin(tasks)
            for wave in waves(tasks):
                interrupt.check()
                self.observer.wave(wave)
                self._wave(wave, interrupt)
            interrupt.check()

    def _wave(self, wave: Sequence[Task], interrupt: Interrupt) -> None:
        runnable = [task for task in wave if task.skip is None]
        for task in wave:
            if task.skip is not None:
                self._not_started(task, "skipped", Failure(kind="skipped", message=task.skip))
        if not runnable:
            return
        first = runnable[0]
        problem = self._prepare(first, interrupt)
        interrupt.check()
        if problem:
            for task in runnable:
                self._not_started(task, "failed", problem)
            return
        self._watch(self._start(runnable), interrupt)
        self.monitor.trim(time.monotonic())

    def _prepare(self, task: Task, interrupt: Interrupt) -> Failure | None:
        """What the job asks for before its tasks; each command is noted with its pid and mark, for a run to come."""

        def started(tree: Tree) -> None:
            self._note("prepare", task, pid=tree.pid, pid_started=tree.started, mark=tree.mark)

        log = self.rundir.log(task, self.attempt(task), "prepare")
        return prepare(task.job, {**self.environ, **task.job.env}, log, interrupt.asked, started)

    def _start(self, tasks: Sequence[Task]) -> list[Child]:
        children: list[Child] = []
        try:
            tenants = self.fencing.fence(tasks)
        except UsageError as error:
            for task in tasks:
                self._not_started(task, "failed", Failure(kind="isolation", message=str(error)))
            return children
        for task, tenant in zip(tasks, tenants, strict=True):
            try:
                child = Child(task, self.attempt(task), self.rundir, self.environ, tenant, alone=len(tasks) == 1)
            except BenchError as error:
                tenant.close()
                self._not_started(task, "failed", Failure(kind="start", message=str(error)))
                continue
            follow(self.monitor, child)
            self._note("start", task, pid=child.tree.pid, pid_started=child.tree.started, mark=child.tree.mark)
            children.append(child)
        return children

    def _watch(self, children: Sequence[Child], interrupt: Interrupt) -> None:
        """Until all are gone: say go and stop at the right times, end what is late, keep each result as it comes."""
        running = list(children)
        try:
            while running:
                if interrupt.asked():
                    for child in running:
                        child.tree.terminate()
                for child in list(running):
                    ended = _why_over(child, child.look(), interrupt)
                    if ended:
                        running.remove(child)
                        self._end(child, ended)
                _say(running)
                self.observer.look(running)
                if running:
                    time.sleep(LOOK_EVERY_S)
        finally:
            for child in running:  # only where something of ours went wrong
                child.close()

    def _end(self, child: Child, ended: Ended) -> None:
        try:
            if ended != "exited":
                child.tree.stop()
            child.end()
            exit_code = child.look()
            seen = telemetry(self.monitor, child, self.rundir)
            self._keep(finished(child, exit_code, ended, self.setting, seen))
        finally:
            child.close()

    def _not_started(self, task: Task, status: Status, why: Failure) -> None:
        self._keep(not_started(task, self.attempt(task), status, why, self.setting))

    def _keep(self, result: Result) -> None:
        """Write a result and note the end; a result that cannot be written is lost, which the report counts."""
        path, problem = None, None
        try:
            path = write_result(self.rundir.path, result, datetime.now(timezone.utc))
        except OSError as error:
            problem = (
                f"{error.filename or self.rundir.path}: the result could not be written: {error.strerror or error}"
            )
        try:
            name = path.name if path else None
            self._note("end", result.task, status=result.status if path else "lost", result=name)
        except OSError as error:
            problem = f"{self.rundir.path / 'attempts.jsonl'}: could not be written: {error.strerror or error}"
        self.observer.ended(result, path, problem)

    def _note(
        self,
        event: str,
        task: Task,
        *,
        pid: int | None = None,
        pid_started: float | None = None,
        mark: str | None = None,
        status: str | None = None,
        result: str | None = None,
    ) -> None:
        self.rundir.note_attempt(
            Attempt(
                event=event,
                task=task.id,
                attempt=self.attempt(task),
                at=datetime.now(timezone.utc).isoformat(),
                pid=pid,
                pid_started=pid_started,
                mark=mark,
                status=status,
                result=result,
            )
        )


def _why_over(child: Child, exit_code: int | None, interrupt: Interrupt) -> Ended | None:
    """Why a child is over or must be ended now; None while it may go on."""
    if exit_code is not None:
        return "interrupted" if interrupt.asked() else "exited"
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
