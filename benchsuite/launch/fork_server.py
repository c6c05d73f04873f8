"""The preloaded process: `fork_server.py FD WORKER MODULE ...` imports modules once, and forks a worker a request.

It runs no task itself, has the very environment and CPUs of its workers, and must not have touched a GPU: CUDA does not
survive a fork. A worker is an orphan by design, so that the kernel makes it a child of the run, which is a subreaper.
It is a session of its own, enters its fence before anything else, and then does what a worker does that starts anew.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import itertools
import os
import socket
import sys
import time
import warnings
from array import array
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchsuite.isolation import enter
from benchsuite.launch.process import MARK

LONGEST_REQUEST_BYTES = 1 << 16
# File descriptors of a request are moved above this number first, out of the way of their final numbers.
_ABOVE = 256
_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23
ADOPTED_LIMIT_S = 10.0


class Request(msgspec.Struct, frozen=True):
    """What a forked worker is to do. Its standard streams, a socket for its pid and its control pipe come with it.

    Attributes:
        file: the worker's assignment.
        mark: the value of the variable by which the processes of the task are found, as long as that of the server.
        parent: the pid of the run.
        join, cpus: see `enter.enter`.
        control: the number that the control pipe has in the worker; None without a pipe.
    """

    file: str
    mark: str
    parent: int
    join: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    control: int | None = None


class Loaded(msgspec.Struct, frozen=True):
    """The server's only message: it has imported the modules. `why_not` says why it must not fork; None: it may."""

    why_not: str | None = None


def main(words: Sequence[str]) -> None:
    """Serve until the run closes the socket; a forked worker does its task in here. Never returns.

    Args:
        words: the number of the socket, the module whose `run` does the task of a file and never returns, and further
            modules, which are imported first.
    """
    enter.die_with_parent()
    requests, worker = socket.socket(fileno=int(words[0])), words[1]
    _load([*words[2:], worker])
    pages = mapped_pages()
    requests.send(msgspec.json.encode(Loaded(gpu_in_use())))
    while True:
        content, fds, _, _ = socket.recv_fds(requests, LONGEST_REQUEST_BYTES, 5)
        if not content:
            os._exit(0)
        if _forks():
            requests.close()
            _become(msgspec.json.decode(content, type=Request), fds)
            map_again(pages)  # within its fence, which is charged for them
            sys.modules[worker].run(sys.argv[1])
        for fd in fds:
            os.close(fd)


def _load(modules: Sequence[str]) -> None:
    """Import the modules as a worker imports its model's: without a collection of garbage meanwhile."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    for name in modules:
        importlib.import_module(name)
    gc.set_threshold(*before)


def gpu_in_use(files: str = "/dev/nvidia") -> str | None:
    """Why this process must not fork: it holds a device file of NVIDIA, so that CUDA is in use; None if it may.

    Args:
        files: what the paths of these files begin with.
    """
    for fd in Path("/proc/self/fd").iterdir():
        try:
            target = str(fd.readlink())
        except OSError:  # that of the listing itself
            continue
        if target.startswith(files):
            return f"an import opens {target}, and CUDA does not survive a fork"
    return None


def mapped_pages() -> list[tuple[int, int, int]]:
    """The pages that are in the memory of this process, as runs: address, length, and advice of madvise(2).

    Pages of files, mostly of libraries, are to be read. Writable pages of its own are to be written, which copies them.
    Source: proc_pid_maps(5), and bits 63 and 61 of proc_pid_pagemap(5). Empty if the kernel hides them.
    """
    size, found = os.sysconf("SC_PAGE_SIZE"), []
    try:
        with Path("/proc/self/maps").open() as maps, Path("/proc/self/pagemap").open("rb") as pagemap:
            for line in maps:
                span, access, *_ = line.split()
                if not access.startswith("r"):
                    continue
                start, end = (int(at, 16) // size for at in span.split("-"))
                own = _MADV_POPULATE_WRITE if access.startswith("rw-p") else 0
                advice = {0b101: _MADV_POPULATE_READ, 0b100: own}  # present and of a file, present and its own
                pagemap.seek(8 * start)
                entries = array("Q", pagemap.read(8 * (end - start)))
                for flags, run in itertools.groupby(enumerate(entries), lambda at: at[1] >> 61 & 0b101):
                    first, *rest = run
                    if to_do := advice.get(flags):
                        found.append(((start + first[0]) * size, (1 + len(rest)) * size, to_do))
    except (OSError, ValueError):
        return []
    return found


def map_again(pages: Sequence[tuple[int, int, int]]) -> None:
    """Give a forked process its own copy of these pages, and map those of files, as in one that starts anew.

    A fork alone leaves out pages of files, and shares all others until they are written: the process would fault and
    copy while it is measured, and its control group would not be charged. Before Linux 5.14 this does nothing.
    """
    madvise = ctypes.CDLL(None).madvise
    for start, length, advice in pages:
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)


def _forks() -> bool:
    """Fork twice: True in the grandchild, which has no parent any more; False in the server."""
    with warnings.catch_warnings():
        # The threads of OpenBLAS, which numpy starts: it ends them before a fork, and starts them anew when needed.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            if os.fork():
                os._exit(0)
            return True
    os.waitpid(child, 0)
    return False


def _become(request: Request, fds: Sequence[int]) -> None:
    """Become the worker of a request."""
    os.setsid()
    above = max(_ABOVE, (request.control or 0) + 1)
    stdin, stdout, stderr, reply, *control = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds)
    for fd in fds:
        os.close(fd)
    wanted = {0: stdin, 1: stdout, 2: stderr}
    if request.control is not None:
        wanted[request.control] = control[0]
    for number, fd in wanted.items():
        os.dup2(fd, number)
        os.close(fd)
    _wait_for_adoption(request.parent)
    enter.die_with_parent()
    _set_mark(request.mark)
    os.write(reply, str(os.getpid()).encode())
    os.close(reply)
    try:
        enter.enter(request.join, request.cpus)
    except OSError as error:
        print(enter.refusal(error), file=sys.stderr, flush=True)
        os._exit(enter.FAILED)
    _draw_anew()
    sys.argv[:] = [sys.argv[0], request.file]


def _wait_for_adoption(parent: int) -> None:
    """Wait until the run is the parent, which takes the time of the exit of a process."""
    deadline_s = time.monotonic() + ADOPTED_LIMIT_S
    while os.getppid() != parent:
        if time.monotonic() > deadline_s:
            os._exit(enter.FAILED)
        time.sleep(0.0002)


def _draw_anew() -> None:
    """Seed the generators of numpy from the system, as its import does; Python's own does so at a fork."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def _set_mark(mark: str) -> None:
    """Set the variable `MARK`, also where the kernel shows the environment of this process to others.

    Source: /proc/PID/environ shows the memory from env_start to env_end, fields 50 and 51 of proc_pid_stat(5).
    """
    os.environ[MARK] = mark
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    shown = ctypes.string_at(start, end - start)
    at = (b"\0" + shown).find(f"\0{MARK}=".encode())
    value = mark.encode()
    first = at + len(MARK) + 1
    if at >= 0 and shown[first + len(value) : first + len(value) + 1] == b"\0":
        ctypes.memmove(start + first, value, len(value))


if __name__ == "__main__":
    main(sys.argv[1:])
