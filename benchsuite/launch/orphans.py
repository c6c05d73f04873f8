"""Orphans of tasks, which the kernel makes our children: reap the dead ones, and end those that outlive their task."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator

import psutil

from benchsuite.host.kernel_files import children, descendants

_PR_SET_CHILD_SUBREAPER = 36
REAP_EVERY_S = 5.0


@contextlib.contextmanager
def adopted(spared: Callable[[], Collection[int]] = tuple) -> Iterator[Callable[[], list[str]]]:
    """While entered, orphans among our descendants become our children instead of init's.

    The function that it yields kills the children that were not there before, and returns a line for each. Call it
    only while no task and no other child of ours runs.

    Args:
        spared: the children that it does not kill.
    """
    before = set(children(os.getpid()))
    _adopt(1)
    try:
        yield lambda: _end(before.union(spared()))
    finally:
        _adopt(0)


class Reaper:
    """Reaps the orphans that die while tasks run. Without it they would stay zombies until their wave ends."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def look(self) -> None:
        """Reap dead orphans, every `REAP_EVERY_S` at most. Call it again and again."""
        if (now_s := time.monotonic()) >= self._due_s:
            self._due_s = now_s + REAP_EVERY_S
            reap()


def reap() -> None:
    """Reap the dead orphans among our children.

    A process that we have started is in our session or leads its own, and so does a forked worker; another part of the
    program waits for it. A child in any other session is an orphan. An orphan that leads a session stays a zombie until
    its wave ends.
    """
    if sys.platform != "linux" or not _any_dead():
        return
    own = os.getsid(0)
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):  # it has been waited for meanwhile
            if os.getsid(pid) not in (own, pid):
                os.waitpid(pid, os.WNOHANG)


def _any_dead() -> bool:
    """Is a child of ours dead? It stays one to wait for."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _adopt(on: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)


def _end(before: set[int]) -> list[str]:
    lines = []
    for pid in set(children(os.getpid())) - before:
        with contextlib.suppress(psutil.Error):
            child = psutil.Process(pid)
            if child.status() != psutil.STATUS_ZOMBIE:
                for process in [*map(psutil.Process, descendants(pid)), child]:
                    process.kill()
                lines.append(f"process {pid} ({child.name()}) had left its task and has been killed")
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).wait(2.0)
    return lines
