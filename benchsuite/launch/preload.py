"""Workers that are forked from a preloaded process, if the user asks for it.

A worker spends seconds on the import of torch. A preloaded process does that once for all tasks of a repeat that have
the same environment and the same CPUs; see `fork_server`. Each repeat has processes of its own: forked workers share
the layout of their memory and the seed of their hashes, which may change a rate a little, so that repeats of one
process would agree more than they should.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from benchsuite.describe.tasks import Plan, Task
from benchsuite.host.kernel_files import started_ticks
from benchsuite.isolation import enter
from benchsuite.isolation.tenant import Tenant
from benchsuite.launch import process
from benchsuite.launch.child import python, worker_environ
from benchsuite.launch.context import Forker, RunContext, WaveContext
from benchsuite.launch.fork_server import Loaded, Request

# Its `run` does the task of a file.
WORKER = "benchsuite.worker.__main__"
MODELS = Path(__file__).resolve().parents[1] / "models"
# What a step of any model imports, and what models of images do.
TORCH, TORCHVISION = ("torch", "torch._dynamo"), ("torchvision",)
# An import that takes longer has failed; so has a fork.
LOAD_LIMIT_S, FORK_LIMIT_S = 300.0, 30.0
_MARK_LENGTH = 64
# The environment and the CPUs of a process.
_Key: TypeAlias = tuple[tuple[tuple[str, str], ...], tuple[int, ...]]


def forkable(task: Task) -> bool:
    """Whether a task's worker may be forked: one process of a shipped model that uses torch, as plain as can be.

    A user's own module may do anything when it is imported. Ranks, containers, profilers, arrays and models that share
    a GPU start anew.
    """
    job = task.job
    plain = job.model is not None and task.skip is None and task.trace is None and job.container is None
    alone = task.ranks == 1 and job.training.array == 1 and job.sharing == "serial"
    return plain and alone and "torch" in packages(job.model or "")


def packages(model: str) -> tuple[str, ...]:
    """The packages to import for a shipped model, by the imports of its file; empty if it does not use torch."""
    try:
        text = (MODELS / f"{model}.py").read_text(encoding="utf-8")
    except OSError:
        return ()
    found = TORCH if re.search(r"^\s*(import|from) torch\b", text, re.MULTILINE) else ()
    return found + TORCHVISION if re.search(r"^\s*(import|from) torchvision\b", text, re.MULTILINE) else found


class Adopted:
    """A process that the kernel has made a child of this one, with the methods of `Popen` that a `Tree` needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # SIGCHLD is ignored: `Popen` reports 0 then, too
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired: it still runs after `timeout` seconds."""
        deadline_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return code


class ForkServer:
    """A preloaded process.

    Args:
        environ: the environment of it and of its workers.
        cpus: the CPUs on which it imports; empty for all. Libraries count them when they are loaded.
        modules: the worker's module, and those that are imported before it.
        out: the file that gets what its imports print.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, environ: Mapping[str, str], cpus: Sequence[int], modules: Sequence[str], out: Path) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [*python(), "-m", "benchsuite.launch.fork_server", str(theirs.fileno()), *modules]
        with theirs:
            try:
                self._tree = process.start(
                    [*enter.prefix((), cpus), *words],
                    environ=environ,
                    mark=_mark("server"),
                    out=out,
                    err=out,
                    pass_fds=(theirs.fileno(),),
                )
            except (OSError, ValueError):
                self._requests.close()
                raise
        self._loaded: Loaded | None = None

    @property
    def pid(self) -> int:
        return self._tree.pid

    def wait_loaded(self, asked_to_stop: Callable[[], bool]) -> str | None:
        """Wait for its imports; why it cannot fork workers, None if it can."""
        deadline_s = time.monotonic() + LOAD_LIMIT_S
        self._requests.settimeout(0.1)
        while self._loaded is None:
            try:
                said = self._requests.recv(1 << 12)
            except TimeoutError:
                if asked_to_stop():
                    return "the end was asked for"
                if time.monotonic() < deadline_s:
                    continue
                said = b""
            except OSError:
                said = b""
            failed = Loaded("its imports failed; its output says why")
            self._loaded = msgspec.json.decode(said, type=Loaded) if said else failed
        return self._loaded.why_not

    def fork(
        self, file: Path, tenant: Tenant, word: str, out: Path, err: Path, control: int | None
    ) -> process.Tree | None:
        """See `Forker`.

        Raises:
            OSError: a file cannot be opened.
        """
        ours, theirs = socket.socketpair()
        join, cpus = tenant.entered
        mark = _mark(word)
        request = Request(str(file), mark, os.getpid(), join, cpus, control)
        with ours, theirs, Path(os.devnull).open("rb") as given, out.open("ab") as stdout, err.open("ab") as stderr:
            fds = [given.fileno(), stdout.fileno(), stderr.fileno(), theirs.fileno()]
            fds += [] if control is None else [control]
            try:
                socket.send_fds(self._requests, [msgspec.json.encode(request)], fds)
                theirs.close()
                ours.settimeout(FORK_LIMIT_S)
                said = ours.recv(32)
            except OSError:
                said = b""
        if not said:
            self._loaded = Loaded("it does not answer any more")
            self._tree.kill()  # so that it cannot fork the worker later
            return None
        pid = int(said)
        return process.Tree(Adopted(pid), started_ticks(pid), mark)

    def close(self) -> None:
        """End the server. Its workers live on."""
        self._requests.close()
        self._tree.kill()


