"""An MPS control daemon of our own: it runs in private folders, for one wave, and changes no setting of a GPU.

A process of CUDA that finds no daemon runs without MPS and says nothing. Therefore the daemon is asked for its clients
while they train, and a task that is not among them does not count as one under MPS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchsuite.describe.tasks import Task
from benchsuite.errors import one_line
from benchsuite.host.kernel_files import descendants
from benchsuite.launch import process
from benchsuite.launch.context import RunContext, WaveError
from benchsuite.records import Failure

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
START_LIMIT_S = 20.0
ANSWER_LIMIT_S = 10.0
# A daemon that does not quit within this time is killed.
QUIT_LIMIT_S = 10.0
# The path of a Unix socket has at most 108 bytes, and the daemon adds names of its own to that of the folder.
LONGEST_PATH = 60
_SHORT = "/tmp"  # noqa: S108 - mkdtemp makes a folder in it that only its owner may enter


class Daemon:
    """A running control daemon.

    Attributes:
        environ: the variables by which a process becomes its client.
    """

    def __init__(self, folder: Path, tree: process.Tree, environ: Mapping[str, str]) -> None:
        self._tree = tree
        self.environ = _variables(folder)
        self._own = {**environ, **self.environ}
        self._servers: set[int] = set()

    def ask(self, command: str) -> str | None:
        """The daemon's answer to a command; None if it gives none in time."""
        try:
            done = subprocess.run(
                [CONTROL],
                input=command + "\n",
                env=self._own,
                capture_output=True,
                text=True,
                timeout=ANSWER_LIMIT_S,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    def clients(self) -> set[int]:
        """The pids of the processes that use MPS now, as the daemon sees them."""
        servers = _numbers(self.ask("get_server_list"))
        self._servers |= set(servers)
        return {pid for server in servers for pid in _numbers(self.ask(f"get_client_list {server}"))}

    def pids(self) -> list[int]:
        """The processes of the daemon and its servers, which use the GPU on behalf of the tasks."""
        return [self._tree.pid, *{*descendants(self._tree.pid), *self._servers}]

    def await_start(self, log: Path) -> None:
        """Wait until it answers.

        Raises:
            WaveError: it ends or is silent.
        """
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            if self._tree.poll() is not None:
                break
            if self.ask("get_server_list") is not None:
                return
            time.sleep(0.1)
        why = one_line(process.last_lines(log).rpartition("\n")[2])
        message = f"{CONTROL} did not start{': ' if why else ''}{why}"
        raise WaveError(Failure(kind="mps", message=message, traceback=process.last_lines(log)))

    def quit(self) -> None:
        """End the daemon and its servers: by its own command, then by force."""
        if self._tree.poll() is None:
            self.ask("quit")
            deadline_s = time.monotonic() + QUIT_LIMIT_S
            while self._tree.poll() is None and time.monotonic() < deadline_s:
                time.sleep(0.05)
        self._tree.kill()


def _variables(folder: Path) -> dict[str, str]:
    return {PIPES: str(folder / "pipe"), LOGS: str(folder / "log")}


def _numbers(answer: str | None) -> list[int]:
    return [int(line) for line in (answer or "").split() if line.isdecimal()]


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user may enter, with the two folders of a daemon; removed at the end."""
    place = tempfile.gettempdir()
    path = Path(tempfile.mkdtemp(prefix="bs-mps-", dir=place if len(place) <= LONGEST_PATH else _SHORT))
    try:
        for name in _variables(path).values():
            Path(name).mkdir(mode=0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def daemon(run: RunContext, tasks: Sequence[Task]) -> Iterator[Daemon]:
    """A daemon for the GPUs of these tasks; at the end nothing of it is left.

    Its process is noted in the run's attempts, so that a resume ends what a killed run left.

    Raises:
        WaveError: it cannot be started.
    """
    gpus = dict.fromkeys(gpu.uuid for task in tasks for gpu in task.gpus)
    log = run.ledger.log(tasks[0], "mps")
    with private_folder() as folder:
        environ = {**run.environ, **_variables(folder), "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        mark = f"mps.{os.getpid()}.{time.monotonic_ns()}"
        try:
            tree = process.start([CONTROL, "-f"], environ=environ, mark=mark, out=log, err=log)
        except (OSError, ValueError) as error:
            raise WaveError(Failure(kind="mps", message=f"{CONTROL} cannot be started: {error}")) from None
        found = Daemon(folder, tree, environ)
        try:
            _note(run, tasks[0], tree)
            found.await_start(log)
            run.monitor.follow(mark, found.pids)
            yield found
        finally:
            run.monitor.forget(mark)
            found.quit()


def _note(run: RunContext, task: Task, tree: process.Tree) -> None:
    try:
        run.ledger.began("prepare", task, tree)
    except OSError as error:
        raise WaveError(Failure(kind="mps", message=f"its start could not be noted: {error}")) from None
