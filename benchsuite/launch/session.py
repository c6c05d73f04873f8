"""One invocation: it writes the run folder and runs all tasks, or those that an earlier invocation left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from benchsuite import manifest
from benchsuite.describe.budget import BUDGET, written
from benchsuite.describe.tasks import Plan, ProfileUsed, Task
from benchsuite.errors import OutputError, UsageError, reason
from benchsuite.files import look
from benchsuite.host import machine as host
from benchsuite.host.monitor import Monitor
from benchsuite.isolation.fencing import Fencing, Isolation
from benchsuite.launch import recordable, sharing
from benchsuite.launch.budget import Budget, Spending
from benchsuite.launch.datasets import not_ready
from benchsuite.launch.first_batch import check_filled
from benchsuite.launch.interrupt import Interrupt
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.lock import locked
from benchsuite.launch.outcome import Setting
from benchsuite.launch.preload import Preloader
from benchsuite.launch.resume import Left, changes_since, left_of, mend
from benchsuite.launch.waves import Observer, RunMeans, Runner, Team
from benchsuite.provisions import Tenant
from benchsuite.records import Machine, Run
from benchsuite.rundir import LOCK, RunDir, check_empty, make_folder
from benchsuite.writing import write_new


class Showing(Observer, AbstractContextManager["Showing"], Protocol):
    """An observer that is entered while tasks run."""


@dataclass(frozen=True)
class Invocation:
    """Where a run takes place and how it was asked for.

    Attributes:
        environ: the environment that workers and commands inherit.
        command: the command line.
        share: the share of an earlier task; if given, tasks get no more than it.
        kept: further files of the run folder, by their paths below it.
        allow_mig: may the division of a GPU into MIG instances be changed?
        budget: the time that the run may take, of which repeats are added; None: the plan says all.
        preload: fork workers from a preloaded process where that is possible.
        team: the agents of a run over nodes; None for a run on one machine.
    """

    machine: Machine
    environ: Mapping[str, str]
    command: Sequence[str]
    isolation: Isolation = "auto"
    require_isolation: bool = False
    share: Tenant | None = None
    kept: Mapping[str, bytes] = field(default_factory=dict)
    allow_mig: bool = False
    budget: Budget | None = None
    preload: bool = False
    team: Team | None = None


def execute(plan: Plan, profile: ProfileUsed, out: Path, observer: Showing, how: Invocation) -> RunDir:
    """Make the run folder and run the plan in it.

    Raises:
        OutputError: the folder is in use, not empty or cannot be written; nothing was started.
        UsageError: isolation is required and not possible, a rank cannot fill a batch, or a text of the records is not
            UTF-8 or holds a secret; nothing was started.
        Interrupted: a signal asked for the end.
    """
    setting = _setting(how.machine)
    run = Run(
        created=datetime.now(timezone.utc).isoformat(),
        command=tuple(how.command),
        profile=profile,
        repeats=plan.repeats,
        budget_s=how.budget.limit_s if how.budget else None,
        machines=_machines(how),
        seats=how.team.seats if how.team else (),
        code=setting.code,
        preload=how.preload,
    )
    recordable.check(run, plan, out)
    sharing.check(plan.tasks, allow_mig=how.allow_mig)
    with Interrupt() as interrupt, _means(plan, setting, how) as means:
        check_filled(plan.tasks, how.environ, interrupt.asked)
        interrupt.check()
        make_folder(out)
        if not (out / LOCK).exists():
            check_empty(out)  # a folder that is not a run's gets no lock
        with locked(out):
            interrupt.check()
            rundir = RunDir.create(out, run, plan)
            _keep(out, how.kept)
            with observer:
                _report(observer, means, how, plan.tasks)
                with _sealed(rundir, observer):
                    runner = Runner(Ledger(rundir), means, how.environ, observer, interrupt)
                    if how.budget:
                        observer.say(f"{BUDGET} {written(how.budget.limit_s)}: repeats follow once each job has run")
                    begun_s = time.monotonic()
                    whole = runner.settled(plan)
                    runner.run(whole.waves, _spending(how, rundir, whole, observer, begun_s))
    return rundir


def _machines(how: Invocation) -> tuple[Machine, ...]:
    """The machine of this process, then those of the agents."""
    of_agents = how.team.machines if how.team else ()
    return (how.machine, *(machine for machine in of_agents if machine != how.machine))


def _keep(out: Path, kept: Mapping[str, bytes]) -> None:
    """Write further files. Raises OutputError: one cannot be written."""
    for name, content in kept.items():
        make_folder((out / name).parent)
        try:
            write_new(out / name, content)
        except OSError as error:
            raise OutputError(f"{out / name}: cannot be written: {reason(error)}") from None


def resume(plan: Plan, out: Path, observer: Callable[[Left], Showing], how: Invocation) -> RunDir:
    """Continue the run in a folder, by the rules of `left_of`.

    Args:
        observer: makes the observer from what is left of the run.

    Raises:
        OutputError: the folder is in use or cannot be written.
        ResultError, ProfileError, UsageError: there is no such run, or it differs from what is asked for, or
            isolation is required and not possible; nothing was changed.
        Interrupted: a signal asked for the end.
    """
    setting = _setting(how.machine)
    recordable.check_command(how.command)
    if look(out) != "folder":
        raise UsageError(f"{out}: no such folder; to start a new run, leave out --resume")
    with Interrupt() as interrupt, locked(out):
        rundir = RunDir(out)
        left = left_of(rundir, plan, how.machine)
        sharing.check(left.remaining.tasks, allow_mig=how.allow_mig)
        check_filled(left.remaining.tasks, how.environ, interrupt.asked)
        how = replace(how, preload=rundir.run().preload is True)
        with _means(left.remaining, setting, how, left.plan) as means:
            interrupt.check()
            changed = changes_since(rundir.run(), how.machine, setting.code)
            unsealed = [f"since the run ended, {line}" for line in _unseal(out)]
            swept = mend(rundir, left, how.command, how.budget.limit_s if how.budget else None)
            with observer(left) as watching:
                for line in (*unsealed, *swept, *(f"since the run was started: {line}" for line in changed)):
                    watching.say(line)
                _report(watching, means, how, left.remaining.tasks)
                ledger = Ledger(rundir, left.attempts)
                with _sealed(rundir, watching):
                    runner = Runner(ledger, means, how.environ, watching, interrupt)
                    begun_s = time.monotonic()
                    whole = runner.settled(left.plan)
                    spending = _spending(how, rundir, whole, watching, begun_s)
                    if spending:
                        watching.say(f"{BUDGET} {spending.left_words}")
                    waves = [wave for wave in whole.waves if any(task.id not in left.settled for task in wave.tasks)]
                    runner.run(waves, spending)
    return rundir


def _spending(how: Invocation, rundir: RunDir, plan: Plan, observer: Observer, since_s: float) -> Spending | None:
    return Spending(how.budget, rundir, plan, observer.say, since_s) if how.budget else None


@contextmanager
def _sealed(rundir: RunDir, observer: Observer) -> Iterator[None]:
    """At the end, even if a signal ends the run, write the manifest: its files with their hashes."""
    try:
        yield
    finally:
        try:
            manifest.seal(rundir.path)
        except OSError as error:
            observer.say(f"{manifest.NAME} could not be written: {reason(error)}")


def _unseal(out: Path) -> Iterator[str]:
    """Remove the manifest of a run that continues; the changes since it was written, a line each.

    Raises:
        OutputError: it cannot be removed.
    """
    try:
        yield from manifest.unseal(out).words()
    except OSError as error:
        raise OutputError(f"{out}: cannot be written: {reason(error)}") from None


@contextmanager
def _means(plan: Plan, setting: Setting, how: Invocation, whole: Plan | None = None) -> Iterator[RunMeans]:
    """Fences and monitor for the tasks of a plan, released at the end. In a run over nodes the agents have them.

    Args:
        whole: the plan of the run of which `plan` is left; None if that is all of it.
    """
    if how.team:
        yield RunMeans(setting, Fencing("none", require=False), Monitor([]), how.allow_mig, team=how.team)
        return
    largest = max((sum(task.skip is None for task in wave.tasks) for wave in plan.waves), default=1) or 1
    fencing = Fencing.choose(how.isolation, require=how.require_isolation, largest=largest)
    try:
        if how.share:
            fencing.limit(how.share)
        gpus = {gpu.uuid: gpu for task in plan.tasks for gpu in task.gpus}
        with Monitor(list(gpus.values())) as monitor:
            yield RunMeans(
                setting, fencing, monitor, how.allow_mig, Preloader((whole or plan) if how.preload else None)
            )
    finally:
        fencing.close()


def _report(observer: Observer, means: RunMeans, how: Invocation, tasks: Sequence[Task]) -> None:
    """Show the leftovers of dead runs, the data sets that are missing, and the fences and counters that are missing."""
    if means.team:
        for line in means.team.notes:
            observer.say(line)
        return
    lines = [*means.fencing.swept, *means.fencing.unknown, *not_ready(tasks)]
    found = means.fencing.describe()
    if how.isolation in ("auto", "cgroup") and (not found.cpu.startswith("cpuset") or found.memory == "none"):
        lines.append(f"isolation: CPU {found.cpu}, memory {found.memory}: {means.fencing.reason}")
    elif means.fencing.crowded:
        lines.append(f"isolation: {means.fencing.crowded}")
    machine, noted = means.setting.machine, means.monitor.news()
    if machine.gpu_note and any(task.job.placement.devices != "none" for task in tasks):
        lines.append(machine.gpu_note if machine.visible else f"no GPU is used: {machine.gpu_note}")
    if machine.gpus:
        lines += noted
    for line in lines:
        observer.say(line)


def _setting(machine: Machine) -> Setting:
    return Setting(machine, machine.sha256, host.code(), time.monotonic())


def data_root(given: str | None, environ: Mapping[str, str]) -> str | None:
    """The folder of the data sets: `given`, else `$BENCHSUITE_DATA`, else `data` if it exists, else None.

    Args:
        given: the value of the option -d.

    Raises:
        UsageError: the folder that was asked for does not exist.
    """
    asked, source = (given, "-d") if given is not None else (environ.get("BENCHSUITE_DATA") or None, "BENCHSUITE_DATA")
    if asked is None:
        return str(Path("data").resolve()) if Path("data").is_dir() else None
    if look(Path(asked)) != "folder":
        raise UsageError(f"{source}: no data folder '{asked}'; make it, or name another with -d")
    return str(Path(asked).resolve())