def _mark(word: str) -> str:
    """A mark of a fixed length, which a forked worker can write over that of its server."""
    unique = f"{os.getpid()}.{time.monotonic_ns()}."
    return (unique + word)[:_MARK_LENGTH].ljust(_MARK_LENGTH, ".")


class Preloader:
    """Provides the tasks of each wave with preloaded processes.

    Whether a task's worker is forked depends on the first repeat of the plan only. It is therefore the same in every
    repeat, also in one that a budget adds, and after a resume.

    Args:
        plan: the whole plan of the run; None: every worker starts anew.
    """

    def __init__(self, plan: Plan | None = None) -> None:
        tasks = [task for task in plan.tasks if forkable(task)] if plan else []
        self._count = Counter(_place(task) for task in tasks if task.repeat == tasks[0].repeat)
        self._modules = tuple(dict.fromkeys(name for task in tasks for name in packages(task.job.model or "")))
        self._repeat: int | None = None
        self._servers: dict[_Key, ForkServer] = {}
        self._said: set[str] = set()

    def pids(self) -> list[int]:
        """The processes that run now."""
        return [server.pid for server in self._servers.values()]

    def close(self) -> None:
        """End all processes."""
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()

    @contextmanager
    def preload(self, run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
        """Provide a loaded process for each task whose worker may be forked. Without one, the worker starts anew."""
        repeat = wave.tasks[0].repeat
        if repeat != self._repeat:
            self.close()
            self._repeat = repeat
        found, began_s, known = {}, time.monotonic(), len(self._servers)
        for task, tenant in zip(wave.tasks, wave.tenants, strict=True):
            # For the only task of a repeat, a preloaded process would save nothing.
            if forkable(task) and self._count[_place(task)] > 1:
                found[task.id] = self._server(run, worker_environ(task, tenant, run, wave), tenant)
        forkers: dict[str, Forker] = {}
        for name, server in found.items():
            why_not = server.wait_loaded(run.asked_to_stop) if server else "it could not be started"
            if server and why_not is None:
                forkers[name] = server
            elif why_not not in self._said and not run.asked_to_stop():
                self._said.add(str(why_not))
                run.say(f"workers start anew, without a preloaded process: {why_not}")
        yield replace(wave, forkers=forkers, loading_s=began_s if len(self._servers) > known else None)

    def _server(self, run: RunContext, environ: Mapping[str, str], tenant: Tenant) -> ForkServer | None:
        key = tuple(sorted(environ.items())), tuple(tenant.cpus)
        if key not in self._servers:
            out = run.ledger.rundir.path / "logs" / "preloaded.out"
            with contextlib.suppress(OSError, ValueError):
                self._servers[key] = ForkServer(environ, tenant.cpus, (WORKER, *self._modules), out)
        return self._servers.get(key)


def _place(task: Task) -> Hashable:
    """What two tasks of a repeat have in common if they are forked from one process, as far as the plan knows it."""
    gpus, variables = tuple(gpu.uuid for gpu in task.gpus), tuple(sorted(task.environ.items()))
    return gpus, variables, task.job.training.intra_op_threads, task.job.tenant
