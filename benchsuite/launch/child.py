"""One task's worker as the parent sees it: started, told `go` and `stop`, its events read as they come."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from benchsuite.describe.tasks import RENDEZVOUS, Task, recorded_environ
from benchsuite.errors import OutputError
from benchsuite.events import Assignment, control_file
from benchsuite.isolation.fencing import Tenant
from benchsuite.launch import process
from benchsuite.launch.datasets import Given
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.process import KILL_LIMIT_S
from benchsuite.launch.worker_events import Seen, Watch
from benchsuite.records import BatchSearch
from benchsuite.rundir import slug
from benchsuite.schema import to_json
from benchsuite.writing import write_new

Ended = Literal["exited", "timed_out", "interrupted"]


@dataclass(frozen=True)
class Found:
    """What was found for a wave before its tasks start; a `probe` only tries whether its batch fits."""

    data: Given | None = None
    batch_search: BatchSearch | None = None
    probe: bool = False


class Child:
    """A running worker. `deadline_s` is when it must have ended, on CLOCK_MONOTONIC.

    `ending` says why it was asked to end before it did so by itself, `behind_then` which ranks of a group were
    behind at that moment; `kill_s` is when it is asked no more. `stuck`: SIGKILL did not end it.
    """

    def __init__(
        self,
        task: Task,
        ledger: Ledger,
        environ: Mapping[str, str],
        tenant: Tenant,
        *,
        alone: bool,
        found: Found = Found(),
    ) -> None:
        self.task = task
        self.tenant = tenant
        self.found = found
        self.attempt = ledger.attempt(task)
        self.go_s: float | None = None
        self.stop_said = False
        self.ending: Ended | None = None
        self.behind_then: str | None = None
        self.kill_s = 0.0
        self.stuck = False
        self._closed = False
        self.err = ledger.log(task, "err")
        events = ledger.log(task, "events.jsonl")
        self._watch = Watch(events, task.ranks)
        self._control = Path(control_file(str(events))) if task.ranks > 1 else None
        control, self._say_fd = os.pipe() if self._control is None else (None, _open_fifo(self._control))
        try:
            self.tree = self._start(task, ledger, environ, control, events, alone=alone)
        finally:
            if control is not None:
                os.close(control)
        self.started_s = time.monotonic()
        self.deadline_s = self.started_s + task.job.timeout_s

    def _start(
        self, task: Task, ledger: Ledger, environ: Mapping[str, str], control: int | None, events: Path, *, alone: bool
    ) -> process.Tree:
        hold_limit_s = 0.0 if alone else task.job.max_time_s
        assignment = Assignment(
            task=task,
            events=str(events),
            data=self.found.data.folder if self.found.data else None,
            control_fd=control,
            control_file=str(self._control) if self._control else None,
            hold_limit_s=hold_limit_s,
            probe=self.found.probe,
        )
        file = ledger.log(task, "task.json")
        program = "benchsuite.worker" if task.ranks == 1 else "benchsuite.worker.group"
        try:
            write_new(file, to_json(assignment, indent=2))
            return process.start(
                [*self.tenant.prefix, *python(), "-m", program, str(file)],
                environ={**self.tenant.environ, **child_environ(task, environ)},
                mark=f"{os.getpid()}.{slug(task.id)}.{self.attempt}.{time.monotonic_ns()}",
                out=ledger.log(task, "out"),
                err=self.err,
                pass_fds=() if control is None else (control,),
            )
        except (OSError, ValueError) as error:  # ValueError: what this locale cannot hand to a child
            self._close_control()
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise OutputError(f"{file}: cannot start a task: {why}") from None

    def look(self) -> int | None:
        """Take in new events; the exit code once the worker is gone and all it said is read."""
        exit_code = self.tree.poll()
        self._watch.look()
        return exit_code

    @property
    def seen(self) -> Seen:
        """What its processes have told so far."""
        return self._watch.seen

    def behind(self) -> str | None:
        """Which ranks of a group have not come as far as the others; None where none is behind, or it is no group."""
        return self._watch.behind()

    def say_go(self) -> None:
        """Let a ready worker begin."""
        self.go_s = time.monotonic()
        self._say(b"go\n")

    def say_stop(self) -> None:
        """Let a worker that holds for its neighbours end."""
        self.stop_said = True
        self._say(b"stop\n")

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._say_fd, word)

    def end(self) -> None:
        """End what is left of the tree and of its group."""
        self.tree.kill(limit_s=0.2 if self.stuck else KILL_LIMIT_S)
        self.tenant.kill()

    def close(self) -> None:
        """End what is left, release the pipe and give back the share of the machine."""
        if self._closed:
            return
        self._closed = True
        self.end()
        self.tenant.close()
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
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)  # to write alone would wait for the reader
    except OSError as error:
        raise OutputError(f"{path}: cannot make a FIFO: {error.strerror}") from None


def _own_path() -> list[str]:
    """Where a child finds this package, if it is run from a checkout without being installed."""
    try:
        metadata.version("benchsuite")
    except metadata.PackageNotFoundError:
        return [str(Path(__file__).resolve().parents[2])]
    return []


def python() -> list[str]:
    """This Python, which `-m` does not have look in the current folder: a checkout there would run under our name."""
    return [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]


def child_environ(task: Task, environ: Mapping[str, str]) -> dict[str, str]:
    """The parent's environment with exactly the recorded variables of the task in place of today's."""
    today = recorded_environ(environ)
    kept = {k: v for k, v in environ.items() if k not in today and k not in RENDEZVOUS}
    wanted = {**kept, "PYTHONUNBUFFERED": "1", **task.environ}
    paths = [*filter(None, [wanted.get("PYTHONPATH")]), *_own_path()]
    return {**wanted, "PYTHONPATH": os.pathsep.join(paths)} if paths else wanted
