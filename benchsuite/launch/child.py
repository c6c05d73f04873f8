"""The worker of a task: start it, supervise it, and read its events."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from benchsuite.describe.tasks import Task
from benchsuite.describe.variables import RENDEZVOUS, recorded_environ
from benchsuite.errors import OutputError, reason
from benchsuite.events import Assignment, Member, control_file
from benchsuite.isolation.tenant import Tenant
from benchsuite.launch import process
from benchsuite.launch.containers import Contained, Needs, needs_of, worker_command
from benchsuite.launch.context import RunContext, WaveContext
from benchsuite.launch.profilers import profiler
from benchsuite.launch.supervise import Exit, Supervision
from benchsuite.launch.worker_events import EventFiles
from benchsuite.launch.working import Working
from benchsuite.rundir import slug
from benchsuite.schema import to_json
from benchsuite.writing import write_new


class Child(Working):
    """A running worker.

    Args:
        run: what all waves of the run share.
        tenant: the share of the machine in which the worker runs; the caller closes it.
        wave: what the means have provided. A task that is alone in its wave does not hold.
        probe_of: if given, the worker only tries whether its batch fits; the attempt is noted under this task.
        prepares: if given, the worker trains a few steps before the run's tasks; the attempt is noted under this task.
        member: of a task over nodes, the part that this machine runs.
        checkpoints: the path of the checkpoints of a task over nodes, which the first node gives.

    Attributes:
        forked: whether it was forked from a preloaded process.

    Raises:
        OutputError: the worker cannot be started.
        OSError: its start cannot be noted; nothing of it is left.
    """

    def __init__(
        self,
        run: RunContext,
        task: Task,
        tenant: Tenant,
        wave: WaveContext,
        *,
        probe_of: Task | None = None,
        prepares: Task | None = None,
        member: Member | None = None,
        checkpoints: str | None = None,
    ) -> None:
        events, err = run.ledger.log(task, "events.jsonl"), run.ledger.log(task, "err")
        files = EventFiles(events, task.ranks)
        super().__init__(task, run.ledger.attempt(task), wave, err, files, run.asked_to_stop)
        self.tenant, self._member, self._checkpoints = tenant, member, checkpoints
        self.forked = False
        self._closed = False
        self.contained = Contained(task.job.container) if task.job.container else None
        by_file = task.ranks > 1 or self.contained  # an engine hands no pipe on
        self._control = Path(control_file(str(events))) if by_file else None
        control, self._say_fd = os.pipe() if self._control is None else (None, _open_fifo(self._control))
        try:
            self.tree = self._start(run, control, probe=probe_of is not None)
        finally:
            if control is not None:
                os.close(control)
        self.started_s = time.monotonic()
        self.deadline_s = self.started_s + task.job.timeout_s
        self._supervision = Supervision(self.tree, run.hurried)
        try:
            of = probe_of or prepares
            run.ledger.began("prepare" if of else "start", of or task, self.tree)
        except OSError:
            self.close()
            raise

    def _start(self, run: RunContext, control: int | None, *, probe: bool) -> process.Tree:
        task, log = self.task, run.ledger.log
        alone = probe or len(self.wave.tasks) == 1
        assignment = Assignment(
            task=task,
            events=str(log(task, "events.jsonl")),
            data=self.wave.data.folder if self.wave.data else None,
            control_fd=control,
            control_file=str(self._control) if self._control else None,
            member=self._member,
            checkpoints=None if probe or not (prefix := self._prefix(run)) else prefix,
            hold_limit_s=0.0 if alone else task.job.max_time_s,
            probe=probe,
        )
        file = log(task, "task.json")
        program = "benchsuite.worker" if task.ranks == 1 else "benchsuite.worker.group"
        try:
            write_new(file, to_json(assignment, indent=2))
            traced = profiler(task, str(log(task, "events.jsonl")))
            if tree := self._fork(run, file, control):
                return tree
            environ = worker_environ(task, self.tenant, run, self.wave)
            command = [*traced, *python(), "-m", program, str(file)]
            if self.contained:
                needs = self._needs(run)
                command = self.contained.command([*traced, *worker_command(program, file)], needs)
                environ |= needs.environ
            return process.start(
                [*self.tenant.prefix, *command],
                environ=environ,
                mark=f"{os.getpid()}.{slug(task.id)}.{self.attempt}.{time.monotonic_ns()}",
                out=log(task, "out"),
                err=self.err,
                pass_fds=() if control is None else (control,),
            )
        except (OSError, ValueError) as error:
            self._close_control()
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise OutputError(f"{file}: cannot start a task: {why}") from None

    def _fork(self, run: RunContext, file: Path, control: int | None) -> process.Tree | None:
        """Fork the worker from a preloaded process; None if it has none, or if that does not answer."""
        forker = self.wave.forkers.get(self.task.id)
        if forker is None:
            return None
        tree = forker.fork(file, self.tenant, slug(self.task.id), run.ledger.log(self.task, "out"), self.err, control)
        if tree is None:
            run.say(f"{self.task.id}: the preloaded process does not answer; the worker starts anew")
        self.forked = tree is not None
        return tree

    def _prefix(self, run: RunContext) -> str | None:
        """The path of the task's checkpoints, without `.epochN`; None if it writes none."""
        if self._member:
            return self._checkpoints
        own = run.ledger.checkpoints(self.task)
        return str(own) if own else None

    def _needs(self, run: RunContext) -> Needs:
        """What the worker needs of its host if it runs in a container."""
        worker = {**self.tenant.environ, **self.task.environ, **self.wave.environ}
        data = self.wave.data.folder.path if self.wave.data else None
        return needs_of(self.task, run.ledger.rundir.path, run.environ, data, self.tenant.described(), worker)

    def step(self) -> bool:
        """Read new events and end the worker if it is time; True once it is gone or given up. Never waits for it."""
        over = self._supervision.step(self._why_end)
        self._events.read()
        return over

    def _say(self, word: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._say_fd, f"{word}\n".encode())

    def finish(self) -> Exit:
        """End what is left of the tree and of its group, and read the last events; how the worker went."""
        exit = self._supervision.finish()
        if self.contained:
            self.contained.end()
        self.tenant.kill()
        self._events.read()
        self.exit = replace(exit, behind=self._behind)
        return self.exit

    def close(self) -> None:
        """End what is left and release the pipe. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self.exit is None:
            self.finish()
        self._close_control()

    def _close_control(self) -> None:
        os.close(self._say_fd)
        if self._control:
            self._control.unlink(missing_ok=True)


def _open_fifo(path: Path) -> int:
    """Make a FIFO and open its writing end.

    Raises:
        OutputError: the folder's file system has no FIFOs, or cannot be written.
    """
    try:
        path.unlink(missing_ok=True)  # a run that was killed right here has left one
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)  # to write alone would wait for the reader
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot make a FIFO: {reason(error)}") from None


def _own_path() -> list[str]:
    """The folder in which a child finds this package, if the package runs from a checkout and is not installed."""
    try:
        metadata.version("benchsuite")
    except metadata.PackageNotFoundError:
        return [str(Path(__file__).resolve().parents[2])]
    return []


def python() -> list[str]:
    """This interpreter, with `-P` if it knows that option.

    `-P` keeps the current folder off `sys.path`, so that a `benchsuite/` there cannot shadow this package.
    """
    return [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]


def worker_environ(task: Task, tenant: Tenant, run: RunContext, wave: WaveContext) -> dict[str, str]:
    """The environment of a task's worker."""
    return {**tenant.environ, **child_environ(task, run.environ), **wave.environ}


def child_environ(task: Task, environ: Mapping[str, str]) -> dict[str, str]:
    """The parent's environment, with the recorded variables of the task in place of today's."""
    today = recorded_environ(environ)
    kept = {k: v for k, v in environ.items() if k not in today and k not in RENDEZVOUS}
    wanted = {**kept, "PYTHONUNBUFFERED": "1", **task.environ}
    paths = [*filter(None, [wanted.get("PYTHONPATH")]), *_own_path()]
    return {**wanted, "PYTHONPATH": os.pathsep.join(paths)} if paths else wanted
