"""Run the planned tasks wave by wave. The tasks of a wave begin to measure together, and each gets one result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Protocol

from benchsuite.describe.spanning import Seat
from benchsuite.describe.tasks import Plan, Task, Wave
from benchsuite.errors import BenchError, reason
from benchsuite.host.monitor import Monitor
from benchsuite.isolation.fencing import Fencing
from benchsuite.launch import blocks, copies, orphans, together
from benchsuite.launch.budget import Spending
from benchsuite.launch.child import Child
from benchsuite.launch.context import RunContext, WaveContext, WaveError
from benchsuite.launch.interrupt import Interrupt
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.means import MEANS
from benchsuite.launch.outcome import Setting, finished, not_started
from benchsuite.launch.preload import Preloader
from benchsuite.launch.room import Keeper, Listener
from benchsuite.launch.supervise import GRACE_S
from benchsuite.launch.task_telemetry import follow, summary
from benchsuite.launch.working import Working
from benchsuite.records import Failure, Machine, Result, Status

LOOK_EVERY_S = 0.1


class Observer(Listener, Protocol):
    """Shows people how a run goes."""

    def begin(self, tasks: Sequence[Task]) -> None:
        """The run begins; these are all its tasks."""

    def added(self, tasks: Sequence[Task]) -> None:
        """These tasks are added to the run."""

    def wave(self, tasks: Sequence[Task]) -> None:
        """These tasks are next."""

    def look(self, children: Sequence[Working]) -> None:
        """These workers run; called ten times a second."""


class Team(Protocol):
    """The agents of a run over nodes, which fence, sample and start the ranks of their nodes."""

    notes: list[str]

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The agents, for the plan."""

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Their machines, each once."""

    def start(self, run: RunContext, task: Task, wave: WaveContext) -> Working:
        """Start a task over nodes. Raises OSError: its files cannot be written."""

    def result(self, working: Working, setting: Setting) -> Result:
        """The result of a task that is finished."""

    def lost(self, tasks: Sequence[Task]) -> str | None:
        """Why tasks cannot run, since an agent of theirs is gone; None if they can."""


@dataclass(frozen=True)
class RunMeans:
    """What all waves of a run share: the facts around the run, the fences, the monitor, and the agents of other nodes.

    Attributes:
        team: None for a run on one machine. With it, fences and monitor of this process are not used.
    """

    setting: Setting
    fencing: Fencing
    monitor: Monitor
    allow_mig: bool = False
    preloader: Preloader = field(default_factory=Preloader)
    team: Team | None = None


class Runner:
    """Runs tasks, one wave after another.

    Args:
        means: what all waves share; the caller releases it.
        environ: the environment that workers and set-up commands inherit.
        interrupt: says whether a signal has asked for the end of the run.
    """

    def __init__(
        self, ledger: Ledger, means: RunMeans, environ: Mapping[str, str], observer: Observer, interrupt: Interrupt
    ) -> None:
        self._setting, self._observer, self._interrupt = means.setting, observer, interrupt
        self._preloader = means.preloader
        self._team = means.team
        self._context = RunContext(
            ledger,
            environ,
            means.fencing,
            means.monitor,
            observer.say,
            interrupt.asked,
            interrupt.hurried,
            allow_mig=means.allow_mig,
        )
        self._keeper = Keeper(ledger, observer, interrupt.asked)
        self._stopping = False

    def settled(self, plan: Plan) -> Plan:
        """The plan with the numbers of copies that fit, where its jobs leave them open.

        Raises:
            OutputError: a file of the run cannot be written.
            Interrupted: a signal asked for the end.
        """
        plan = copies.settled(self._context, self._context.ledger.rundir, plan)
        self._interrupt.check()
        return plan

    def run(self, waves: Sequence[Wave], spending: Spending | None = None) -> None:
        """Run all waves. A task that fails stops no other. On a full disk the run waits, and ends if that takes long.

        Args:
            spending: of a run with a budget: adds further waves.

        Raises:
            Interrupted: a signal asked for the end; what was finished is kept, running tasks are marked interrupted.
        """
        self._observer.begin([task for wave in waves for task in wave.tasks])
        with closing(self._keeper), closing(self._preloader), orphans.adopted(self._preloader.pids) as end_orphans:
            for wave in self._all(waves, spending):
                self._interrupt.check()
                if not self._keeper.wait_for_room():
                    break
                if self._team and (why := self._team.lost(wave.tasks)):
                    self._observer.say(f"{why}; the tasks that are left are not started")
                    break
                self._observer.wave(wave.tasks)
                try:
                    self._wave(wave.tasks)
                finally:
                    if spending:
                        spending.ended(wave)
                for line in end_orphans():
                    self._observer.say(line)
            self._keeper.finish()
        self._interrupt.check()

    def _all(self, waves: Sequence[Wave], spending: Spending | None) -> Iterator[Wave]:
        """The planned waves, and then those that a budget adds."""
        yield from waves
        self._interrupt.check()
        for wave in spending.further() if spending else ():
            self._observer.added(wave.tasks)
            yield wave
            self._interrupt.check()  # before the plan gets another wave

    def _wave(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.skip is not None:
                self._not_started(task, "skipped", Failure(kind="skipped", message=task.skip))
        wave = WaveContext(tuple(task for task in tasks if task.skip is None))
        if not wave.tasks:
            return
        with ExitStack() as given_back:
            try:
                for mean in () if self._team else (*MEANS, self._preloader.preload):
                    wave = given_back.enter_context(mean(self._context, wave))
                    self._interrupt.check()
            except WaveError as error:
                self._interrupt.check()
                for task in wave.tasks:
                    self._not_started(task, error.status, error.failure)
                return
            self._watch([given_back.enter_context(closing(child)) for child in self._start(wave)])

    def _start(self, wave: WaveContext) -> Iterator[Working]:
        """Start the tasks one by one; one that cannot be started has its result at once."""
        for place, task in enumerate(wave.tasks):
            try:
                if self._team:
                    yield self._team.start(self._context, task, wave)
                    continue
                child = Child(self._context, task, wave.tenants[place], wave)
            except BenchError as error:
                self._not_started(task, "failed", Failure(kind="start", message=str(error)))
                continue
            except OSError as error:
                message = f"its start could not be noted: {reason(error)}"
                self._not_started(task, "failed", Failure(kind="start", message=message))
                continue
            follow(self._context.monitor, child)
            yield child

    def _watch(self, children: Sequence[Working]) -> None:
        """Until all workers have ended: say go and stop at the right times, end late tasks, and write the results."""
        running, reaper = list(children), orphans.Reaper()
        while running:
            for child in list(running):
                if child.step():
                    running.remove(child)
                    self._end(child)
            together.say(running)
            asleep_s = blocks.answer(running, self._context.monitor)
            if self._interrupt.asked() and not self._stopping:
                self._stopping = True
                self._observer.say(f"stopping: tasks have {GRACE_S:g} s to end; Ctrl-C again kills them at once")
            self._say_news()
            reaper.look()
            self._observer.look(running)
            if running:
                self._sleep(max(LOOK_EVERY_S, asleep_s))
        self._context.monitor.resume()

    def _sleep(self, seconds: float) -> None:
        """Sleep, at most until a signal asks for the end."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0 and (seconds <= LOOK_EVERY_S or not self._interrupt.asked()):
            time.sleep(min(left_s, 1.0))

    def _say_news(self) -> None:
        """Say what the monitor noted since the last call."""
        for line in self._context.monitor.news():
            self._observer.say(line)

    def _end(self, child: Working) -> None:
        with closing(child):
            child.finish()
            if not isinstance(child, Child):
                assert self._team
                self._keeper.keep(self._team.result(child, self._setting))
                return
            seen = summary(self._context.monitor, child, self._context.ledger.rundir)
            self._say_news()
            self._keeper.keep(finished(child, self._setting, seen))

    def _not_started(self, task: Task, status: Status, why: Failure) -> None:
        self._keeper.keep(not_started(task, self._context.ledger.attempt(task), self._setting, status, why))
