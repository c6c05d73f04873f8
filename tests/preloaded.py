"""The command line as a process of its own that skips the imports, which take longer than most commands.

A server imports benchsuite once and forks a process for each command. The process has its own pid, folder, environment
and files, receives signals, and ends as `python -m benchsuite` does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MODULES = (
    *(f"benchsuite.commands.{name}" for name in ("jobs", "list", "prepare", "report", "rerun", "run", "stop")),
    "benchsuite.launch.run_one",
    "benchsuite.launch.session",
    "benchsuite.report.measure.foresight",
    "benchsuite.report.show.one_line",
    "benchsuite.report.stats.rate",
    "benchsuite.launch.asked",
    *("difflib", "email.parser", "heapq", "rich._emoji_codes"),  # imported on first use
)
TORCH = ("torch", "torch._dynamo", "torch.distributed", "benchsuite.worker.ranks", "benchsuite.worker.ways")
# The interpreter reads these when it starts.
AT_START = ("PYTHON", "LC_", "LANG", "MALLOC", "LD_")
_LONGEST_REQUEST = 1 << 20


class Forked(subprocess.Popen[Any]):
    """A `Popen` whose process is forked by the server.

    Args:
        arguments: the words after `benchsuite`, or after the program.
        program: a Python file that uses torch on one thread, to be run in place of `benchsuite`.
        cwd: the folder of the process.
        env: its environment.
        options: those of `Popen` that concern its streams.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        program: Path | None = None,
        **options: Any,
    ) -> None:
        self._report: socket.socket | None = None
        self._program = program
        super().__init__([*arguments], cwd=cwd, env=dict(env), **options)

    def _execute_child(self, *given: Any) -> None:
        named = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        pipes = [named[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        streams = [own if fd == -1 else fd for own, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = {"arguments": named["args"], "cwd": str(named["cwd"]), "env": named["env"]}
        request["program"] = str(self._program or "")
        self._report, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(
                _server(MODULES if self._program is None else TORCH),
                [json.dumps(request).encode()],
                [*streams, theirs.fileno()],
            )
        self.pid = struct.unpack("i", self._report.recv(4))[0]
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        assert self._report is not None
        self._report.setblocking(not wait_flags & os.WNOHANG)
        try:
            ended = self._report.recv(4)
        except BlockingIOError:
            return 0, 0
        self._report.close()
        assert ended, "the server has gone"
        return self.pid, struct.unpack("i", ended)[0]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._report is not None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid == self.pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


def fits(env: Mapping[str, str], usual: Mapping[str, str]) -> bool:
    """Whether the server's interpreter, which has the usual environment, is as one that starts with `env`."""
    changed = {key for key in {*env, *usual} if env.get(key) != usual.get(key)}
    return not any(key.startswith(AT_START) for key in changed)


@functools.cache
def _server(modules: tuple[str, ...]) -> socket.socket:
    """Start a server; it has no threads, which would not be in the forked processes."""
    from support import environ

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LONGEST_REQUEST)
    with theirs:
        words = [sys.executable, "-W", "error", __file__, str(theirs.fileno()), *modules]
        env = environ(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        server = subprocess.Popen(words, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def warm_up() -> None:
    """Decode an empty record of each kind that a run reads, and read the shipped profiles.

    At the first time msgspec looks up the types of fields. Each profile is compared with the shipped ones.
    """
    import msgspec

    from benchsuite.data.descriptor import Descriptor
    from benchsuite.describe import profile
    from benchsuite.describe.plan import Plan
    from benchsuite.describe.tasks import Job
    from benchsuite.events import Assignment, Event
    from benchsuite.records import Result, Run
    from benchsuite.rundir import Attempt

    for kind in (Assignment, Attempt, Descriptor, Event, Job, Plan, Result, Run):
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.json.decode(b"{}", type=kind)
    profile.load("smoke")


def serve(requests: socket.socket) -> tuple[str, list[str]]:
    """Fork a process for each request.

    Returns:
        In the forked process, which has all that the request gives: the program, "" for `benchsuite`, and its
        arguments. The server itself exits once its caller has closed the socket.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends it
    gc.freeze()  # shared memory stays shared
    while True:
        content, fds, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 4)
        if not content:
            os._exit(0)
        if not os.fork():
            requests.close()
            request = json.loads(content)
            _watch_one(request, fds)
            return request["program"], request["arguments"]
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _watch_one(request: dict[str, Any], fds: list[int]) -> None:
    """Fork the process and return in it; its parent stays here until it ends, and reports its pid and its status."""
    *streams, report = fds
    pid = os.fork()
    if pid:
        for fd in (0, 1, 2, *streams):
            os.close(fd)
        os.write(report, struct.pack("i", pid))
        ended = os.waitpid(pid, 0)[1]
        with contextlib.suppress(OSError):
            os.write(report, struct.pack("i", ended))
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.close(report)
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
        os.close(fd)
        _open_anew(target)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    program = request["program"]
    sys.path[0] = str(Path(program).parent) if program else request["cwd"]


def _open_anew(fd: int) -> None:
    """The text stream of a file descriptor that is another file by now: pipes, files and terminals differ."""
    name = ("stdin", "stdout", "stderr")[fd]
    as_before = getattr(sys, name)
    raw = os.fdopen(fd, "wb" if fd else "rb", closefd=False)
    at_each_line = fd == 2 or raw.isatty()
    text = io.TextIOWrapper(raw, as_before.encoding, as_before.errors, line_buffering=at_each_line)
    setattr(sys, name, text)
    setattr(sys, f"__{name}__", text)


if __name__ == "__main__":
    _socket, *_modules = sys.argv[1:]
    for _module in _modules:
        importlib.import_module(_module)
    if _modules[0] == MODULES[0]:
        warm_up()
    _program, _arguments = serve(socket.socket(fileno=int(_socket)))
    sys.argv = [_program, *_arguments]
    if _program:
        runpy.run_path(_program, run_name="__main__")
    else:
        runpy.run_module("benchsuite", run_name="__main__", alter_sys=True)
