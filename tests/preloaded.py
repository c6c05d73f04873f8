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
)
# The interpreter reads these when it starts.
AT_START = ("PYTHON", "LC_", "LANG", "MALLOC", "LD_")
_LONGEST_REQUEST = 1 << 20


class Forked(subprocess.Popen[Any]):
    """A `Popen` whose process is forked by the server.

    Args:
        arguments: the words after `benchsuite`.
        cwd: the folder of the process.
        env: its environment.
        options: those of `Popen` that concern its streams.
    """

    def __init__(self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], **options: Any) -> None:
        self._report: socket.socket | None = None
        super().__init__([*arguments], cwd=cwd, env=dict(env), **options)

    def _execute_child(self, *given: Any) -> None:
        named = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        pipes = [named[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        streams = [own if fd == -1 else fd for own, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = {"arguments": named["args"], "cwd": str(named["cwd"]), "env": named["env"]}
        self._report, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_server(), [json.dumps(request).encode()], [*streams, theirs.fileno()])
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
def _server() -> socket.socket:
    from support import environ

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LONGEST_REQUEST)
    with theirs:
        words = [sys.executable, "-W", "error", __file__, str(theirs.fileno())]
        server = subprocess.Popen(words, env=environ(), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def serve(requests: socket.socket) -> list[str]:
    """Fork a process for each request.

    Returns:
        In the forked process, which has all that the request gives: the words after `benchsuite`. The server itself
        exits once its caller has closed the socket.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends it
    gc.freeze()  # shared memory stays shared
    while True:
        content, fds, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 4)
        if not content:
            os._exit(0)
        if not os.fork():
            requests.close()
            _watch_one(json.loads(content), fds)
            return json.loads(content)["arguments"]
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
    sys.path[0] = request["cwd"]


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
    for _module in MODULES:
        importlib.import_module(_module)
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("benchsuite", run_name="__main__", alter_sys=True)
